package node

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/control"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/storage/store"
)

// snapRecord is what is stored of a snapshot.
type snapRecord struct {
	Snapshot  api.Snapshot       `json:"snapshot"`
	Ancestors []string           `json:"ancestors,omitempty"` // the frozen sandbox is the last
	History   []fsview.ForkPoint `json:"history,omitempty"`   // the snapshot itself is the last
	Source    api.Sandbox        `json:"source"`              // as it was when it was frozen
	Digest    string             `json:"digest,omitempty"`    // sha256 of the snapshot file on disk
	Control   *selfcontrol.Grant `json:"control,omitempty"`   // the right of what is made from it
	Asked     uint64             `json:"asked,omitempty"`     // the sandbox's own request for it, 0 if it was not asked for so
	Label     string             `json:"label,omitempty"`     // what the sandbox calls it
	Private   string             `json:"private,omitempty"`   // the sandbox that alone returns to it; nobody sees it
	Processor []string           `json:"processor,omitempty"` // what the processor could where it was made
	// Version counts how often its files were written anew, Parts are those besides the
	// state, and Needs the snapshots to whose files it refers.
	Version int                     `json:"version,omitempty"`
	Parts   map[string]snapdir.Part `json:"parts,omitempty"`
	Needs   []string                `json:"needs,omitempty"`
}

// snapshot is a named freeze.
type snapshot struct {
	id  string
	mu  sync.Mutex
	rec snapRecord
	// freeze is what is restored from, with a reference. A snapshot on disk
	// opens it, or its file, when it is first needed.
	freeze *freezes.Freeze
	// stamp is that of the state on disk when it was compared with its digest.
	stamp snapdir.Stamp

	chained // guarded by Manager.mu
}

func (s *snapshot) view() api.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := s.rec.Snapshot
	v.Label = s.rec.Label
	return v
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
	made, err := m.Admit(ctx, b.tenant(), b.lineage(), 0)
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
	s, err := m.capture(ctx, b, req)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	if by != nil {
		s.rec.Asked, s.rec.Label = by.ID, by.Label
		s.rec.Control = s.rec.Control.Inherited(false).WithSnapshot(s.id)
	}
	f := s.freeze
	if err := m.addSnapshot(s); err != nil {
		m.freezes.Drop(f)
		return nil, err
	}
	if req.Wait != nil && !*req.Wait && by == nil && !req.Memory {
		if err := m.upload(ctx, b, s, f); err != nil {
			m.removeSnapshot(s)
			return nil, fmt.Errorf("snapshot: %w", err)
		}
		v := s.view()
		return &v, nil
	}
	if err := m.keep(ctx, b, s, f, by); err != nil {
		m.removeSnapshot(s)
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	v := s.view()
	s.note(ctx)
	m.tellOf(api.EventSnapshotted, b, api.Event{Snapshot: v.ID})
	return &v, nil
}

// capture freezes b and describes the result, which owns a reference on its
// freeze. When it returns, b may do anything: the snapshot no longer needs it.
func (m *Node) capture(ctx context.Context, b *instance, req api.SnapshotRequest) (*snapshot, error) {
	b.op.RLock()
	defer b.op.RUnlock()
	return m.captureAs(ctx, b, req, false)
}

// captureAs is capture. The caller holds b.op. With rest, b rests from then on.
func (m *Node) captureAs(ctx context.Context, b *instance, req api.SnapshotRequest, rest bool) (*snapshot, error) {
	f, frozen, err := m.freezeBox(ctx, b, rest)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	source, ancestors, own := b.rec.Sandbox, append(append([]string{}, b.rec.Ancestors...), b.id), b.rec.Control.Inherited(false).Retagged(selfcontrol.Additions(req.Metadata), false)
	b.mu.Unlock()
	source.Metadata = merged(source.Metadata, req.Metadata) // so that what is restored has it, too
	state := api.SnapshotUploading
	if req.Memory {
		state = api.SnapshotCreating
	}
	var expires *time.Time
	if req.Name == "" && !rest {
		expires = source.Lifecycle.SnapshotExpiry(m.clock.Now())
	}
	return &snapshot{id: f.ID, freeze: f, rec: snapRecord{
		Snapshot: api.Snapshot{
			ID: f.ID, Tenant: source.Tenant, Name: req.Name, State: state, Sandbox: b.id, Parent: source.Snapshot,
			Image: source.Image, Depth: source.Depth, CreatedAt: time.Now().UTC(), OnDisk: !req.Memory,
			PauseMS: frozen.PauseMS, Engine: m.engine(), Metadata: source.Metadata, ExpiresAt: expires,
		},
		Ancestors: ancestors,
		History:   f.History,
		Source:    source,
		Control:   own,
		Processor: processorFeatures(),
	}}, nil
}

// keep makes s, of b, ready: written to disk unless it is to stay in memory.
func (m *Node) keep(ctx context.Context, b *instance, s *snapshot, f *freezes.Freeze, by *selfcontrol.Request) error {
	if s.rec.Snapshot.OnDisk {
		if err := m.writeSnapshot(ctx, b, s, f); err != nil {
			return err
		}
	}
	rec := s.record()
	rec.Snapshot.State = api.SnapshotReady
	done := store.Change{Table: store.Snapshots, ID: s.id, Doc: rec}
	var err error
	if by == nil {
		err = m.store.Apply(ctx, done)
	} else {
		err = m.keepOwn(ctx, b, done, by)
	}
	if err != nil {
		return err
	}
	if rec.Snapshot.OnDisk { // its directory is removed at the next start if the record is lost
		if err := m.store.Sync(ctx); err != nil {
			return err
		}
	}
	m.markReady(s) // not before: from here on others may refer to it, and it cannot be given up
	return nil
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

// markReady makes s ready, which is restored from its files from now on if it has any.
func (m *Node) markReady(s *snapshot) {
	s.mu.Lock()
	f := s.freeze
	if s.rec.Snapshot.State = api.SnapshotReady; s.rec.Snapshot.OnDisk {
		s.freeze = nil
	} else {
		f = nil
	}
	s.mu.Unlock()
	m.mu.Lock()
	s.settled = true
	m.mu.Unlock()
	m.freezes.Drop(f)
	m.armSnapshots(s)
	m.retain(s)
}

// record returns what is to be stored of s.
func (s *snapshot) record() snapRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec
}

func (m *Node) addSnapshot(s *snapshot) error {
	name := owned{s.rec.tenant(), s.rec.Snapshot.Name}
	m.mu.Lock()
	defer m.mu.Unlock()
	if id, taken := m.snapNames[name]; taken && !m.snaps[id].failed { // else that one loses it
		return api.Errorf(api.CodeNameTaken, "a snapshot is called %q already", name.name)
	}
	if name.name != "" {
		m.snapNames[name] = s.id
	}
	m.snaps[s.id] = s
	return nil
}

// freeNameLocked gives up the name of s, if it has one. The caller holds m.mu.
func (m *Node) freeNameLocked(s *snapshot) {
	if name := (owned{s.rec.tenant(), s.rec.Snapshot.Name}); m.snapNames[name] == s.id {
		delete(m.snapNames, name)
	}
}

// removeSnapshot forgets s and gives up its memory and its files. It reports
// whether there was anything to forget.
func (m *Node) removeSnapshot(s *snapshot) bool {
	m.mu.Lock()
	if m.snaps[s.id] != s {
		m.mu.Unlock()
		return false
	}
	delete(m.snaps, s.id)
	m.freeNameLocked(s)
	m.mu.Unlock()
	s.mu.Lock()
	f := s.freeze
	s.freeze = nil
	called := goneRecord{Name: s.rec.Snapshot.Name, Label: s.rec.Label}
	s.rec.Snapshot.State, s.rec.Snapshot.Reason = api.SnapshotFailed, "it was deleted" // so that nobody opens it again
	s.mu.Unlock()
	m.freezes.Drop(f)
	changes := m.noteGone(append(slices.Clone(s.rec.Ancestors), s.id), called)
	if err := m.store.Apply(context.Background(), append(changes, store.Change{Table: store.Snapshots, ID: s.id})...); err != nil {
		m.log.Error("forget a snapshot", "id", s.id, "error", err)
	}
	m.dropBudget(s.rec.Control)
	if dir, err := m.cfg.Paths.Snapshot(s.id); err == nil {
		os.RemoveAll(dir) // what stays is collected at the next start
	}
	return true
}

// Snapshots lists the snapshots that the caller sees, the oldest first.
func (m *Node) Snapshots(ctx context.Context) ([]api.Snapshot, error) {
	list := []api.Snapshot{}
	for _, s := range m.visibleSnapshots(ctx) {
		list = append(list, s.view())
	}
	slices.SortFunc(list, func(a, b api.Snapshot) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list, nil
}

func (m *Node) allSnapshots() []*snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.snaps))
}

// GetSnapshot returns one snapshot.
func (m *Node) GetSnapshot(ctx context.Context, ref string) (*api.Snapshot, error) {
	s, err := m.resolveSnapshot(ctx, ref)
	if err != nil {
		return nil, err
	}
	v := s.view()
	return &v, nil
}

// source returns the freeze to restore s from. The caller owns a reference.
func (m *Node) source(ctx context.Context, s *snapshot) (*freezes.Freeze, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snap := &s.rec.Snapshot
	if snap.State != api.SnapshotReady && (snap.State != api.SnapshotUploading || s.freeze == nil) {
		return nil, api.Errorf(api.CodeWrongState, "snapshot %s is %s, not ready", s.id, snap.State)
	}
	if snap.Engine != m.engine() {
		return nil, api.Errorf(api.CodeUnsupported, "snapshot %s was made by engine %s, this is %s", s.id, snap.Engine, m.engine())
	}
	if err := checkProcessor(s.rec.Processor, processorFeatures()); err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", s.id, err)
	}
	if s.freeze == nil || s.freeze.State == nil { // never while it is uploading
		if err := m.openSnapshot(ctx, s); err != nil {
			return nil, err
		}
	} else if snap.OnDisk && snap.State == api.SnapshotReady {
		if err := m.recheck(ctx, s); err != nil {
			return nil, err
		}
	}
	m.freezes.Hold(s.freeze, 1)
	return s.freeze, nil
}

// Restore makes new sandboxes from a snapshot.
func (m *Node) Restore(ctx context.Context, ref string, req api.RestoreRequest) (_ *api.ForkResult, err error) {
	ctx, ended := m.observe(ctx, "restore")
	defer ended(&err)
	began := time.Now()
	s, err := m.resolveSnapshot(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := access.From(ctx).MayMake("sandboxes"); err != nil {
		return nil, err
	}
	return m.restore(ctx, s, req, began, false)
}

// restore is Restore. With plain, what is made is not checkpointed by itself.
func (m *Node) restore(ctx context.Context, s *snapshot, req api.RestoreRequest, began time.Time, plain bool) (*api.ForkResult, error) {
	if err := api.ValidMetadata("metadata", merged(s.rec.Source.Metadata, req.Metadata)); err != nil {
		return nil, err
	}
	if err := req.Lifecycle.Valid(); err != nil {
		return nil, err
	}
	fresh, err := api.RequiresFresh(req.Require)
	if err != nil {
		return nil, err
	}
	batch, err := m.newBatch(s.rec.tenant(), began, req.Count, req.Names, req.Env, 0)
	if err != nil {
		return nil, err
	}
	defer batch.close()
	batch.fresh = fresh
	made, err := m.Admit(ctx, s.rec.tenant(), append(slices.Clone(s.rec.Ancestors), s.id), len(batch.drafts))
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	defer made()
	defer m.UseImage(s.rec.Source.Image)() // s may be deleted before the sandboxes are listed
	f, err := m.source(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	defer m.freezes.Drop(f)
	source := &s.rec.Source
	ancestors := append(append([]string{}, s.rec.Ancestors...), s.id)
	for i := range batch.drafts {
		batch.describe(i, source, ancestors, req.Metadata, req.Lifecycle)
		batch.drafts[i].rec.Control = s.rec.Control.Retagged(selfcontrol.Additions(req.Metadata), false)
		d := &batch.drafts[i].rec.Sandbox
		d.Parent, d.Snapshot = source.ID, s.id
		if plain {
			d.AutoCheckpoint = nil
		}
	}
	batch.asked, batch.reply = s.rec.Asked, s.restored
	out := &api.ForkResult{SnapshotMS: millis(began)}
	if err := batch.make(ctx, f, source.Image, true); err != nil {
		return nil, fmt.Errorf("restore: %w", err)
	}
	out.Children = batch.children
	noteChildren(ctx, f, source.Image, batch.children, func(d *api.AuditDetails) { d.Parent, d.Snapshot, d.Digest = source.ID, s.id, s.rec.Digest })
	out.ReturnMS = millis(began)
	return out, nil
}

// restored is what a sandbox is told that was made from s, or rolled back to it,
// if s was its own wish.
func (s *snapshot) restored(sb *api.Sandbox) control.Reply {
	return control.Reply{Restored: &control.Restored{ID: sb.ID, Index: sb.Identity.ForkIndex, Snapshot: control.Snapshot{ID: s.id, Name: s.rec.Label}}}
}
