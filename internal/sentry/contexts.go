package sentry

import (
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/sentry/codectx"
	"ramet.dev/ramet/internal/sentry/guest"
)

// context runs a call about the interpreters of a sandbox.
func (s *server) context(g *guest.Guest, c *wire.Conn, call *wire.Call) (any, error) {
	switch {
	case call.Op == wire.OpContexts:
		return g.Contexts.List(), nil
	case call.Op == wire.OpRun && call.Run != nil:
		return runCode(g, c, call.Run)
	case call.Op != wire.OpContext || call.Context == nil:
		return nil, errCall
	}
	req := call.Context
	switch req.Action {
	case wire.ContextMake:
		return untilGone(c, func(gone <-chan struct{}) (any, error) { return g.Contexts.Make(req, gone) })
	case wire.ContextRestart:
		return untilGone(c, func(gone <-chan struct{}) (any, error) { return g.Contexts.Restart(req.Name, gone) })
	case wire.ContextInterrupt:
		return g.Contexts.Interrupt(req.Name)
	case wire.ContextEnd:
		return struct{}{}, g.Contexts.End(req.Name)
	}
	return nil, errCall
}

// runCode has an interpreter run the code that comes in packets of c.
func runCode(g *guest.Guest, c *wire.Conn, req *wire.Run) (any, error) {
	in := newInput(c)
	go in.receive(true, nil)
	defer in.stop()
	payload, err := in.all(interp.MaxCode)
	if err != nil {
		return nil, err
	}
	var packet []byte
	ran, err := g.Contexts.Run(req, payload, codectx.RunIO{
		Gone: in.gone,
		Cut:  func() { _ = c.SetWriteDeadline(time.Unix(1, 0)) }, // it is closed, else
		Output: func(stream wire.Stream, data []byte) error {
			t := wire.TypeStdout
			if stream == wire.Stderr {
				t = wire.TypeStderr
			}
			return c.Send(t, data)
		},
		Part: func(p interp.Part) error {
			packet = wire.AppendPart(packet[:0], p)
			return c.Send(wire.TypePart, packet)
		},
	})
	_ = c.SetWriteDeadline(time.Time{}) // likewise
	return ran, err
}

// all waits for the end of the input and returns it.
func (in *input) all(most int) ([]byte, error) {
	var all []byte
	for {
		select {
		case data, more := <-in.data:
			if !more {
				return all, nil
			}
			if all = append(all, data...); len(all) > most {
				return nil, api.Invalid("code", "it is longer than %d bytes", most)
			}
		case <-in.gone:
			return nil, errCall
		}
	}
}
