package launch

import (
	"context"
	"io"
	"slices"

	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/wire"
)

// RunIO takes what comes of a run.
type RunIO struct {
	Stdout, Stderr io.Writer
	// Part takes a part of an answer, whose data are valid until it returns.
	Part func(interp.Part) error
}

// Run has an interpreter do something with payload. When ctx is cancelled, that is
// interrupted.
func (s *Sentry) Run(ctx context.Context, req *wire.Run, payload []byte, rio RunIO) (*wire.Ran, error) {
	call := &wire.Call{Op: wire.OpRun, Run: req}
	c, done, err := s.open(ctx, call)
	if err != nil {
		return nil, err
	}
	defer done()
	for data := range slices.Chunk(payload, wire.MaxChunk) {
		if err := c.Send(wire.TypeStdin, data); err != nil {
			return nil, s.callError(ctx, call, err)
		}
	}
	if err := c.Send(wire.TypeStdin, nil); err != nil {
		return nil, s.callError(ctx, call, err)
	}
	for {
		p, err := c.Receive()
		if err != nil {
			return nil, s.callError(ctx, call, err)
		}
		p.Close()
		switch p.Type {
		case wire.TypeStdout:
			_, err = rio.Stdout.Write(p.Body)
		case wire.TypeStderr:
			_, err = rio.Stderr.Write(p.Body)
		case wire.TypePart:
			var part interp.Part
			if part, err = wire.ParsePart(p.Body); err == nil {
				err = rio.Part(part)
			}
		default:
			var ran wire.Ran
			if err := p.Decode(&ran); err != nil {
				return nil, err
			}
			return &ran, nil
		}
		if err != nil {
			return nil, unwanted(err)
		}
	}
}
