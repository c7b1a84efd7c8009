package launch

import (
	"context"
	"os"

	"ramet.dev/ramet/internal/engine/wire"
)

// Volumes does the operations of a sandbox on volumes, one after the other, until ctx ends,
// another caller takes its place or the sentry ends. A file that do returns is passed on and
// closed. Unlike other calls, it may be made while the sentry is blank.
func (s *Sentry) Volumes(ctx context.Context, do func(*wire.VolumeCall) (*wire.VolumeAnswer, *os.File)) error {
	call := &wire.Call{Op: wire.OpVolumes}
	c, done, err := s.open(ctx, call)
	if err != nil {
		return err
	}
	defer done()
	for {
		p, err := c.Receive()
		if err != nil {
			return s.callError(ctx, call, err)
		}
		p.Close()
		if p.Type != wire.TypeRequest {
			return p.Decode(&struct{}{}) // another caller serves the sandbox now
		}
		var req wire.VolumeCall
		if err := p.Decode(&req); err != nil {
			return err
		}
		answer, file := do(&req)
		if file == nil {
			err = c.SendJSON(wire.TypeAnswer, answer)
		} else {
			err = c.SendJSON(wire.TypeAnswer, answer, int(file.Fd()))
			file.Close()
		}
		if err != nil {
			return s.callError(ctx, call, err)
		}
	}
}
