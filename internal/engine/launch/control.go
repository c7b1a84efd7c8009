package launch

import (
	"context"
	"encoding/json"

	"ramet.dev/ramet/internal/engine/wire"
)

// Control serves the requests of a sandbox that may control itself, one after the
// other, until ctx ends, another caller takes its place or the sentry ends. The result of
// serve is sent to the process that asked, unless ctx has ended by then.
func (s *Sentry) Control(ctx context.Context, serve func(request json.RawMessage, id uint64) json.RawMessage) error {
	call := &wire.Call{Op: wire.OpControl}
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
		var r wire.ControlRequest
		if err := p.Decode(&r); err != nil {
			return err
		}
		a := wire.ControlAnswer{ID: r.ID, Reply: serve(r.Request, r.ID)}
		if err := c.SendJSON(wire.TypeAnswer, a); err != nil {
			return s.callError(ctx, call, err)
		}
	}
}
