package networks

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/node/sandboxes"
)

// errDestroyed ends the reading of the decisions about a sandbox.
var errDestroyed = errors.New("the sandbox was destroyed")

// NetworkLog implements service.Networks.
func (n *Networks) NetworkLog(ctx context.Context, ref string, follow bool, began func(), f func(api.NetworkLogEntry) error) error {
	since := n.cfg.Sandboxes.Events.Now() // before the sandbox is looked up: it may be destroyed then
	b, err := n.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return err
	}
	if b.View().Network == nil { // there may be no gateway
		if follow {
			return api.Errorf(api.CodeWrongState, "sandbox %s has no network: there are no decisions to follow", b.ID)
		}
		return nil
	}
	began()
	last := uint64(0)
	var ferr error
	each := func(l control.Line) error {
		last, l.NetworkLogEntry.Lost = l.Number, l.Lost
		ferr = f(l.NetworkLogEntry)
		return ferr
	}
	want := control.Reading{Sandbox: b.ID, Kept: true, Follow: follow}
	if follow {
		err = untilDestroyed(ctx, n.cfg.Sandboxes.Events, b.ID, since, func(ctx context.Context) error { return n.host.Client().Log(ctx, want, each) })
	} else {
		err = n.host.Client().Log(ctx, want, each)
	}
	switch {
	case errors.Is(err, errDestroyed):
		// The gateway has told how the flows ended, before the sandbox was gone. It may itself have ended
		// since.
		_ = n.host.Client().Log(ctx, control.Reading{Sandbox: b.ID, Kept: true, After: last}, each)
		return ferr
	case errors.Is(err, io.EOF) && ferr == nil:
		return api.Errorf(api.CodeUnavailable, "read network log: %w: ask again", err)
	}
	return err
}

// untilDestroyed calls f with a context that ends, because of errDestroyed, when the sandbox is destroyed.
// since is an event before which it was not.
func untilDestroyed(ctx context.Context, events *sandboxes.EventLog, id string, since int64, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	wg.Go(func() {
		req := api.EventRequest{Sandbox: id, Follow: true, Since: since, Kinds: []api.EventKind{api.EventDestroyed}}
		err := events.Events(ctx, req, func() {}, func(api.Event) error { return nil })
		if err == nil || api.CodeOf(err) == api.CodeNotFound {
			cancel(errDestroyed)
		}
	})
	return f(ctx)
}

// tellEvents publishes a sample of the decisions of a gateway as events, until it has ended: from its first one on if
// it is fresh, and else those to come.
func tellEvents(ctx context.Context, of *sandboxes.Registry, c *control.Client, fresh bool, log *slog.Logger) {
	err := c.Log(ctx, control.Reading{Kept: fresh, Follow: true, Sampled: true}, func(l control.Line) error {
		e := l.NetworkLogEntry
		e.Lost = l.Lost
		if b := of.Get(e.Sandbox); b != nil {
			of.Events.Publish(api.EventDecided, b, api.Event{Decision: &e})
		}
		return nil
	})
	if ctx.Err() == nil && !errors.Is(err, io.EOF) {
		log.Warn("read the decisions of the gateway", "error", err)
	}
}
