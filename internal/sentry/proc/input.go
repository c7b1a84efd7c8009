package proc

import (
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/gate"
	"ramet.dev/ramet/internal/sentry/kern"
)

// Input writes to a process, and may end its input. It blocks while the process
// does not read, or another caller writes, until stop is closed.
func (ps *Processes) Input(req *wire.Input, stop <-chan struct{}) error {
	return ps.input(req, stop, true)
}

// Feed is Input for a caller that gets no answer: input that comes while the sandbox rests
// is there for the process if the sandbox goes on after all.
func (ps *Processes) Feed(req *wire.Input, stop <-chan struct{}) error {
	return ps.input(req, stop, false)
}

func (ps *Processes) input(req *wire.Input, stop <-chan struct{}, answered bool) error {
	p, err := ps.table.find(req.PID)
	if err != nil {
		return err
	}
	return p.write(req.Data, req.End, answered, stop)
}

func (p *process) write(data []byte, end, answered bool, stop <-chan struct{}) error {
	select {
	case p.input <- struct{}{}:
		defer func() { <-p.input }()
	case <-p.exited:
	case <-stop:
		return gate.ErrGone
	}
	select {
	case <-p.exited:
		return errEnded(p)
	default:
	}
	to := p.inputEnd()
	if *to == nil {
		return api.Errorf(api.CodeWrongState, "standard input of process %d is closed, or never was open", p.pid)
	}
	if len(data) > 0 {
		pm := p.table.newPump(*to, waiter.WritableEvents)
		pm.answered = answered
		err := pm.writeAll(p, data, stop)
		pm.listener.Close()
		if err != nil {
			return err
		}
		p.touch()
	}
	if end && to == &p.stdin { // the input of a terminal ends by a typed character only
		p.closeEnd(to)
	}
	return nil
}

// inputEnd returns the stream that p's input is written to. The caller holds p.input.
func (p *process) inputEnd() **vfs.FileDescription {
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	if p.tty {
		return &p.terminal
	}
	return &p.stdin
}

func errEnded(p *process) error {
	return api.Errorf(api.CodeWrongState, "process %d has ended", p.pid)
}

// feed moves in to the stdin of p until in is closed or p has exited. Data that come
// after the guest closed its end are discarded.
func (p *process) feed(in <-chan []byte) {
	open := true
	for {
		select {
		case <-p.exited:
			return
		case data, ok := <-in:
			if !ok {
				_ = p.write(nil, true, false, nil) // it may have ended
				return
			}
			open = open && p.write(data, false, false, nil) == nil
		}
	}
}

// writeAll writes all of data.
func (pm *pump) writeAll(p *process, data []byte, stop <-chan struct{}) error {
	for {
		n, err := pm.write(data)
		if data = data[n:]; len(data) == 0 {
			return nil
		}
		if err != nil && !kern.WouldBlock(err) {
			return api.Errorf(api.CodeWrongState, "write to process %d: %w", p.pid, err)
		}
		if err == nil {
			continue
		}
		select {
		case <-pm.wake.C:
		case <-p.exited:
			return errEnded(p)
		case <-stop:
			return gate.ErrGone
		}
	}
}
