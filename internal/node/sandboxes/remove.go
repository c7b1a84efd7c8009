package sandboxes

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/store"
)

// Destroy ends a sandbox. Its memory stays as far as its children need it. reason is empty
// if somebody asked for it.
func (r *Registry) Destroy(b *Instance, reason string) error {
	b.Start.Abandon(errUnwanted)
	b.Op.Lock()
	defer b.Op.Unlock()
	return r.DestroyLocked(b, reason)
}

// DestroyLocked is Destroy. The caller holds b.Op.
func (r *Registry) DestroyLocked(b *Instance, reason string) error {
	if !r.unlist(b) {
		return api.NotFound("sandbox", b.ID) // somebody was faster
	}
	changes := append(r.listener.Removing(b),
		store.Change{Table: store.Sandboxes, ID: b.ID}, store.Change{Table: store.Activity, ID: b.ID}, store.Change{Table: store.Timelines, ID: b.ID})
	if err := r.store.Apply(context.Background(), changes...); err != nil {
		// A record without a sentry is collected at the next start.
		r.log.Error("forget a destroyed sandbox", "id", b.ID, "error", err)
	}
	b.mu.Lock()
	sentry, f := b.sentry, b.freeze
	b.sentry, b.freeze = nil, nil
	r.become(b, api.StateDestroyed, b.rec.Sandbox.Reason)
	b.mu.Unlock()
	r.End(b, sentry, f)
	r.listener.Removed(b)
	r.Events.Publish(api.EventDestroyed, b, api.Event{Reason: reason})
	return nil
}

// unlist takes b, with its name, from the list, and reports whether it was in it.
func (r *Registry) unlist(b *Instance) bool {
	r.mu.Lock()
	listed := r.byID[b.ID] == b
	if listed {
		delete(r.byID, b.ID)
	}
	r.mu.Unlock()
	if listed {
		r.Names.Release(b.Tenant(), b.View().Name)
	}
	return listed
}

// Forget removes a sandbox whose record is gone, and whose sentry and freeze another one
// has. The caller holds b.Op.
func (r *Registry) Forget(b *Instance) {
	b.mu.Lock()
	r.become(b, api.StateDestroyed, "") // for those who wait for it
	b.mu.Unlock()
	r.unlist(b)
	r.listener.Forgotten(b)
}

// Edit changes the name, the metadata, the lifecycle, the grant, the network and the
// environment in the record of b.
// change gets a copy, in which it replaces what it changes.
func (r *Registry) Edit(ctx context.Context, b *Instance, change func(*Record) error) error {
	return r.EditAnd(ctx, b, change, func(_, is *Record) error { return r.store.Apply(ctx, is.Stored()) })
}

// EditAnd is Edit, and has apply store the record as it is after the change. apply may do more, and
// undo all of it to what the record was.
func (r *Registry) EditAnd(ctx context.Context, b *Instance, change func(*Record) error, apply func(was, is *Record) error) error {
	b.Op.Lock()
	defer b.Op.Unlock()
	was := b.Record()
	if was.Sandbox.State == api.StateDestroyed { // while we waited
		return api.NotFound("sandbox", b.ID)
	}
	rec := was
	if err := change(&rec); err != nil {
		return err
	}
	if err := apply(&was, &rec); err != nil {
		return err
	}
	b.Amend(func(now *Record) { // which may have failed meanwhile
		s := &now.Sandbox
		s.Name, s.Metadata, s.Claimed, s.Lifecycle, now.Control = rec.Sandbox.Name, rec.Sandbox.Metadata, rec.Sandbox.Claimed, rec.Sandbox.Lifecycle, rec.Control
		now.SetNetwork(rec.Network())
		s.Env, s.TrustedCAs = rec.Sandbox.Env, rec.Sandbox.TrustedCAs
	})
	return nil
}
