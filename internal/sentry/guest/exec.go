package guest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"sync"
	gotime "time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/pipefs"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/user"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/kernel/auth"
	"gvisor.dev/gvisor/pkg/sentry/vfs"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
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
}

// Exec runs one command to its end. Output of processes that the command left
// behind is discarded after that, so that they never see a broken pipe.
func (g *Guest) Exec(req *wire.Exec, xio ExecIO) (*wire.Exited, error) {
	began := gotime.Now()
	s, tg, err := g.startProcess(req)
	if err != nil {
		return startFailure(err, xio.Stderr, began)
	}
	var output sync.WaitGroup
	exited := make(chan struct{})
	output.Add(2)
	go g.drain(s, &s.stdout, xio.Stdout, exited, output.Done)
	go g.drain(s, &s.stderr, xio.Stderr, exited, output.Done)
	if s.stdin != nil {
		go g.feed(s, xio.Stdin, exited)
	}
	timedOut := g.await(tg, req.TimeoutMS, xio.Done, exited)
	output.Wait()
	ws := tg.ExitStatus()
	out := &wire.Exited{TimedOut: timedOut, DurationMS: millis(gotime.Since(began))}
	if ws.Signaled() {
		out.Code = 128 + int(ws.TerminationSignal())
		out.Signal = signalName(ws.TerminationSignal())
	} else {
		out.Code = int(ws.ExitStatus())
	}
	return out, nil
}

// await returns when tg has exited, and closes exited then. It kills tg's
// process group at the timeout or when the caller goes away.
func (g *Guest) await(tg *kernel.ThreadGroup, timeoutMS int64, gone <-chan struct{}, exited chan struct{}) (timedOut bool) {
	go func() {
		tg.WaitExited()
		close(exited)
	}()
	var timeout <-chan gotime.Time
	if timeoutMS > 0 {
		t := gotime.NewTimer(gotime.Duration(timeoutMS) * gotime.Millisecond)
		defer t.Stop()
		timeout = t.C
	}
	select {
	case <-exited:
		return false
	case <-timeout:
		timedOut = true
	case <-gone:
	}
	g.killGroup(tg)
	<-exited
	return timedOut
}

func (g *Guest) killGroup(tg *kernel.ThreadGroup) {
	kill := &linux.SignalInfo{Signo: int32(linux.SIGKILL)}
	if pg := tg.ProcessGroup(); pg != nil {
		// Errors mean that the processes are gone already.
		_ = g.k.SendExternalSignalProcessGroup(pg, kill)
	}
	_ = g.k.SendExternalSignalThreadGroup(tg, kill)
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

// startProcess creates and starts the command's process.
func (g *Guest) startProcess(req *wire.Exec) (*session, *kernel.ThreadGroup, error) {
	g.ops.RLock()
	defer g.ops.RUnlock()
	if g.paused {
		return nil, nil, errPaused
	}
	ctx := g.rootContext()
	mns, err := g.mountNamespace()
	if err != nil {
		return nil, nil, err
	}
	defer mns.DecRef(ctx)
	creds, err := g.credentials(ctx, mns, req.User)
	if err != nil {
		return nil, nil, err
	}
	cwd := req.Cwd
	if cwd == "" {
		cwd = "/"
	}
	// The kernel takes whatever is there.
	if mode, err := g.modeOf(ctx, mns, cwd); err != nil || mode.FileType() != linux.ModeDirectory {
		return nil, nil, sandbox.Invalid("cwd", "%q is not a directory in the sandbox", cwd)
	}
	env, err := user.MaybeAddExecUserHome(ctx, mns, creds.RealKUID, g.environ(req.Env))
	if err != nil {
		return nil, nil, fmt.Errorf("find home directory: %w", err)
	}
	group, err := g.tasks(ctx)
	if err != nil {
		return nil, nil, err
	}
	fds := g.k.NewFDTable()
	defer fds.DecRef(ctx)
	s, err := g.openStdio(ctx, mns, fds, req.Stdin)
	if err != nil {
		return nil, nil, err
	}
	args := kernel.CreateProcessArgs{
		Argv:                 req.Argv,
		Envv:                 env,
		WorkingDirectory:     cwd,
		Credentials:          creds,
		FDTable:              fds,
		Umask:                0o022,
		Limits:               guestLimits(),
		MaxSymlinkTraversals: linux.MaxSymlinkTraversals,
		UTSNamespace:         g.k.RootUTSNamespace(),
		IPCNamespace:         g.k.RootIPCNamespace(),
		PIDNamespace:         g.k.RootPIDNamespace(),
		MountNamespace:       mns,
		InitialCgroupV2:      group,
		Origin:               kernel.OriginExec,
	}
	if args.Filename, err = user.ResolveExecutablePath(args.NewContext(g.k), &args); err != nil {
		g.abandon(s)
		return nil, nil, &startError{exitNotFound, fmt.Sprintf("%s: command not found", req.Argv[0])}
	}
	if _, err := g.modeOf(ctx, mns, args.Filename); linuxerr.Equals(linuxerr.ENOENT, err) {
		g.abandon(s)
		return nil, nil, &startError{exitNotFound, fmt.Sprintf("%s: no such file", req.Argv[0])}
	}
	mns.IncRef() // taken over by CreateProcess
	tg, _, err := g.k.CreateProcess(args)
	if err != nil {
		g.abandon(s)
		return nil, nil, &startError{exitNotExecutable, fmt.Sprintf("%s: %v", req.Argv[0], err)}
	}
	g.sessions.add(s)
	g.k.StartProcess(tg)
	return s, tg, nil
}

// modeOf returns the type and mode of a file, which root looks up.
func (g *Guest) modeOf(ctx context.Context, mns *vfs.MountNamespace, name string) (linux.FileMode, error) {
	root := mns.Root(ctx)
	defer root.DecRef(ctx)
	st, err := g.k.VFS().StatAt(ctx, auth.NewRootCredentials(g.k.RootUserNamespace()), pathAt(root, name), &vfs.StatOptions{Mask: linux.STATX_TYPE})
	return linux.FileMode(st.Mode), err
}

// openStdio fills the standard descriptors of fds and returns a session with
// the other ends.
func (g *Guest) openStdio(ctx context.Context, mns *vfs.MountNamespace, fds *kernel.FDTable, stdin bool) (*session, error) {
	s := &session{}
	place := func(fd int32, file *vfs.FileDescription) error {
		defer file.DecRef(ctx) // the table has a reference of its own
		_, err := fds.NewFDAt(ctx, fd, file, kernel.FDFlags{})
		return err
	}
	pipe := func() (r, w *vfs.FileDescription, err error) {
		return pipefs.NewConnectedPipeFDs(ctx, g.k.PipeMount(), 0)
	}
	if stdin {
		r, w, err := pipe()
		if err != nil {
			return nil, fmt.Errorf("create stdin: %w", err)
		}
		s.stdin = w
		if err := place(0, r); err != nil {
			return nil, fmt.Errorf("create stdin: %w", err)
		}
	} else {
		root := mns.Root(ctx)
		defer root.DecRef(ctx)
		null, err := g.k.VFS().OpenAt(ctx, auth.NewRootCredentials(g.k.RootUserNamespace()), pathAt(root, "/dev/null"), &vfs.OpenOptions{Flags: linux.O_RDONLY})
		if err != nil {
			return nil, fmt.Errorf("open /dev/null: %w", err)
		}
		if err := place(0, null); err != nil {
			return nil, fmt.Errorf("create stdin: %w", err)
		}
	}
	for fd, end := range map[int32]**vfs.FileDescription{1: &s.stdout, 2: &s.stderr} {
		r, w, err := pipe()
		if err != nil {
			return nil, fmt.Errorf("create output pipe: %w", err)
		}
		*end = r
		if err := place(fd, w); err != nil {
			return nil, fmt.Errorf("create output pipe: %w", err)
		}
	}
	return s, nil
}

// environ returns the environment of a command: defaults, the sandbox's, the
// command's own.
func (g *Guest) environ(own map[string]string) []string {
	env := map[string]string{
		"PATH":             "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"LANG":             "C.UTF-8",
		"HOSTNAME":         g.id.Hostname,
		"RAMET_SANDBOX_ID": g.id.ID,
		"RAMET_FORK_INDEX": strconv.Itoa(g.id.ForkIndex),
	}
	maps.Copy(env, g.id.Env)
	maps.Copy(env, own)
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

func millis(d gotime.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// signalName returns the name of a signal as kill -l prints it, with SIG.
func signalName(sig linux.Signal) string {
	if n, ok := signalNames[sig]; ok {
		return n
	}
	return fmt.Sprintf("SIG%d", sig)
}

var signalNames = map[linux.Signal]string{
	linux.SIGHUP: "SIGHUP", linux.SIGINT: "SIGINT", linux.SIGQUIT: "SIGQUIT", linux.SIGILL: "SIGILL",
	linux.SIGTRAP: "SIGTRAP", linux.SIGABRT: "SIGABRT", linux.SIGBUS: "SIGBUS", linux.SIGFPE: "SIGFPE",
	linux.SIGKILL: "SIGKILL", linux.SIGUSR1: "SIGUSR1", linux.SIGSEGV: "SIGSEGV", linux.SIGUSR2: "SIGUSR2",
	linux.SIGPIPE: "SIGPIPE", linux.SIGALRM: "SIGALRM", linux.SIGTERM: "SIGTERM", linux.SIGXCPU: "SIGXCPU",
	linux.SIGXFSZ: "SIGXFSZ", linux.SIGSYS: "SIGSYS",
}
