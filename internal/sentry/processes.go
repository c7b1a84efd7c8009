package sentry

import (
	"ramet.dev/ramet/internal/sentry/guest"
	"ramet.dev/ramet/internal/wire"
)

// process runs one call that concerns the processes of a sandbox.
func (s *server) process(g *guest.Guest, c *wire.Conn, call *wire.Call) (any, error) {
	done := struct{}{}
	switch {
	case call.Op == wire.OpPS:
		return g.Processes(call.Process != nil), nil
	case call.Op == wire.OpAttach:
		return s.attach(g, c, call.Attach)
	case call.Op == wire.OpStart && call.Exec != nil && len(call.Exec.Argv) > 0:
		return g.Start(call.Exec)
	case call.Op == wire.OpProcess && call.Process != nil:
		return g.Process(call.Process.PID)
	case call.Op == wire.OpWait && call.Process != nil:
		return untilGone(c, func(gone <-chan struct{}) (any, error) { return g.Wait(call.Process.PID, gone) })
	case call.Op == wire.OpInput && call.Input != nil:
		return untilGone(c, func(gone <-chan struct{}) (any, error) { return done, g.Input(call.Input, gone) })
	case call.Op == wire.OpSignal && call.Signal != nil:
		return done, g.Signal(call.Signal)
	case call.Op == wire.OpResize && call.Resize != nil:
		return done, g.Resize(call.Resize)
	case call.Op == wire.OpForget && call.Process != nil:
		return done, g.Forget(call.Process.PID)
	}
	return nil, errCall
}
