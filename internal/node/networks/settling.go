package networks

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"

	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/network/control"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/node/sandboxes"
)

// settler carries out what was decided on held requests.
type settler struct {
	n     *Networks
	calls singleflight.Group // by the id of the sandbox
}

// settlePause is how long decisions on held requests that failed wait until they are tried again.
const settlePause = 5 * time.Second

// rest tries again, until ctx ends, what settle could not do.
func (t *settler) rest(ctx context.Context) {
	tick := time.NewTicker(settlePause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, b := range t.n.cfg.Sandboxes.All() {
			if s := b.Sentry(); s != nil && b.Record().Reach.Open() {
				bounded, cancel := context.WithTimeout(ctx, t.n.cfg.Timeout)
				t.settle(bounded, b, s)
				cancel()
			}
		}
	}
}

// settle drops what b, which runs in s, held and was rolled back, sends what promoted children of it have
// held, and notes that this is done. What is not done is tried again by rest, or by the next daemon.
func (t *settler) settle(ctx context.Context, b *sandboxes.Instance, s *launch.Sentry) {
	_, _, _ = t.calls.Do(b.ID, func() (any, error) {
		t.now(ctx, b, s)
		return nil, nil
	})
}

func (t *settler) now(ctx context.Context, b *sandboxes.Instance, s *launch.Sentry) {
	rec := b.Record()
	pending := rec.Reach.Pending
	if s == nil || !pending.Open() {
		return
	}
	for i := range pending.Undone {
		err := insist(ctx, t.n.host, func(c *control.Client) error { return c.DropUndone(ctx, (*held.Undone)(&pending.Undone[i])) })
		if err != nil {
			t.n.cfg.Log.Warn("drop the held requests that a rollback has undone", "sandbox", b.ID, "error", err)
			return // before they are dropped nothing is sent
		}
	}
	r, err := t.n.registration(rec, s)
	for _, child := range pending.Releases {
		if err == nil {
			err = insist(ctx, t.n.host, func(c *control.Client) error { return c.ReleaseAll(ctx, child, &r) })
		}
		if err != nil {
			t.n.cfg.Log.Warn("send the held requests of a promoted child", "sandbox", b.ID, "child", child, "error", err)
			return
		}
	}
	b.Amend(func(now *sandboxes.Record) { now.Reach.Done(&pending) })
	if err := t.n.cfg.Store.Apply(ctx, storedOf(b)); err != nil {
		t.n.cfg.Log.Error("note what became of held requests", "sandbox", b.ID, "error", err)
	}
}
