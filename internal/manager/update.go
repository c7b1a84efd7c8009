package manager

import (
	"context"
	"fmt"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/store"
)

// Update changes the name and the metadata of a sandbox: all of it or nothing.
func (m *Manager) Update(ctx context.Context, ref string, req sandbox.UpdateRequest) (*sandbox.Sandbox, error) {
	b, err := m.resolve(ref)
	if err != nil {
		return nil, err
	}
	b.op.Lock()
	defer b.op.Unlock()
	b.mu.Lock()
	rec := b.rec
	b.mu.Unlock()
	if rec.Sandbox.State == sandbox.StateDestroyed { // while we waited
		return nil, sandbox.NotFound("sandbox", ref)
	}
	if len(req.Metadata) > 0 {
		if rec.Sandbox.Metadata, err = sandbox.ChangeMetadata(rec.Sandbox.Metadata, req.Metadata); err != nil {
			return nil, err
		}
	}
	old := rec.Sandbox.Name
	renamed := req.Name != nil && *req.Name != old
	if renamed {
		rec.Sandbox.Name = *req.Name
		if err := m.reserve([]string{*req.Name}, []string{b.id}); err != nil {
			return nil, err
		}
	}
	if err := m.store.Apply(ctx, store.Change{Table: store.Sandboxes, ID: b.id, Doc: rec}); err != nil {
		if renamed {
			m.unreserve(*req.Name)
		}
		return nil, fmt.Errorf("update sandbox: %w", err)
	}
	if renamed {
		m.unreserve(old)
	}
	b.mu.Lock()
	b.rec.Sandbox.Name, b.rec.Sandbox.Metadata = rec.Sandbox.Name, rec.Sandbox.Metadata // it may have failed meanwhile
	v := b.rec.Sandbox
	b.mu.Unlock()
	return &v, nil
}
