package node

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/service"
)

// maxProcesses bounds a list of processes. A sandbox has at most 65536 tasks, and
// some that have ended are kept besides.
const maxProcesses = 1 << 17

// Processes lists what runs in a sandbox, and with all also what was started from
// outside and has ended.
func (m *Node) Processes(ctx context.Context, ref string, all bool) ([]api.Process, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	list := []api.Process{}
	for page := (wire.Page{Ended: all}); ; {
		var reply wire.Processes
		err := m.call(ctx, b, &wire.Call{Op: wire.OpPS, Page: &page}, &reply, api.StateRunning, api.StatePaused)
		if err != nil {
			return nil, err
		}
		list = append(list, reply.List...)
		if err := checkPage(&reply, page.After, len(list)); err != nil {
			return nil, fmt.Errorf("list processes: %w", err)
		}
		if !reply.More {
			return list, nil
		}
		page.After = reply.List[len(reply.List)-1].PID
	}
}

// checkPage refuses a page that does not go on after a process id, or with which
// there are too many processes: a sentry that was taken over could answer for ever.
// One id may be there twice, of a process that has ended and of one that runs.
func checkPage(page *wire.Processes, after, total int) error {
	wrong := func(format string, args ...any) error {
		return api.Errorf(api.CodeCorrupt, "the sandbox's sentry answered wrongly: "+format, args...)
	}
	if total > maxProcesses {
		return wrong("it has more than %d processes", maxProcesses)
	}
	if page.More && len(page.List) == 0 {
		return wrong("a page of processes is empty and not the last one")
	}
	least := after + 1
	for _, p := range page.List {
		if p.PID < least {
			return wrong("its processes are not in the order of their ids")
		}
		least = p.PID
	}
	return nil
}

// Process looks at one process.
func (m *Node) Process(ctx context.Context, ref string, pid int) (*api.Process, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	return m.process(ctx, b, pid)
}

func (m *Node) process(ctx context.Context, b *instance, pid int) (*api.Process, error) {
	p := &api.Process{}
	err := m.call(ctx, b, &wire.Call{Op: wire.OpProcess, Process: &wire.Process{PID: pid}}, p, api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// StartProcess starts a process that needs no caller.
func (m *Node) StartProcess(ctx context.Context, ref string, req api.StartRequest) (_ *api.Process, err error) {
	ctx, ended := m.observe(ctx, "start")
	defer ended(&err)
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	command, err := b.command(req)
	if err != nil {
		return nil, err
	}
	if req.Terminal != nil && req.Stdin {
		return nil, api.Invalid("stdin", "a terminal is the standard input already")
	}
	if err := m.mayRun(b); err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	var started wire.Started
	if err := m.call(ctx, b, &wire.Call{Op: wire.OpStart, Exec: command}, &started, api.StateRunning); err != nil {
		return nil, err
	}
	m.tellOf(api.EventStarted, b, api.Event{PID: started.PID})
	p, err := m.process(ctx, b, started.PID)
	if err != nil {
		// It runs all the same, and who started it must learn its id.
		m.log.Warn("look at a process that was started", "id", b.id, "pid", started.PID, "error", err)
		p = &api.Process{
			PID: started.PID, Command: strings.Join(command.Argv, " "), StartedAt: time.Now().UTC(),
			Kept: &api.KeptProcess{Terminal: req.Terminal != nil, Stdin: req.Stdin},
		}
	}
	return p, nil
}

// SignalProcess sends a signal to any process in the sandbox.
func (m *Node) SignalProcess(ctx context.Context, ref string, pid int, req api.SignalRequest) error {
	number, err := signalNumber(req.Signal)
	if err != nil {
		return err
	}
	call := &wire.Call{Op: wire.OpSignal, Signal: &wire.Signal{PID: pid, Number: number, Group: req.Group, Foreground: req.Foreground}}
	return m.onProcesses(ctx, ref, call, nil, api.StateRunning, api.StatePaused)
}

func signalNumber(name string) (int, error) {
	if n, err := strconv.Atoi(name); err == nil {
		return n, nil
	}
	upper := strings.ToUpper(name)
	if n := unix.SignalNum("SIG" + strings.TrimPrefix(upper, "SIG")); n != 0 {
		return int(n), nil
	}
	return 0, api.Invalid("signal", "%q is not the name or number of a signal, such as TERM, SIGINT or 9", name)
}

// ResizeProcess sets the size of a process's terminal.
func (m *Node) ResizeProcess(ctx context.Context, ref string, pid int, size api.TerminalSize) error {
	call := &wire.Call{Op: wire.OpResize, Resize: &wire.Resize{PID: pid, Size: size}}
	return m.onProcesses(ctx, ref, call, nil, api.StateRunning, api.StatePaused)
}

// WriteProcess writes all of in to a process, and with end closes its standard
// input then. It blocks while the process does not read.
func (m *Node) WriteProcess(ctx context.Context, ref string, pid int, in io.Reader, end bool) error {
	b, err := m.resolve(ctx, ref) // once: the name may be another's before the input ends
	if err != nil {
		return err
	}
	buf := make([]byte, wire.MaxChunk)
	for {
		n, err := io.ReadFull(in, buf)
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err != nil && !last {
			return fmt.Errorf("read input: %w", err)
		}
		if n > 0 || last {
			call := &wire.Call{Op: wire.OpInput, Input: &wire.Input{PID: pid, Data: buf[:n], End: last && end}}
			if err := m.call(ctx, b, call, nil, api.StateRunning, api.StatePaused); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// WaitProcess waits for the end of a process that was started from outside.
func (m *Node) WaitProcess(ctx context.Context, ref string, pid int) (*api.ExecResult, error) {
	var exited wire.Exited
	call := &wire.Call{Op: wire.OpWait, Process: &wire.Process{PID: pid}}
	if err := m.onProcesses(ctx, ref, call, &exited, api.StateRunning, api.StatePaused); err != nil {
		return nil, err
	}
	return exited.Result(), nil
}

// RemoveProcess kills a process that was started from outside, with its group, if
// it runs, and drops what it wrote.
func (m *Node) RemoveProcess(ctx context.Context, ref string, pid int) error {
	call := &wire.Call{Op: wire.OpForget, Process: &wire.Process{PID: pid}}
	return m.onProcesses(ctx, ref, call, nil, api.StateRunning, api.StatePaused)
}

// Attach follows a process that was started from outside.
func (m *Node) Attach(ctx context.Context, ref string, pid int, req api.AttachRequest, streams service.AttachIO) (*api.Position, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	// Not to its end: who only looks does not use the sandbox.
	sentry, done, err := m.use(ctx, b, api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	done()
	if streams.Stdin != nil {
		streams.Stdin = activeReader{streams.Stdin, m, b}
	}
	attached, err := sentry.Attach(ctx, &wire.Attach{PID: pid, From: req.From, Follow: req.Follow}, launch.AttachIO{
		Stdin: streams.Stdin, Sizes: streams.Sizes,
		Output: func(c wire.Chunk) error {
			return streams.Output(api.Chunk{
				Stderr: c.Stream == wire.Stderr, Seq: c.Seq, Time: time.Unix(0, c.Time), Data: c.Data, Lost: c.Lost,
			})
		},
	})
	if err != nil {
		return nil, fmt.Errorf("attach: %w", m.explain(b, sentry, err))
	}
	pos := &api.Position{NextSeq: attached.Next}
	if attached.Exited != nil {
		pos.Exit = attached.Exited.Result()
	}
	return pos, nil
}

// onProcesses is call for a reference.
func (m *Node) onProcesses(ctx context.Context, ref string, call *wire.Call, out any, states ...api.State) error {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return err
	}
	return m.call(ctx, b, call, out, states...)
}

// call makes one call to the sentry of a sandbox in one of states. It is a use of the
// sandbox, unless it only looks at it.
func (m *Node) call(ctx context.Context, b *instance, call *wire.Call, out any, states ...api.State) error {
	sentry, done, err := m.callee(ctx, b, call.Op, states)
	if err != nil {
		return inOp(call.Op, err)
	}
	defer done()
	if _, err := sentry.Call(ctx, call, out); err != nil {
		return inOp(call.Op, m.explain(b, sentry, err))
	}
	return nil
}

// inOp says what was being done. That something was looked at, users know.
func inOp(op wire.Op, err error) error {
	if looks(op) {
		return err
	}
	return fmt.Errorf("%s: %w", op, err)
}

// looks reports whether a call only looks at a sandbox.
func looks(op wire.Op) bool {
	return op == wire.OpPS || op == wire.OpProcess || op == wire.OpContexts
}

// callee returns the sentry of b for a call, and what to call when that is over.
func (m *Node) callee(ctx context.Context, b *instance, op wire.Op, states []api.State) (*launch.Sentry, func(), error) {
	if looks(op) {
		if err := b.made(ctx); err != nil {
			return nil, nil, err
		}
		sentry, err := b.running(states...)
		return sentry, func() {}, err
	}
	return m.use(ctx, b, states...)
}
