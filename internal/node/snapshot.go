package node

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

// newSnapshots returns the set of the node's snapshots.
func (m *Node) newSnapshots() *snapshots.Set {
	return snapshots.New(snapshots.Config{
		Paths: m.cfg.Paths, Store: m.store, MemFiles: m.memFiles, Freezes: m.freezes, Alarms: m.timers, Log: m.log, Engine: m.engine(),
		Keeps: func(sandbox, snapshot string) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.instances[sandbox].keeps(snapshot)
		},
		Gone: func(rec *snapshots.Record) []store.Change {
			return m.noteGone(rec.Lineage(), goneRecord{Name: rec.Snapshot.Name, Label: rec.Label})
		},
		Dropped:  func(rec *snapshots.Record) { m.dropBudget(rec.Control) },
		Panicked: m.panicked,
	})
}

// Snapshot freezes a running sandbox and keeps the result: on disk, or in
// memory if the request says so.
func (m *Node) Snapshot(ctx context.Context, ref string, req api.SnapshotRequest) (*api.Snapshot, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	return m.snapshot(ctx, b, req, nil)
}

// snapshot is Snapshot. by is nil unless the sandbox asked for it by itself.
func (m *Node) snapshot(ctx context.Context, b *instance, req api.SnapshotRequest, by *selfcontrol.Request) (_ *api.Snapshot, err error) {
	ctx, ended := m.observe(ctx, snapshotOf(&req))
	defer ended(&err)
	if req.Name != "" {
		if err := api.ValidName("name", req.Name); err != nil {
			return nil, err
		}
	}
	if err := api.ValidMetadata("metadata", merged(b.view().Metadata, req.Metadata)); err != nil {
		return nil, err
	}
	made, err := m.Admit(ctx, b.Tenant(), b.lineage(), 0)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	defer made()
	defer m.UseImage(b.view().Image)() // b may be gone before the snapshot is listed
	_, done, err := m.use(ctx, b, api.StateRunning)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	defer done()
	f, rec, err := m.capture(ctx, b, req)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if by != nil {
		rec.Asked, rec.Label = by.ID, by.Label
		rec.Control = rec.Control.Inherited(false).WithSnapshot(f.ID)
	}
	s, err := m.snapshots.Add(f, rec)
	if err != nil {
		m.freezes.Drop(f)
		return nil, err
	}
	if req.Wait != nil && !*req.Wait && by == nil && !req.Memory {
		if err := m.upload(ctx, b, s, f); err != nil {
			s.Remove()
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		v := s.View()
		return &v, nil
	}
	if err := m.keep(ctx, b, s, f, by); err != nil {
		s.Remove()
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	v := s.View()
	s.Note(ctx)
	m.publish(api.EventSnapshotted, b, api.Event{Snapshot: v.ID})
	return &v, nil
}

// capture freezes b and describes the snapshot that is to be made of the freeze, on which
// the caller owns a reference. When it returns, b may do anything: the snapshot no longer
// needs it.
func (m *Node) capture(ctx context.Context, b *instance, req api.SnapshotRequest) (*freezes.Freeze, snapshots.Record, error) {
	b.op.RLock()
	defer b.op.RUnlock()
	return m.captureAs(ctx, b, req, false)
}

// captureAs is capture. The caller holds b.op. With rest, b rests from then on.
func (m *Node) captureAs(ctx context.Context, b *instance, req api.SnapshotRequest, rest bool) (*freezes.Freeze, snapshots.Record, error) {
	f, frozen, err := m.freezeInstance(ctx, b, rest)
	if err != nil {
		return nil, snapshots.Record{}, err
	}
	b.mu.Lock()
	source, ancestors, own := b.rec.Sandbox, append(append([]string{}, b.rec.Ancestors...), b.id), b.rec.Control.Inherited(false).Retagged(selfcontrol.Additions(req.Metadata), false)
	b.mu.Unlock()
	source.Metadata = merged(source.Metadata, req.Metadata) // so that what is restored has it, too
	var expires *time.Time
	if req.Name == "" && !rest {
		expires = source.Lifecycle.SnapshotExpiry(m.clock.Now())
	}
	return f, snapshots.Record{
		Snapshot: api.Snapshot{
			ID: f.ID, Tenant: source.Tenant, Name: req.Name, Sandbox: b.id, Parent: source.Snapshot,
			Image: source.Image, Depth: source.Depth, CreatedAt: time.Now().UTC(), OnDisk: !req.Memory,
			PauseMS: frozen.PauseMS, Engine: m.engine(), Metadata: source.Metadata, ExpiresAt: expires,
		},
		Ancestors: ancestors,
		History:   f.History,
		Source:    source,
		Control:   own,
		Processor: snapshots.ProcessorFeatures(),
	}, nil
}

// chain says what the next snapshot of b on disk is compared with.
func (b *instance) chain() snapshots.Chain {
	return snapshots.Chain{Lineage: b.lineage(), Turn: &b.writing}
}

// keep makes s, of b, ready: written to disk unless it is to stay in memory.
func (m *Node) keep(ctx context.Context, b *instance, s *snapshots.Snapshot, f *freezes.Freeze, by *selfcontrol.Request) error {
	return s.Keep(ctx, f, b.chain(), func(done store.Change) error {
		if by == nil {
			return m.store.Apply(ctx, done)
		}
		return m.keepOwn(ctx, b, done, by)
	})
}

// keepOwn records a snapshot that b asked for by itself, that it may return to it,
// and what it cost: in one transaction, so that none is paid for that b does not
// know of.
func (m *Node) keepOwn(ctx context.Context, b *instance, done store.Change, by *selfcontrol.Request) error {
	list := func(rec *record) error {
		rec.Control = rec.Control.WithSnapshot(done.ID)
		return nil
	}
	return m.editAnd(ctx, b, list, func(edited store.Change) error {
		return by.Budget.Spend(0, 1, func(paid store.Change) error { return m.store.Apply(ctx, done, edited, paid) })
	})
}

// Restore makes new sandboxes from a snapshot.
func (m *Node) Restore(ctx context.Context, ref string, req api.RestoreRequest) (_ *api.ForkResult, err error) {
	ctx, ended := m.observe(ctx, "restore")
	defer ended(&err)
	began := time.Now()
	s, err := m.snapshots.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := access.From(ctx).MayMake("sandboxes"); err != nil {
		return nil, err
	}
	return m.restore(ctx, s, req, began, false)
}

// restore is Restore. With plain, what is made is not checkpointed by itself.
func (m *Node) restore(ctx context.Context, s *snapshots.Snapshot, req api.RestoreRequest, began time.Time, plain bool) (*api.ForkResult, error) {
	rec := s.Record()
	if err := api.ValidMetadata("metadata", merged(rec.Source.Metadata, req.Metadata)); err != nil {
		return nil, err
	}
	if err := req.Lifecycle.Valid(); err != nil {
		return nil, err
	}
	fresh, err := api.RequiresFresh(req.Require)
	if err != nil {
		return nil, err
	}
	batch, err := m.newBatch(rec.Tenant(), began, req.Count, req.Names, req.Env, 0)
	if err != nil {
		return nil, err
	}
	defer batch.close()
	batch.fresh = fresh
	made, err := m.Admit(ctx, rec.Tenant(), rec.Lineage(), len(batch.drafts))
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	defer made()
	defer m.UseImage(rec.Source.Image)() // s may be deleted before the sandboxes are listed
	f, err := s.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	defer m.freezes.Drop(f)
	source := &rec.Source
	ancestors := rec.Lineage()
	for i := range batch.drafts {
		batch.describe(i, source, ancestors, req.Metadata, req.Lifecycle)
		batch.drafts[i].rec.Control = rec.Control.Retagged(selfcontrol.Additions(req.Metadata), false)
		d := &batch.drafts[i].rec.Sandbox
		d.Parent, d.Snapshot = source.ID, s.ID
		if plain {
			d.AutoCheckpoint = nil
		}
	}
	batch.asked, batch.reply = rec.Asked, restoredFrom(s)
	out := &api.ForkResult{SnapshotMS: millis(began)}
	if err := batch.make(ctx, f, source.Image, true); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	out.Children = batch.children
	noteChildren(ctx, f, source.Image, batch.children, func(d *api.AuditDetails) { d.Parent, d.Snapshot, d.Digest = source.ID, s.ID, rec.Digest })
	out.ReturnMS = millis(began)
	return out, nil
}

// restoredFrom returns what a sandbox is told that was made from s, or rolled back to it, if
// s was its own wish.
func restoredFrom(s *snapshots.Snapshot) func(*api.Sandbox) control.Reply {
	label := s.Label()
	return func(sb *api.Sandbox) control.Reply {
		return control.Reply{Restored: &control.Restored{ID: sb.ID, Index: sb.Identity.ForkIndex, Snapshot: control.Snapshot{ID: s.ID, Name: label}}}
	}
}
