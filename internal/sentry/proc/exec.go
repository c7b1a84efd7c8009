package proc

import (
	"fmt"
	"io"
	"strings"
	gotime "time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/user"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/spawn"
	"ramet.dev/ramet/internal/sentry/stages"
)

// Processes starts and follows the processes of a sandbox for the host side.
type Processes struct {
	k        *kern.Kernel
	gate     *gate.Gate
	spawner  *spawn.Spawner
	table    *Table
	commands commands
	slow     slowStarts
}

// New returns the processes of a guest.
func New(k *kern.Kernel, g *gate.Gate, s *spawn.Spawner, t *Table) *Processes {
	return &Processes{k: k, gate: g, spawner: s, table: t}
}

// Exit codes of commands that could not be started, as shells give them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// ExecIO connects a command to its caller.
type ExecIO struct {
	Stdin          <-chan []byte // closed at end of input; nil if there is none
	Stdout, Stderr io.Writer
	Done           <-chan struct{} // closed when the caller went away
	// Canceled reports, when Done is closed, whether the caller will not come back.
	Canceled func() bool
}

// execKeep is how much output of a command with a caller is kept, in bytes. Output that
// the caller has not read is never dropped: the command waits.
const execKeep = 128 << 10

// Exec runs one command to its end. Output of processes that the command left
// behind is discarded after that, so that they never see a broken pipe.
func (ps *Processes) Exec(req *wire.Exec, xio ExecIO) (*wire.Exited, error) {
	began, st := gotime.Now(), stages.Begin()
	keep := int64(execKeep)
	if req.Key != "" {
		keep += resumeBlocks * blockSize
		if err := ps.commands.add(req.Key); err != nil {
			return nil, err
		}
	}
	p, out, err := ps.launch(req, keep, true)
	if err != nil {
		ps.commands.remove(req.Key)
		return startFailure(err, xio.Stderr, began)
	}
	st.Mark("start")
	if p.stdin != nil {
		go p.feed(xio.Stdin)
	}
	r := &foreground{key: req.Key, p: p, out: out, began: began}
	if req.Key != "" {
		out.hold(resumeBlocks)
	}
	exited, err := ps.follow(r, xio)
	if err != nil {
		return nil, err
	}
	st.Mark("run")
	exited.Timed = st.Timed()
	return exited, nil
}

// copyChunks copies the output of a command to its caller. It returns io.EOF at the
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

// startError says why a command of the caller cannot be started.
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
	return &wire.Exited{Code: se.code, DurationMS: stages.Millis(gotime.Since(began))}, nil
}

// launch creates and starts a process. With own, a reader that misses nothing is
// returned as well.
func (ps *Processes) launch(req *wire.Exec, keep int64, own bool) (*process, *reader, error) {
	defer ps.slow.watch(func() { ps.reportSlow(req) })()
	if err := ps.gate.EnterRunning(); err != nil {
		return nil, nil, err
	}
	defer ps.gate.Leave()
	if err := ps.table.makeRoom(); err != nil {
		return nil, nil, err
	}
	p, err := ps.create(req, keep)
	if err != nil {
		ps.table.giveUpRoom()
		return nil, nil, err
	}
	p.ready(ps.table)
	ps.table.add(p)
	var out *reader
	if own {
		out = p.out.newReader(0, true)
	}
	ps.k.StartProcess(p.tg)
	p.attend()
	return p, out, nil
}

// create makes a process that does not run yet.
func (ps *Processes) create(req *wire.Exec, keep int64) (*process, error) {
	ctx := ps.k.SupervisorContext()
	mns, err := ps.k.MountNamespace()
	if err != nil {
		return nil, err
	}
	defer mns.DecRef(ctx)
	args, err := ps.spawner.Args(ctx, mns, req)
	if err != nil {
		return nil, err
	}
	fds := ps.k.NewFDTable()
	defer fds.DecRef(ctx)
	args.FDTable = fds
	p := &process{
		command: commandLine(req.Argv), started: gotime.Now().UnixNano(), keep: keep, tty: req.Terminal != nil,
		left: req.TimeoutMS * int64(gotime.Millisecond), idle: req.IdleTimeoutMS * int64(gotime.Millisecond),
	}
	if p.tty {
		args.TTY, err = ps.openTerminal(ctx, mns, args.Credentials, fds, p, *req.Terminal)
	} else {
		var std spawn.Stdio
		err = ps.spawner.OpenStdio(ctx, args, req.Stdin, &std)
		p.stdin, p.stdout, p.stderr = std.Stdin, std.Stdout, std.Stderr
	}
	if err != nil {
		p.closeStreams(ctx)
		return nil, err
	}
	if args.Filename, err = user.ResolveExecutablePath(args.NewContext(ps.k.Kernel), args); err != nil {
		p.closeStreams(ctx)
		return nil, &startError{exitNotFound, fmt.Sprintf("%s: command not found", req.Argv[0])}
	}
	switch mode, err := ps.k.ModeOf(ctx, mns, args.Filename); {
	case linuxerr.Equals(linuxerr.ENOENT, err):
		p.closeStreams(ctx)
		return nil, &startError{exitNotFound, fmt.Sprintf("%s: no such file", req.Argv[0])}
	case err == nil && mode.FileType() != linux.ModeRegular: // opening a fifo would wait for a writer
		p.closeStreams(ctx)
		return nil, &startError{exitNotExecutable, fmt.Sprintf("%s: it is not a regular file", req.Argv[0])}
	}
	mns.IncRef() // taken over by CreateProcess
	tg, pid, err := ps.k.CreateProcess(*args)
	if err != nil {
		p.closeStreams(ctx)
		if most := ps.spawner.Identity.Limits.Pids; most > 0 && err.Error() == linuxerr.EAGAIN.Error() {
			return nil, api.Errorf(api.CodeLimit, "the sandbox has as many processes as its limit allows, %d", most)
		}
		return nil, &startError{exitNotExecutable, req.Argv[0] + ": " + spawn.LoadFailure(args.Filename, err)}
	}
	p.tg, p.pid = tg, int32(pid)
	return p, nil
}

// commandLine returns argv as it is shown.
func commandLine(argv []string) string {
	line := strings.Join(argv, " ")
	return strings.ToValidUTF8(line[:min(len(line), kern.MaxCommand)], "\uFFFD")
}
