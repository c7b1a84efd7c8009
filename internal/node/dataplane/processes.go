package dataplane

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// maxProcesses bounds a list of processes. A sandbox has at most 65536 tasks, and
// some that have ended are kept besides.
const maxProcesses = 1 << 17

// processes lists, starts and controls processes.
type processes struct {
	base
	log *slog.Logger
}

// Processes lists what runs in a sandbox, and with all also what was started from
// outside and has ended.
func (p processes) Processes(ctx context.Context, ref string, all bool) ([]api.Process, error) {
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	list := []api.Process{}
	for page := (wire.Page{Ended: all}); ; {
		var reply wire.Processes
		err := p.call(ctx, b, &wire.Call{Op: wire.OpPS, Page: &page}, &reply, api.StateRunning, api.StatePaused)
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
	for _, x := range page.List {
		if x.PID < least {
			return wrong("its processes are not in the order of their ids")
		}
		least = x.PID
	}
	return nil
}

// Process looks at one process.
func (p processes) Process(ctx context.Context, ref string, pid int) (*api.Process, error) {
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return p.process(ctx, b, pid)
}

func (p processes) process(ctx context.Context, b Sandbox, pid int) (*api.Process, error) {
	x := &api.Process{}
	err := p.call(ctx, b, &wire.Call{Op: wire.OpProcess, Process: &wire.Process{PID: pid}}, x, api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// StartProcess starts a process that needs no caller.
func (p processes) StartProcess(ctx context.Context, ref string, req api.StartRequest) (_ *api.Process, err error) {
	ctx, ended := p.observe(ctx, "start")
	defer ended(&err)
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := req.Valid(); err != nil {
		return nil, err
	}
	command := commandOf(b, req)
	if err := b.MayRun(); err != nil {
		return nil, fmt.Errorf("start process: %w", err)
	}
	var started wire.Started
	if err := p.call(ctx, b, &wire.Call{Op: wire.OpStart, Exec: command}, &started, api.StateRunning); err != nil {
		return nil, err
	}
	b.Publish(api.EventStarted, api.Event{PID: started.PID})
	x, err := p.process(ctx, b, started.PID)
	if err != nil {
		// The process runs all the same, and its caller must learn its id.
		p.log.Warn("look at a process that was started", "id", b.ID(), "pid", started.PID, "error", err)
		x = &api.Process{
			PID: started.PID, Command: strings.Join(command.Argv, " "), StartedAt: time.Now().UTC(),
			Kept: &api.KeptProcess{Terminal: req.Terminal != nil, Stdin: req.Stdin},
		}
	}
	return x, nil
}

// SignalProcess sends a signal to any process in the sandbox.
func (p processes) SignalProcess(ctx context.Context, ref string, pid int, req api.SignalRequest) error {
	number, err := api.SignalNumber("signal", req.Signal)
	if err != nil {
		return err
	}
	call := &wire.Call{Op: wire.OpSignal, Signal: &wire.Signal{PID: pid, Number: number, Group: req.Group, Foreground: req.Foreground}}
	return p.callRef(ctx, ref, call, nil, api.StateRunning, api.StatePaused)
}

// ResizeProcess sets the size of a process's terminal.
func (p processes) ResizeProcess(ctx context.Context, ref string, pid int, size api.TerminalSize) error {
	call := &wire.Call{Op: wire.OpResize, Resize: &wire.Resize{PID: pid, Size: size}}
	return p.callRef(ctx, ref, call, nil, api.StateRunning, api.StatePaused)
}

// WriteProcess writes all of in to a process, and with end closes its standard
// input then. It blocks while the process does not read.
func (p processes) WriteProcess(ctx context.Context, ref string, pid int, in io.Reader, end bool) error {
	b, err := p.sandboxes.Find(ctx, ref) // once: the name may belong to another sandbox before the input ends
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
			if err := p.call(ctx, b, call, nil, api.StateRunning, api.StatePaused); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// WaitProcess waits for the end of a process that was started from outside.
func (p processes) WaitProcess(ctx context.Context, ref string, pid int) (*api.ExecResult, error) {
	var exited wire.Exited
	call := &wire.Call{Op: wire.OpWait, Process: &wire.Process{PID: pid}}
	if err := p.callRef(ctx, ref, call, &exited, api.StateRunning, api.StatePaused); err != nil {
		return nil, err
	}
	return exited.Result(), nil
}

// RemoveProcess kills a process that was started from outside, with its group, if
// it runs, and drops what it wrote.
func (p processes) RemoveProcess(ctx context.Context, ref string, pid int) error {
	call := &wire.Call{Op: wire.OpForget, Process: &wire.Process{PID: pid}}
	return p.callRef(ctx, ref, call, nil, api.StateRunning, api.StatePaused)
}

// Attach follows a process that was started from outside.
func (p processes) Attach(ctx context.Context, ref string, pid int, req api.AttachRequest, streams api.AttachIO) (*api.Position, error) {
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	// The use ends at once: a caller that only looks on does not use the sandbox.
	sentry, release, err := b.Acquire(ctx, api.StateRunning, api.StatePaused)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", err)
	}
	release()
	if streams.Stdin != nil {
		streams.Stdin = touchingReader{streams.Stdin, b}
	}
	attached, err := sentry.Attach(ctx, &wire.Attach{PID: pid, From: req.From, Follow: req.Follow}, streams)
	if err != nil {
		return nil, fmt.Errorf("attach: %w", b.Explain(sentry, err))
	}
	pos := &api.Position{NextSeq: attached.Next}
	if attached.Exited != nil {
		pos.Exit = attached.Exited.Result()
	}
	return pos, nil
}

// touchingReader records each input as a use of a sandbox.
type touchingReader struct {
	io.Reader
	b Sandbox
}

// Read implements io.Reader.
func (r touchingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if n > 0 {
		r.b.Touch()
	}
	return n, err
}
