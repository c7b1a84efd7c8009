package capture

import (
	"context"
	"fmt"
	"log/slog"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/storage/store"
)

// Config is what a Taker works with.
type Config struct {
	Freezer   *Freezer
	Sandboxes *sandboxes.Registry
	Snapshots *snapshots.Set
	Store     *store.Store
	Admission *quota.Admission
	Images    Images
	Uses      Uses
	// Background writes the snapshots that nobody waits for.
	Background *background.Group
	Meter      meter.Meter
	Log        *slog.Logger
}

// Images keeps images.
type Images interface {
	// UseImage keeps an image while something is made of it that is not listed yet.
	UseImage(id string) (release func())
}

// Uses lets sandboxes be used.
type Uses interface {
	// Use returns the sentry of b once its state is one of ok, and the function that ends
	// this use.
	Use(ctx context.Context, b *sandboxes.Instance, ok ...api.State) (*launch.Sentry, func(), error)
}

// Taker takes snapshots. It is safe for concurrent use.
type Taker struct{ cfg Config }

// NewTaker returns a taker.
func NewTaker(cfg Config) *Taker { return &Taker{cfg} }

// Snapshot freezes a running sandbox and keeps the result: on disk, or in
// memory if the request says so.
func (t *Taker) Snapshot(ctx context.Context, ref string, req api.SnapshotRequest) (*api.Snapshot, error) {
	b, err := t.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return t.SnapshotOf(ctx, b, req, nil)
}

// SnapshotOf is Snapshot. by is nil unless the sandbox asked for it by itself.
func (t *Taker) SnapshotOf(ctx context.Context, b *sandboxes.Instance, req api.SnapshotRequest, by *selfcontrol.Request) (_ *api.Snapshot, err error) {
	ctx, ended := t.cfg.Meter.Observe(ctx, operation(&req))
	defer ended(&err)
	if req.Name != "" {
		if err := api.ValidName("name", req.Name); err != nil {
			return nil, err
		}
		if req.Template == "" && api.IsTemplateName(req.Name) {
			return nil, api.Invalid("name", "%q is a name of templates that the daemon makes: choose another", req.Name)
		}
	}
	if err := api.ValidMetadata("metadata", sandboxes.Merged(b.View().Metadata, req.Metadata)); err != nil {
		return nil, err
	}
	made, err := t.cfg.Admission.Admit(ctx, b.Tenant(), b.Lineage(), 0)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	defer made()
	defer t.cfg.Images.UseImage(b.View().Image)() // b may be gone before the snapshot is listed
	_, done, err := t.cfg.Uses.Use(ctx, b, api.StateRunning)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	defer done()
	f, rec, err := t.capture(ctx, b, req)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if by != nil {
		rec.Asked, rec.Label = by.ID, by.Label
		rec.Control = rec.Control.Inherited(false).WithSnapshot(f.ID)
	}
	s, err := t.add(f, rec)
	if err != nil {
		return nil, err
	}
	if req.Wait != nil && !*req.Wait && by == nil && !req.Memory {
		if err := t.upload(ctx, b, s, f); err != nil {
			s.Remove()
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		v := s.View()
		return &v, nil
	}
	if err := t.keep(ctx, b, s, f, by); err != nil {
		s.Remove()
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	v := s.View()
	s.Note(ctx)
	t.cfg.Sandboxes.Events.Publish(api.EventSnapshotted, b, api.Event{Snapshot: v.ID})
	return &v, nil
}

// operation returns the operation that a request for a snapshot is.
func operation(req *api.SnapshotRequest) string {
	if req.Memory {
		return "snapshot_memory"
	}
	return "snapshot_disk"
}

// Checkpoint freezes b and returns the id of a private snapshot of it, and what begins to
// write that in the background.
func (t *Taker) Checkpoint(ctx context.Context, b *sandboxes.Instance) (id string, write func(context.Context), err error) {
	f, rec, err := t.capture(ctx, b, api.SnapshotRequest{})
	if err != nil {
		return "", nil, err
	}
	rec.Private, rec.Snapshot.ExpiresAt = b.ID, nil
	s, err := t.add(f, rec)
	if err != nil {
		return "", nil, err
	}
	return s.ID, func(ctx context.Context) {
		if err := t.upload(ctx, b, s, f); err != nil {
			s.Fail(err)
		}
	}, nil
}

// capture is Freezer.Capture of a sandbox that goes on.
func (t *Taker) capture(ctx context.Context, b *sandboxes.Instance, req api.SnapshotRequest) (*freezes.Freeze, snapshots.Record, error) {
	b.Op.RLock()
	defer b.Op.RUnlock()
	return t.cfg.Freezer.Capture(ctx, b, req, false)
}

// add adds the snapshot of a freeze, whose reference it takes over.
func (t *Taker) add(f *freezes.Freeze, rec snapshots.Record) (*snapshots.Snapshot, error) {
	s, err := t.cfg.Snapshots.Add(f, rec)
	if err != nil {
		t.cfg.Freezer.freezes.Drop(f)
	}
	return s, err
}

// keep makes s, of b, ready: written to disk unless it is to stay in memory.
func (t *Taker) keep(ctx context.Context, b *sandboxes.Instance, s *snapshots.Snapshot, f *freezes.Freeze, by *selfcontrol.Request) error {
	return s.Keep(ctx, f, Chain(b), func(done store.Change) error {
		if by == nil {
			return t.cfg.Store.Apply(ctx, done)
		}
		return t.keepOwn(ctx, b, done, by)
	})
}

// keepOwn records a snapshot that b asked for by itself, that it may return to it,
// and what it cost: in one transaction, so that none is paid for that b does not
// know of.
func (t *Taker) keepOwn(ctx context.Context, b *sandboxes.Instance, done store.Change, by *selfcontrol.Request) error {
	list := func(rec *sandboxes.Record) error {
		rec.Control = rec.Control.WithSnapshot(done.ID)
		return nil
	}
	return t.cfg.Sandboxes.EditAnd(ctx, b, list, func(_, is *sandboxes.Record) error {
		return by.Budget.Spend(0, 1, func(paid store.Change) error { return t.cfg.Store.Apply(ctx, done, is.Stored(), paid) })
	})
}

// upload has s, of b, written in the background.
func (t *Taker) upload(ctx context.Context, b *sandboxes.Instance, s *snapshots.Snapshot, f *freezes.Freeze) error {
	if err := t.cfg.Store.Apply(ctx, s.Stored()); err != nil {
		return err
	}
	t.cfg.Background.Go(func(ctx context.Context) {
		if err := t.keep(ctx, b, s, f, nil); err != nil {
			if ctx.Err() != nil {
				err = snapshots.ErrDaemonEnded
			}
			t.cfg.Log.Warn("write a snapshot", "id", s.ID, "error", err)
			s.Fail(err)
			return
		}
		if s.Record().Private != "" {
			t.cfg.Snapshots.Collect() // b may not need it any more
			return
		}
		t.cfg.Sandboxes.Events.Publish(api.EventSnapshotted, b, api.Event{Snapshot: s.ID})
	})
	return nil
}
