package guest

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
)

const (
	// startPatience is how long an interpreter may take to start.
	startPatience = 60 * gotime.Second
	// startOutput is how much is told of what one says that does not start, in bytes.
	startOutput = 4 << 10
	// maxHello bounds the first answer, and one that says how an interpreter rests, in
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
func (g *Guest) started(c *codeContext) (*interpreter, error) {
	old := g.interpreterOf(c)
	if old != nil && !old.isOver() {
		return old, old.awaitReady(&g.table.clock)
	}
	what := &limitedBuffer{max: startOutput}
	first := newRun(RunIO{Output: func(_ wire.Stream, data []byte) error { _, err := what.Write(data); return err }})
	in, err := g.startInterpreter(c, first)
	if err != nil {
		return nil, err
	}
	go g.flush(in)
	if err := in.awaitReady(&g.table.clock); err != nil {
		g.killInterpreter(in)
		in.awaitEnd()
		g.setInterpreter(c, old)
		return nil, api.Errorf(api.CodeUnsupported, "the %s interpreter %w: exit code %d%s", c.language, err, exitedOf(linux.WaitStatus(in.status)).Code, because(what.String()))
	}
	in.leave(first)
	c.unseeded, c.seeding = false, nil
	if old != nil {
		g.io.RLock()
		g.contexts.mu.Lock()
		c.restarts++
		g.contexts.mu.Unlock()
		g.io.RUnlock()
	}
	return in, nil
}

// startInterpreter makes the process of an interpreter and starts it. A save finds
// all of it or nothing.
func (g *Guest) startInterpreter(c *codeContext, first *run) (*interpreter, error) {
	g.ops.RLock()
	defer g.ops.RUnlock()
	if g.paused {
		return nil, errPaused
	}
	g.contexts.mu.Lock()
	ended := c.ended
	g.contexts.mu.Unlock()
	if ended {
		return nil, api.NotFound("context", c.name)
	}
	in, err := g.launchInterpreter(c)
	if err != nil {
		return nil, err
	}
	in.current = first
	g.setInterpreter(c, in)
	g.k.StartProcess(in.tg)
	g.attendInterpreter(in)
	g.contexts.mu.Lock()
	ended = c.ended
	g.contexts.mu.Unlock()
	if ended { // meanwhile
		g.killInterpreter(in)
	}
	return in, nil
}

func (g *Guest) setInterpreter(c *codeContext, in *interpreter) {
	g.io.RLock()
	defer g.io.RUnlock()
	g.contexts.mu.Lock()
	defer g.contexts.mu.Unlock()
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
func (in *interpreter) awaitReady(clock *awake) error {
	late := clock.after(startPatience)
	defer late.stop()
	select {
	case <-in.said:
		return nil
	case <-in.done:
		return fmt.Errorf("did not start")
	case <-late.over:
		return fmt.Errorf("did not start within %v", startPatience)
	}
}

// launchInterpreter makes the process of an interpreter, which does not run yet.
func (g *Guest) launchInterpreter(c *codeContext) (*interpreter, error) {
	program, ok := interp.ProgramOf(interp.Language(c.language))
	if !ok {
		return nil, api.Invalid("language", "%q is not python, node or bash", c.language)
	}
	ctx := g.rootContext()
	mns, err := g.mountNamespace()
	if err != nil {
		return nil, err
	}
	defer mns.DecRef(ctx)
	args, err := g.processArgs(ctx, mns, &wire.Exec{Env: c.env, Cwd: c.cwd, User: c.user})
	if err != nil {
		return nil, err
	}
	fds := g.k.NewFDTable()
	defer fds.DecRef(ctx)
	args.FDTable = fds
	in := &interpreter{}
	in.prepare()
	streams := &process{}
	err = g.openStdio(ctx, mns, fds, false, streams)
	in.stdout, in.stderr = streams.stdout, streams.stderr
	if err == nil {
		err = g.openControl(in, fds)
	}
	if err == nil {
		err = g.findInterpreter(args, program.Names)
	}
	if err != nil {
		g.closePipes(in)
		return nil, err
	}
	args.Argv = append([]string{args.Argv[0]}, program.Args...)
	mns.IncRef() // taken over by CreateProcess
	tg, pid, err := g.k.CreateProcess(*args)
	if err != nil {
		g.closePipes(in)
		return nil, api.Errorf(api.CodeUnsupported, "%s: %w", args.Filename, err)
	}
	in.tg, in.pid, in.unsent = tg, int32(pid), program.Text
	return in, nil
}

// findInterpreter sets the file of the first of names that there is.
func (g *Guest) findInterpreter(args *kernel.CreateProcessArgs, names []string) error {
	for _, name := range names {
		args.Argv = []string{name}
		path, err := user.ResolveExecutablePath(args.NewContext(g.k), args)
		if err != nil {
			continue
		}
		if _, err := g.modeOf(g.rootContext(), args.MountNamespace, path); linuxerr.Equals(linuxerr.ENOENT, err) {
			continue
		}
		args.Filename = path
		return nil
	}
	return api.Errorf(api.CodeUnsupported, "the sandbox has no %s: its image needs the interpreter", strings.Join(names, " or "))
}

// openControl makes the pipes of requests and answers.
func (g *Guest) openControl(in *interpreter, fds *kernel.FDTable) error {
	ctx := g.rootContext()
	r, w, err := pipefs.NewConnectedPipeFDs(ctx, g.k.PipeMount(), 0)
	if err != nil {
		return fmt.Errorf("create pipe of requests: %w", err)
	}
	in.requests = w
	if err := place(ctx, fds, requestsFD, r); err != nil {
		return fmt.Errorf("create pipe of requests: %w", err)
	}
	if r, w, err = pipefs.NewConnectedPipeFDs(ctx, g.k.PipeMount(), 0); err != nil {
		return fmt.Errorf("create pipe of answers: %w", err)
	}
	in.answers = r
	if err := place(ctx, fds, answersFD, w); err != nil {
		return fmt.Errorf("create pipe of answers: %w", err)
	}
	return nil
}

// closePipes gives up the sentry's ends. Nobody uses them any more.
func (g *Guest) closePipes(in *interpreter) {
	ctx := g.rootContext()
	for _, f := range []**vfs.FileDescription{&in.requests, &in.answers, &in.stdout, &in.stderr} {
		if *f != nil {
			(*f).DecRef(ctx)
			*f = nil
		}
	}
}

// attendInterpreter takes care of an interpreter until it is over: one that was not
// started yet would be. The goroutines end with the process.
func (g *Guest) attendInterpreter(in *interpreter) {
	go func() {
		in.tg.WaitExited()
		close(in.exited)
	}()
	go g.serveInterpreter(in)
}

// noteLocked remembers what an answer says about the interpreter.
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
func (g *Guest) finish(in *interpreter) {
	in.writing.Lock()
	defer in.writing.Unlock()
	g.io.RLock()
	defer g.io.RUnlock()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.status, in.over, in.busy, in.unsent, in.tg = uint32(in.tg.ExitStatus()), true, 0, nil, nil
	g.closePipes(in)
	if in.current != nil {
		in.current.died = exitedOf(linux.WaitStatus(in.status))
		close(in.current.done)
		in.current = nil
	}
}

// awaitEnd waits until an interpreter that was killed is over. Callers who do not
// read what it has written are cut off.
func (in *interpreter) awaitEnd() {
	for {
		select {
		case <-in.done:
			return
		case <-gotime.After(interruptPatience):
		}
		in.mu.Lock()
		if in.current != nil && in.current.unreadFor() > 0 {
			in.current.cut() // while it is the current one: its caller gets an answer later
		}
		in.mu.Unlock()
	}
}

func exitedOf(ws linux.WaitStatus) *wire.Exited {
	if ws.Signaled() {
		return &wire.Exited{Code: 128 + int(ws.TerminationSignal()), Signal: signalName(ws.TerminationSignal())}
	}
	return &wire.Exited{Code: int(ws.ExitStatus())}
}

// flush writes what is left of a request. It ends when all is written or the
// interpreter has exited.
func (g *Guest) flush(in *interpreter) {
	in.writing.Lock()
	defer in.writing.Unlock()
	wake := newAlarm()
	in.mu.Lock()
	file := in.requests
	in.mu.Unlock()
	if file == nil {
		return
	}
	p := g.listen(file, waiter.WritableEvents, wake)
	defer p.close()
	for {
		left, err := g.flushOnce(in)
		if left == 0 || err != nil && !wouldBlock(err) {
			return
		}
		if err == nil {
			continue
		}
		select {
		case <-wake.c:
		case <-in.exited:
			return
		}
	}
}

func (g *Guest) flushOnce(in *interpreter) (left int, err error) {
	g.io.RLock()
	defer g.io.RUnlock()
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.requests == nil || len(in.unsent) == 0 {
		return 0, nil
	}
	n, err := in.requests.Write(g.rootContext(), usermem.BytesIOSequence(in.unsent), vfs.WriteOptions{})
	if in.unsent = in.unsent[n:]; len(in.unsent) == 0 {
		in.unsent = nil
	}
	return len(in.unsent), err
}

// killInterpreter kills an interpreter and its process group, if it runs.
func (g *Guest) killInterpreter(in *interpreter) { g.signalInterpreter(in, linux.SIGKILL) }

func (g *Guest) signalInterpreter(in *interpreter, sig linux.Signal) {
	in.mu.Lock()
	tg := in.tg
	in.mu.Unlock()
	if tg == nil {
		return
	}
	info := &linux.SignalInfo{Signo: int32(sig)}
	// Errors mean that the processes are gone already.
	if pg := tg.ProcessGroup(); pg != nil {
		_ = g.k.SendExternalSignalProcessGroup(pg, info)
		return
	}
	_ = g.k.SendExternalSignalThreadGroup(tg, info)
}
