package guest

import (
	"gvisor.dev/gvisor/pkg/sentry/vfs"
	"gvisor.dev/gvisor/pkg/waiter"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// Input writes to a process, and may end its input. It blocks while the process
// does not read, or somebody else writes, until stop is closed.
func (g *Guest) Input(req *wire.Input, stop <-chan struct{}) error {
	return g.input(req, stop, true)
}

// Feed is Input for a caller who is not told what becomes of it: what comes while the
// sandbox rests is there for the process if it goes on after all.
func (g *Guest) Feed(req *wire.Input, stop <-chan struct{}) error {
	return g.input(req, stop, false)
}

func (g *Guest) input(req *wire.Input, stop <-chan struct{}, answered bool) error {
	p, err := g.table.find(req.PID)
	if err != nil {
		return err
	}
	return g.write(p, req.Data, req.End, answered, stop)
}

func (g *Guest) write(p *process, data []byte, end, answered bool, stop <-chan struct{}) error {
	select {
	case p.input <- struct{}{}:
		defer func() { <-p.input }()
	case <-p.exited:
	case <-stop:
		return errGone
	}
	select {
	case <-p.exited:
		return errEnded(p)
	default:
	}
	to := g.inputOf(p)
	if *to == nil {
		return api.Errorf(api.CodeWrongState, "standard input of process %d is closed, or never was open", p.pid)
	}
	if len(data) > 0 {
		pm := g.newPump(*to, waiter.WritableEvents)
		pm.answered = answered
		err := pm.writeAll(p, data, stop)
		pm.close()
		if err != nil {
			return err
		}
		p.touch()
	}
	if end && to == &p.stdin { // a terminal has no end of input but what is typed
		g.closeEnd(p, to)
	}
	return nil
}

// inputOf returns the end that p's input is written to. The caller holds p.input.
func (g *Guest) inputOf(p *process) **vfs.FileDescription {
	g.table.mu.Lock()
	defer g.table.mu.Unlock()
	if p.tty {
		return &p.terminal
	}
	return &p.stdin
}

func errEnded(p *process) error {
	return api.Errorf(api.CodeWrongState, "process %d has ended", p.pid)
}

var errGone = api.Errorf(api.CodeCanceled, "the caller went away")

// feed moves in to the stdin of p until in is closed or p has exited. What comes
// after the guest closed its end is discarded.
func (g *Guest) feed(p *process, in <-chan []byte) {
	open := true
	for {
		select {
		case <-p.exited:
			return
		case data, ok := <-in:
			if !ok {
				_ = g.write(p, nil, true, false, nil) // it may have ended
				return
			}
			open = open && g.write(p, data, false, false, nil) == nil
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
		if err != nil && !wouldBlock(err) {
			return api.Errorf(api.CodeWrongState, "write to process %d: %w", p.pid, err)
		}
		if err == nil {
			continue
		}
		select {
		case <-pm.wake.c:
		case <-p.exited:
			return errEnded(p)
		case <-stop:
			return errGone
		}
	}
}
