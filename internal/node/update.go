package node

import (
	"context"
	"fmt"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/store"
)

// Update changes the name, the metadata and the lifecycle of a sandbox: all of it or
// nothing. With a lifecycle, its idle timeout begins anew.
func (m *Node) Update(ctx context.Context, ref string, req api.UpdateRequest) (*api.Sandbox, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := req.Lifecycle.Valid(); err != nil {
		return nil, err
	}
	var old string
	renamed := false
	err = m.edit(ctx, b, func(rec *record) (err error) {
		if len(req.Metadata) > 0 {
			if rec.Sandbox.Metadata, err = api.ChangeMetadata(rec.Sandbox.Metadata, req.Metadata); err != nil {
				return err
			}
			rec.Control = rec.Control.Retagged(req.Metadata, false)
		}
		if req.Lifecycle != nil {
			rec.Sandbox.Lifecycle = rec.Sandbox.Lifecycle.Changed(req.Lifecycle, m.clock.Now())
		}
		old = rec.Sandbox.Name
		if req.Name == nil || *req.Name == old {
			return nil
		}
		if err := m.reserve(b.Tenant(), []string{*req.Name}, []string{b.id}); err != nil {
			return err
		}
		rec.Sandbox.Name, renamed = *req.Name, true
		return nil
	})
	switch {
	case renamed && err == nil:
		m.unreserve(b.Tenant(), old)
	case renamed:
		m.unreserve(b.Tenant(), *req.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("update sandbox: %w", err)
	}
	if req.Lifecycle != nil {
		m.touch(b)
		m.arm(b)
	}
	v := b.view()
	m.publishView(api.EventUpdated, &v, api.Event{})
	return &v, nil
}

// edit changes what is recorded of b, but for what says how its sentry does.
// change gets a copy, in which it replaces what it changes.
func (m *Node) edit(ctx context.Context, b *instance, change func(*record) error) error {
	return m.editAnd(ctx, b, change, func(edited store.Change) error { return m.store.Apply(ctx, edited) })
}

// editAnd is edit, and has apply record the change, which may add to it.
func (m *Node) editAnd(ctx context.Context, b *instance, change func(*record) error, apply func(store.Change) error) error {
	b.op.Lock()
	defer b.op.Unlock()
	b.mu.Lock()
	rec := b.rec
	b.mu.Unlock()
	if rec.Sandbox.State == api.StateDestroyed { // while we waited
		return api.NotFound("sandbox", b.id)
	}
	if err := change(&rec); err != nil {
		return err
	}
	if err := apply(store.Change{Table: store.Sandboxes, ID: b.id, Doc: rec}); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.rec.Sandbox // which may have failed meanwhile
	s.Name, s.Metadata, s.Lifecycle, b.rec.Control = rec.Sandbox.Name, rec.Sandbox.Metadata, rec.Sandbox.Lifecycle, rec.Control
	return nil
}
