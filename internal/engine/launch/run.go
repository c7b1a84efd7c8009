package launch

import (
	"context"
	"io"
	"slices"

	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/wire"
)

// Run sends payload to an interpreter and reads what the interpreter writes and answers:
// part takes the parts of answers, whose data are valid until it returns. When ctx is
// cancelled, the interpreter is interrupted.
func (s *Sentry) Run(ctx context.Context, req *wire.Run, payload []byte, stdout, stderr io.Writer, part func(interp.Part) error) (*wire.Ran, error) {
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
			_, err = stdout.Write(p.Body)
		case wire.TypeStderr:
			_, err = stderr.Write(p.Body)
		case wire.TypePart:
			var next interp.Part
			if next, err = wire.ParsePart(p.Body); err == nil {
				err = part(next)
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
