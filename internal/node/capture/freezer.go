package capture

import (
	"cmp"
	"context"
	"runtime"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/timer"
)

// Freezer freezes sandboxes. It is safe for concurrent use.
type Freezer struct {
	freezes *freezes.Table
	clock   timer.Clock
	engines Engines
	meter   meter.Meter
}

// Engines are what loads frozen states.
type Engines interface {
	// Own names the engine of this daemon.
	Own() string
	// Knows reports whether an engine can be used.
	Knows(name string) bool
}

// NewFreezer returns a freezer that keeps freezes in t.
func NewFreezer(t *freezes.Table, clock timer.Clock, engines Engines, m meter.Meter) *Freezer {
	return &Freezer{t, clock, engines, m}
}

// Freeze freezes a running sandbox, or one that is to rest from then on and may be
// paused. The caller holds b.Op and owns a reference on the result.
func (z *Freezer) Freeze(ctx context.Context, b *sandboxes.Instance, rest bool) (*freezes.Freeze, *wire.Frozen, error) {
	states := []api.State{api.StateRunning, api.StatePaused}
	if !rest {
		states = states[:1]
	}
	sentry, err := b.Running(states...)
	if err != nil {
		return nil, nil, err
	}
	if err := z.canFreeze(b); err != nil {
		return nil, nil, err
	}
	origin, _ := b.Origin(z.freezes)
	f, frozen, err := z.freezes.Freeze(ctx, sentry, origin, rest)
	if err != nil {
		return nil, nil, err
	}
	f.Engine = cmp.Or(b.Record().Engine, z.engines.Own())
	z.meter.Millis(meter.Pause, frozen.PauseMS)
	return f, frozen, nil
}

// canFreeze refuses a sandbox that goes on in the sentry of a version whose program is not
// here: nothing could load what that would save.
func (z *Freezer) canFreeze(b *sandboxes.Instance) error {
	engine := b.Record().Engine
	if z.engines.Knows(engine) {
		return nil
	}
	return api.Errorf(api.CodeUnsupported, "sandbox %s was started by engine %s, this is %s: it runs on, and its files can be exported and committed, but it cannot be forked or frozen any more", b.ID, engine, z.engines.Own())
}

// FreezeShared is Freeze, perhaps together with other forks. The caller holds b.Op
// and owns a reference on the result.
func (z *Freezer) FreezeShared(ctx context.Context, b *sandboxes.Instance) (*freezes.Freeze, *wire.Frozen, error) {
	return b.FreezeGroup.Freeze(ctx, z.freezes, background.ErrDefect, func(ctx context.Context) (*freezes.Freeze, *wire.Frozen, error) {
		return z.Freeze(ctx, b, false)
	})
}

// Capture freezes b and describes the snapshot that is to be made of the freeze, on which
// the caller owns a reference. The caller holds b.Op. With rest, b rests from then on;
// without, it may do anything when Capture returns: the snapshot no longer needs it.
func (z *Freezer) Capture(ctx context.Context, b *sandboxes.Instance, req api.SnapshotRequest, rest bool) (*freezes.Freeze, snapshots.Record, error) {
	began := time.Now().UTC() // nothing that b does from now on counts as done before the snapshot
	f, frozen, err := z.Freeze(ctx, b, rest)
	if err != nil {
		return nil, snapshots.Record{}, err
	}
	rec := b.Record()
	source := rec.Sandbox
	source.Metadata = sandboxes.Merged(source.Metadata, req.Metadata) // so that what is restored has it, too
	source.Claimed = api.ChangeClaimed(source.Claimed, selfcontrol.Additions(req.Metadata), false)
	var expires *time.Time
	if req.Name == "" && !rest {
		expires = source.Lifecycle.SnapshotExpiry(z.clock.Now())
	}
	return f, snapshots.Record{
		Snapshot: api.Snapshot{
			ID: f.ID, Tenant: source.Tenant, Name: req.Name, Sandbox: b.ID, Parent: source.Snapshot,
			Image: source.Image, Depth: source.Depth, CreatedAt: began, OnDisk: !req.Memory,
			PauseMS: frozen.PauseMS, Engine: f.Engine, Metadata: source.Metadata, Claimed: source.Claimed, ExpiresAt: expires,
			Template: req.Template,
		},
		Ancestors: rec.Lineage(),
		History:   f.History,
		Source:    source,
		Reach:     rec.Reach,
		Control:   rec.Control.Inherited(false),
		Processor: snapshots.ProcessorFeatures(), Architecture: runtime.GOARCH,
	}, nil
}

// Chain says what the next snapshot of b on disk is compared with.
func Chain(b *sandboxes.Instance) snapshots.Chain {
	return snapshots.Chain{Lineage: b.Lineage(), Turn: &b.Writing}
}
