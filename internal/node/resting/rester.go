package resting

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/node/capture"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/inspect"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/swap"
	"ramet.dev/ramet/internal/node/timer"
	"ramet.dev/ramet/internal/storage/store"
)

// Config is what a Rester works with.
type Config struct {
	Sandboxes *sandboxes.Registry
	Snapshots *snapshots.Set
	Freezes   *freezes.Table
	Freezer   *capture.Freezer
	Swapper   *swap.Swapper
	Inspector *inspect.Inspector
	Admission *quota.Admission
	Timers    *Timers
	Images    Images
	Networks  Networks
	Store     *store.Store
	Clock     timer.Clock
	Meter     meter.Meter
	// Timeout bounds calls that stop a sandbox or let it go on.
	Timeout time.Duration
}

// Images keeps images.
type Images interface {
	// UseImage keeps an image while something is made of it that is not listed yet.
	UseImage(id string) (release func())
}

// Networks knows sandboxes by their names and metadata.
type Networks interface {
	// Put stores a record that was changed and puts what it has in force, or does neither. The
	// caller holds Instance.Op.
	Put(ctx context.Context, b *sandboxes.Instance, was, is *sandboxes.Record) error
}

// Rester stops sandboxes and lets them go on. It is safe for concurrent use.
type Rester struct{ cfg Config }

// New returns a rester.
func New(cfg Config) *Rester { return &Rester{cfg} }

// Use returns the sentry of b, which is in one of the states ok, for something that
// is to keep it from being idle, and what to call when that is over. A sandbox that
// sleeps is woken, if it may be by a request, and one that is being made is waited
// for. The caller must not hold b.Op.
func (r *Rester) Use(ctx context.Context, b *sandboxes.Instance, ok ...api.State) (*launch.Sentry, func(), error) {
	if err := b.Start.Wait(ctx); err != nil {
		return nil, nil, err
	}
	for {
		if s := b.BeginUse(r.cfg.Clock.Now(), ok); s != nil {
			return s, func() { b.EndUse(r.cfg.Clock.Now()) }, nil
		}
		if !b.Sleeps() {
			if _, err := b.Running(ok...); err != nil {
				return nil, nil, err
			}
			continue // it was woken meanwhile
		}
		if err := r.awaken(ctx, b); err != nil {
			return nil, nil, err
		}
	}
}
