package codectx

import (
	"fmt"
	"strings"
	gotime "time"

	"gvisor.dev/gvisor/pkg/abi/linux"
	"gvisor.dev/gvisor/pkg/errors/linuxerr"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/pipefs"
	"gvisor.dev/gvisor/pkg/sentry/fsimpl/user"
	"gvisor.dev/gvisor/pkg/sentry/kernel"
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/usermem"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
	"ramet.dev/ramet/internal/sentry/spawn"
)

const (
	// startTimeout is how long an interpreter may take to start.
	startTimeout = 60 * gotime.Second
	// startOutput is how much output of an interpreter that does not start is reported, in
	// bytes.
	startOutput = 4 << 10
	// maxHello bounds the first answer, and an answer about signals and generators, in
	// bytes.
	maxHello = 4 << 10
)

// The descriptors at which an interpreter finds its pipes, see package interp.
const (
	requestsFD = 3
	answersFD  = 4
)

// started returns the interpreter of a context, after it was started if there is
// none. The caller has the turn.
func (cs *Contexts) started(c *codeContext) (*interpreter, error) {
	old := cs.interpreterOf(c)
	if old != nil && !old.isOver() {
		return old, old.awaitReady(&cs.gate.Clock)
	}
	var said []byte // of the goroutine that reads from the interpreter, until it is over
	first := newRun(RunIO{Output: func(_ wire.Stream, data []byte) error {
		said = append(said, data[:min(len(data), startOutput-len(said))]...)
		return nil
	}})
	in, err := cs.startInterpreter(c, first)
	if err != nil {
		return nil, err
	}
	go in.flush()
	if err := in.awaitReady(&cs.gate.Clock); err != nil {
		in.kill()
		in.awaitEnd()
		cs.setInterpreter(c, old)
		return nil, api.Errorf(api.CodeUnsupported, "the %s interpreter %w: exit code %d%s", c.language, err, exited(linux.WaitStatus(in.status)).Code, because(string(said)))
	}
	in.leave(first)
	c.unseeded, c.seeding = false, nil
	if old != nil {
		cs.gate.BeginIO()
		cs.mu.Lock()
		c.restarts++
		cs.mu.Unlock()
		cs.gate.EndIO()
	}
	return in, nil
}

// startInterpreter makes the process of an interpreter and starts it. A save finds
// all of it or nothing.
func (cs *Contexts) startInterpreter(c *codeContext, first *run) (*interpreter, error) {
	if err := cs.gate.EnterRunning(); err != nil {
		return nil, err
	}
	defer cs.gate.Leave()
	cs.mu.Lock()
	ended := c.ended
	cs.mu.Unlock()
	if ended {
		return nil, api.NotFound("context", c.name)
	}
	in, err := cs.launchInterpreter(c)
	if err != nil {
		return nil, err
	}
	in.current = first
	cs.setInterpreter(c, in)
	cs.k.StartProcess(in.tg)
	in.attend()
	cs.mu.Lock()
	ended = c.ended
	cs.mu.Unlock()
	if ended { // meanwhile
		in.kill()
	}
	return in, nil
}

func (cs *Contexts) setInterpreter(c *codeContext, in *interpreter) {
	cs.gate.BeginIO()
	defer cs.gate.EndIO()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.in = in
}

func because(said string) string {
	if said = strings.TrimSpace(said); said == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(said, "\uFFFD")
}

func (in *interpreter) isOver() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.over
}

// awaitReady waits until the interpreter has said that it runs.
func (in *interpreter) awaitReady(clock *gate.Clock) error {
	late := clock.After(startTimeout)
	defer late.Stop()
	select {
	case <-in.said:
		return nil
	case <-in.done:
		return fmt.Errorf("did not start")
	case <-late.C:
		return fmt.Errorf("did not start within %v", startTimeout)
	}
}

// launchInterpreter makes the process of an interpreter, which does not run yet.
func (cs *Contexts) launchInterpreter(c *codeContext) (*interpreter, error) {
	program, ok := interp.ProgramOf(interp.Language(c.language))
	if !ok {
		return nil, api.Invalid("language", "%q is not python, node or bash", c.language)
	}
	ctx := cs.k.SupervisorContext()
	mns, err := cs.k.MountNamespace()
	if err != nil {
		return nil, err
	}
	defer mns.DecRef(ctx)
	args, err := cs.spawner.Args(ctx, mns, &wire.Exec{Env: c.env, Cwd: c.cwd, User: c.user})
	if err != nil {
		return nil, err
	}
	fds := cs.k.NewFDTable()
	defer fds.DecRef(ctx)
	args.FDTable = fds
	in := &interpreter{}
	in.prepare(cs.k, cs.gate)
	var std spawn.Stdio
	err = cs.spawner.OpenStdio(ctx, args, false, &std)
	in.stdout, in.stderr = std.Stdout, std.Stderr
	if err == nil {
		err = in.openControl(fds)
	}
	if err == nil {
		err = cs.findInterpreter(args, program.Names)
	}
	if err != nil {
		in.closePipes()
		return nil, err
	}
	args.Argv = append([]string{args.Argv[0]}, program.Args...)
	mns.IncRef() // taken over by CreateProcess
	tg, pid, err := cs.k.CreateProcess(*args)
	if err != nil {
		in.closePipes()
		return nil, api.Errorf(api.CodeUnsupported, "%s: %w", args.Filename, err)
	}
	in.tg, in.pid, in.unsent = tg, int32(pid), program.Text
	return in, nil
}

// findInterpreter sets the file of the first of names that there is.
func (cs *Contexts) findInterpreter(args *kernel.CreateProcessArgs, names []string) error {
	for _, name := range names {
		args.Argv = []string{name}
		path, err := user.ResolveExecutablePath(args.NewContext(cs.k.Kernel), args)
		if err != nil {
			continue
		}
		if _, err := cs.k.ModeOf(cs.k.SupervisorContext(), args.MountNamespace, path); linuxerr.Equals(linuxerr.ENOENT, err) {
			continue
		}
		args.Filename = path
		return nil
	}
	return api.Errorf(api.CodeUnsupported, "the sandbox has no %s: its image needs the interpreter", strings.Join(names, " or "))
}

// openControl makes the pipes of requests and answers.
func (in *interpreter) openControl(fds *kernel.FDTable) error {
	ctx := in.k.SupervisorContext()
	r, w, err := pipefs.NewConnectedPipeFDs(ctx, in.k.PipeMount(), 0)
	if err != nil {
		return fmt.Errorf("create pipe of requests: %w", err)
	}
	in.requests = w
	if err := spawn.Place(ctx, fds, requestsFD, r); err != nil {
		return fmt.Errorf("create pipe of requests: %w", err)
	}
	if r, w, err = pipefs.NewConnectedPipeFDs(ctx, in.k.PipeMount(), 0); err != nil {
		return fmt.Errorf("create pipe of answers: %w", err)
	}
	in.answers = r
	if err := spawn.Place(ctx, fds, answersFD, w); err != nil {
		return fmt.Errorf("create pipe of answers: %w", err)
	}
	return nil
}

// closePipes closes the sentry's ends, which are not used any more.
func (in *interpreter) closePipes() {
	ctx := in.k.SupervisorContext()
	for _, f := range []**vfs.FileDescription{&in.requests, &in.answers, &in.stdout, &in.stderr} {
		if *f != nil {
			(*f).DecRef(ctx)
			*f = nil
		}
	}
}

// attend takes care of an interpreter until it is over: one that was not
// started yet would be. The goroutines end with the process.
func (in *interpreter) attend() {
	go func() {
		in.tg.WaitExited()
		close(in.exited)
	}()
	go in.serve()
}

// noteLocked notes what an answer says about the interpreter.
func (in *interpreter) noteLocked(p interp.Part) error {
	switch {
	case p.Kind == interp.KindDone && p.Last && p.Run == in.busy:
		in.busy = 0
	case p.Kind == interp.KindHello && !in.ready:
		return gather(&in.hello, p, interp.ParseHello, func(h interp.Hello) {
			in.version, in.ready = h.Version, true
			close(in.said)
		})
	case p.Kind == interp.KindRest:
		return gather(&in.rest, p, interp.ParseRest, func(r interp.Rest) {
			in.calm, in.generators = !r.Handled, r.Generators
		})
	}
	return nil
}

// gather adds a part of an answer to what was read of it, and notes what the answer
// says when it is whole.
func gather[T any](read *[]byte, p interp.Part, parse func([]byte) (T, error), note func(T)) error {
	if *read = append(*read, p.Data...); len(*read) > maxHello {
		return interp.ErrFrame
	}
	if !p.Last {
		return nil
	}
	said, err := parse(*read)
	if err != nil {
		return err
	}
	*read = nil
	note(said)
	return nil
}

// leave takes a run from the interpreter.
func (in *interpreter) leave(r *run) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.current == r {
		in.current = nil
	}
}

// finish notes how an interpreter ended, and tells the run that it has.
func (in *interpreter) finish() {
	in.writing.Lock()
	defer in.writing.Unlock()
	in.gate.BeginIO()
	defer in.gate.EndIO()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.status, in.over, in.busy, in.unsent, in.tg = uint32(in.tg.ExitStatus()), true, 0, nil, nil
	in.closePipes()
	if in.current != nil {
		in.current.died = exited(linux.WaitStatus(in.status))
		close(in.current.done)
		in.current = nil
	}
}

// awaitEnd waits until an interpreter that was killed is over. A caller that does not read
// the rest of the output is cut off.
func (in *interpreter) awaitEnd() {
	for {
		select {
		case <-in.done:
			return
		case <-gotime.After(interruptTimeout):
		}
		in.mu.Lock()
		if in.current != nil && in.current.unreadFor() > 0 {
			in.current.cut() // while it is the current one: its caller gets an answer later
		}
		in.mu.Unlock()
	}
}

func exited(ws linux.WaitStatus) *wire.Exited {
	x := &wire.Exited{}
	x.Code, x.Signal = kern.ExitOf(ws)
	return x
}

// flush writes what is left of a request. It ends when all is written or the
// interpreter has exited.
func (in *interpreter) flush() {
	in.writing.Lock()
	defer in.writing.Unlock()
	wake := gate.NewNotifier()
	in.mu.Lock()
	file := in.requests
	in.mu.Unlock()
	if file == nil {
		return
	}
	var l gate.Listener
	l.Listen(in.gate, file, waiter.WritableEvents, wake)
	defer l.Close()
	for {
		left, err := in.flushOnce()
		if left == 0 || err != nil && !kern.WouldBlock(err) {
			return
		}
		if err == nil {
			continue
		}
		select {
		case <-wake.C:
		case <-in.exited:
			return
		}
	}
}

func (in *interpreter) flushOnce() (left int, err error) {
	in.gate.BeginIO()
	defer in.gate.EndIO()
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.requests == nil || len(in.unsent) == 0 {
		return 0, nil
	}
	n, err := in.requests.Write(in.k.SupervisorContext(), usermem.BytesIOSequence(in.unsent), vfs.WriteOptions{})
	if in.unsent = in.unsent[n:]; len(in.unsent) == 0 {
		in.unsent = nil
	}
	return len(in.unsent), err
}

// kill kills an interpreter and its process group, if it runs.
func (in *interpreter) kill() { in.signal(linux.SIGKILL) }

func (in *interpreter) signal(sig linux.Signal) {
	in.mu.Lock()
	tg := in.tg
	in.mu.Unlock()
	if tg == nil {
		return
	}
	info := &linux.SignalInfo{Signo: int32(sig)}
	// Errors mean that the processes are gone already.
	if pg := tg.ProcessGroup(); pg != nil {
		_ = in.k.SendExternalSignalProcessGroup(pg, info)
		return
	}
	_ = in.k.SendExternalSignalThreadGroup(tg, info)
}
