package sentry

import (
	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/guest"
)

// process runs a call about the processes of a sandbox.
func (s *server) process(g *guest.Guest, c *wire.Conn, call *wire.Call) (any, error) {
	done := struct{}{}
	switch {
	case call.Op == wire.OpPS && call.Page != nil:
		return pageOf(g.Processes.List(call.Page.Ended), call.Page.After), nil
	case call.Op == wire.OpTrace:
		return wire.Trace{Text: g.Processes.Trace()}, nil
	case call.Op == wire.OpAttach:
		return s.attach(g, c, call.Attach)
	case call.Op == wire.OpStart && call.Exec != nil && len(call.Exec.Argv) > 0:
		return g.Processes.Start(call.Exec)
	case call.Op == wire.OpProcess && call.Process != nil:
		return g.Processes.Get(call.Process.PID)
	case call.Op == wire.OpWait && call.Process != nil:
		return untilGone(c, func(gone <-chan struct{}) (any, error) { return g.Processes.Wait(call.Process.PID, gone) })
	case call.Op == wire.OpInput && call.Input != nil:
		return untilGone(c, func(gone <-chan struct{}) (any, error) { return done, g.Processes.Input(call.Input, gone) })
	case call.Op == wire.OpSignal && call.Signal != nil:
		return done, g.Processes.Signal(call.Signal)
	case call.Op == wire.OpResize && call.Resize != nil:
		return done, g.Processes.Resize(call.Resize)
	case call.Op == wire.OpForget && call.Process != nil:
		return done, g.Processes.Forget(call.Process.PID)
	}
	return nil, errCall
}

// maxPage is about how many bytes of JSON a page of processes has, and maxEntry
// how many each process has besides its command.
const (
	maxPage  = 64 << 10
	maxEntry = 1 << 10
)

// pageOf returns as many of all, which are in order, as fit a packet, beginning
// behind a process id.
func pageOf(all []api.Process, after int) wire.Processes {
	page := wire.Processes{List: []api.Process{}}
	size := 0
	for _, p := range all {
		if p.PID <= after {
			continue
		}
		// A control character takes six bytes.
		if size += maxEntry + 6*len(p.Command); size > maxPage && len(page.List) > 0 {
			page.More = true
			break
		}
		page.List = append(page.List, p)
	}
	return page
}
