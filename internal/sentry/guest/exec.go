package guest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	gotime "time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/devices/memdev"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/pipefs"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/user"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/kernel/pipe"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// Exit codes of commands that could not be started, as shells give them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// ExecIO connects a command to its caller. Stdin may be nil; Done says that the
// caller went away.
type ExecIO struct {
	Stdin          <-chan []byte // closed at end of input
	Stdout, Stderr io.Writer
	Done           <-chan struct{}
	// Canceled says, when Done is closed, whether the caller does not come back.
	Canceled func() bool
}

// execKeep is how much output of a command with a caller is kept, in bytes. What
// he has not read is never dropped: the command waits.
const execKeep = 128 << 10

// Exec runs one command to its end. Output of processes that the command left
// behind is discarded after that, so that they never see a broken pipe.
func (g *Guest) Exec(req *wire.Exec, xio ExecIO) (*wire.Exited, error) {
	began, st := gotime.Now(), begin()
	keep := int64(execKeep)
	if req.Key != "" {
		keep += resumeBlocks * blockSize
		if err := g.commands.add(req.Key); err != nil {
			return nil, err
		}
	}
	p, out, err := g.launch(req, keep, true)
	if err != nil {
		g.commands.remove(req.Key)
		return startFailure(err, xio.Stderr, began)
	}
	st.mark("start")
	if p.stdin != nil {
		go g.feed(p, xio.Stdin)
	}
	r := &foreground{key: req.Key, p: p, out: out, began: began}
	if req.Key != "" {
		out.hold(resumeBlocks)
	}
	exited, err := g.follow(r, xio)
	if err != nil {
		return nil, err
	}
	st.mark("run")
	exited.Timed = st.timed()
	return exited, nil
}

// copyChunks copies what a command writes to its caller. It returns io.EOF at the
// end.
func copyChunks(out *reader, xio ExecIO) error {
	for {
		c, err := out.next(xio.Done)
		if err != nil {
			return err
		}
		w := xio.Stdout
		if c.Stream == wire.Stderr {
			w = xio.Stderr
		}
		if _, err := w.Write(c.Data); err != nil {
			return err
		}
	}
}

// startError is a command that cannot be started through its own fault.
type startError struct {
	code int
	msg  string
}

func (e *startError) Error() string { return e.msg }

func startFailure(err error, stderr io.Writer, began gotime.Time) (*wire.Exited, error) {
	se, ok := err.(*startError)
	if !ok {
		return nil, err
	}
	if _, err := fmt.Fprintf(stderr, "ramet: %s\n", se.msg); err != nil {
		return nil, err
	}
	return &wire.Exited{Code: se.code, DurationMS: millis(gotime.Since(began))}, nil
}

// launch creates and starts a process. With own, a reader that misses nothing is
// returned as well.
func (g *Guest) launch(req *wire.Exec, keep int64, own bool) (*process, *reader, error) {
	g.ops.RLock()
	defer g.ops.RUnlock()
	if g.paused {
		return nil, nil, errPaused
	}
	if err := g.table.makeRoom(); err != nil {
		return nil, nil, err
	}
	p, err := g.create(req, keep)
	if err != nil {
		g.table.giveUpRoom()
		return nil, nil, err
	}
	p.ready(g.table)
	g.table.add(p)
	var out *reader
	if own {
		out = p.out.newReader(0, true)
	}
	g.k.StartProcess(p.tg)
	g.attend(p)
	return p, out, nil
}

// create makes a process that does not run yet.
func (g *Guest) create(req *wire.Exec, keep int64) (*process, error) {
	ctx := g.rootContext()
	mns, err := g.mountNamespace()
	if err != nil {
		return nil, err
	}
	defer mns.DecRef(ctx)
	args, err := g.processArgs(ctx, mns, req)
	if err != nil {
		return nil, err
	}
	fds := g.k.NewFDTable()
	defer fds.DecRef(ctx)
	args.FDTable = fds
	p := &process{
		command: commandLine(req.Argv), started: gotime.Now().UnixNano(), keep: keep, tty: req.Terminal != nil,
		left: req.TimeoutMS * int64(gotime.Millisecond), idle: req.IdleTimeoutMS * int64(gotime.Millisecond),
	}
	if p.tty {
		args.TTY, err = g.openTerminal(ctx, mns, args.Credentials, fds, p, *req.Terminal)
	} else {
		err = g.openStdio(ctx, mns, fds, req.Stdin, p)
	}
	if err != nil {
		g.abandon(p)
		return nil, err
	}
	if args.Filename, err = user.ResolveExecutablePath(args.NewContext(g.k), args); err != nil {
		g.abandon(p)
		return nil, &startError{exitNotFound, fmt.Sprintf("%s: command not found", req.Argv[0])}
	}
	switch mode, err := g.modeOf(ctx, mns, args.Filename); {
	case linuxerr.Equals(linuxerr.ENOENT, err):
		g.abandon(p)
		return nil, &startError{exitNotFound, fmt.Sprintf("%s: no such file", req.Argv[0])}
	case err == nil && mode.FileType() != linux.ModeRegular: // opening a fifo would wait for a writer
		g.abandon(p)
		return nil, &startError{exitNotExecutable, fmt.Sprintf("%s: it is not a regular file", req.Argv[0])}
	}
	mns.IncRef() // taken over by CreateProcess
	tg, pid, err := g.k.CreateProcess(*args)
	if err != nil {
		g.abandon(p)
		if most := g.id.Limits.Pids; most > 0 && err.Error() == linuxerr.EAGAIN.Error() {
			return nil, api.Errorf(api.CodeLimit, "the sandbox has as many processes as its limit allows, %d", most)
		}
		return nil, &startError{exitNotExecutable, req.Argv[0] + ": " + loadFailure(args.Filename, err)}
	}
	p.tg, p.pid = tg, int32(pid)
	return p, nil
}

// loadFailure says why a file that is there could not be executed. The kernel gives
// its reasons as text only.
func loadFailure(filename string, err error) string {
	reason := strings.TrimPrefix(err.Error(), "failed to load "+filename+": ")
	if reason == linuxerr.ENOENT.Error() {
		return "the interpreter that the file asks for is not there"
	}
	return reason
}

// processArgs returns the arguments of a new process but for its descriptors and
// the file it runs.
func (g *Guest) processArgs(ctx context.Context, mns *vfs.MountNamespace, req *wire.Exec) (*kernel.CreateProcessArgs, error) {
	creds, err := g.credentials(ctx, mns, req.User)
	if err != nil {
		return nil, err
	}
	cwd := req.Cwd
	if cwd == "" {
		cwd = "/"
	}
	// The kernel takes whatever is there.
	if mode, err := g.modeOf(ctx, mns, cwd); err != nil || mode.FileType() != linux.ModeDirectory {
		return nil, api.Invalid("cwd", "%q is not a directory in the sandbox", cwd)
	}
	env, err := user.MaybeAddExecUserHome(ctx, mns, creds.RealKUID, g.environ(req))
	if err != nil {
		return nil, fmt.Errorf("find home directory: %w", err)
	}
	group, err := g.commandTasks(ctx)
	if err != nil {
		return nil, err
	}
	return &kernel.CreateProcessArgs{
		Argv:                 req.Argv,
		Envv:                 env,
		WorkingDirectory:     cwd,
		Credentials:          g.bounded(creds),
		Umask:                0o022,
		Limits:               g.limits(),
		MaxSymlinkTraversals: linux.MaxSymlinkTraversals,
		UTSNamespace:         g.k.RootUTSNamespace(),
		IPCNamespace:         g.k.RootIPCNamespace(),
		PIDNamespace:         g.k.RootPIDNamespace(),
		MountNamespace:       mns,
		InitialCgroupV2:      group,
		CgroupNamespace:      g.k.GlobalInit().Leader().CgroupNamespace(), // for as long as init runs
		Origin:               kernel.OriginExec,
	}, nil
}

// commandLine returns argv as it is shown.
func commandLine(argv []string) string {
	line := strings.Join(argv, " ")
	return strings.ToValidUTF8(line[:min(len(line), maxCommand)], "\uFFFD")
}

// modeOf returns the type and mode of a file, which root looks up.
func (g *Guest) modeOf(ctx context.Context, mns *vfs.MountNamespace, name string) (linux.FileMode, error) {
	root := mns.Root(ctx)
	defer root.DecRef(ctx)
	st, err := g.k.VFS().StatAt(ctx, auth.NewRootCredentials(g.k.RootUserNamespace()), pathAt(root, name), &vfs.StatOptions{Mask: linux.STATX_TYPE})
	return linux.FileMode(st.Mode), err
}

// openStdio fills the standard descriptors of fds and puts the other ends into p.
func (g *Guest) openStdio(ctx context.Context, mns *vfs.MountNamespace, fds *kernel.FDTable, stdin bool, p *process) error {
	newPipe := func() (r, w *vfs.FileDescription, err error) {
		return pipefs.NewConnectedPipeFDs(ctx, g.k.PipeMount(), 0)
	}
	if stdin {
		r, w, err := newPipe()
		if err != nil {
			return fmt.Errorf("create stdin: %w", err)
		}
		p.stdin = w
		if err := place(ctx, fds, 0, r); err != nil {
			return fmt.Errorf("create stdin: %w", err)
		}
	} else {
		null, err := g.openNull(ctx, mns)
		if err != nil {
			return fmt.Errorf("open /dev/null: %w", err)
		}
		if err := place(ctx, fds, 0, null); err != nil {
			return fmt.Errorf("create stdin: %w", err)
		}
	}
	for fd, end := range map[int32]**vfs.FileDescription{1: &p.stdout, 2: &p.stderr} {
		r, w, err := newPipe()
		if err != nil {
			return fmt.Errorf("create output pipe: %w", err)
		}
		*end = r
		_, _ = r.Impl().(*pipe.VFSPipeFD).SetPipeSize(outputPipe) // it is smaller else, which is no error
		if err := place(ctx, fds, fd, w); err != nil {
			return fmt.Errorf("create output pipe: %w", err)
		}
	}
	return nil
}

// openNull opens what is at /dev/null, or the device itself where the guest has removed
// that, or covered it with something that cannot be opened.
func (g *Guest) openNull(ctx context.Context, mns *vfs.MountNamespace) (*vfs.FileDescription, error) {
	root := mns.Root(ctx)
	defer root.DecRef(ctx)
	opts := vfs.OpenOptions{Flags: linux.O_RDONLY | linux.O_NONBLOCK} // the guest may have put a fifo there
	file, err := g.k.VFS().OpenAt(ctx, auth.NewRootCredentials(g.k.RootUserNamespace()), pathAt(root, "/dev/null"), &opts)
	if err == nil {
		return file, nil
	}
	null := g.k.VFS().NewAnonVirtualDentry("null")
	defer null.DecRef(ctx)
	return memdev.NewNullFD(ctx, null.Mount(), null.Dentry(), opts)
}

// place makes file, which it takes over, the descriptor fd.
func place(ctx context.Context, fds *kernel.FDTable, fd int32, file *vfs.FileDescription) error {
	defer file.DecRef(ctx) // the table has a reference of its own
	_, err := fds.NewFDAt(ctx, fd, file, kernel.FDFlags{})
	return err
}

// environ returns the environment of a command: defaults, the sandbox's, the
// command's own.
func (g *Guest) environ(req *wire.Exec) []string {
	env := map[string]string{
		"PATH":             "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG":             "C.UTF-8",
		"HOSTNAME":         g.id.Hostname,
		"RAMET_SANDBOX_ID": g.id.ID,
		"RAMET_FORK_INDEX": strconv.Itoa(g.id.ForkIndex),
	}
	if req.Terminal != nil {
		env["TERM"] = "xterm-256color"
	}
	maps.Copy(env, g.id.Env)
	maps.Copy(env, req.Env)
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

func millis(d gotime.Duration) float64 { return float64(d.Microseconds()) / 1000 }
