package node

import (
	"context"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/store"
)

// retain deletes what a snapshot that has become ready leaves above the number that
// its tree may keep, the oldest first. A name keeps a snapshot from that.
func (m *Node) retain(s *snapshot) {
	rec := s.record()
	life := rec.Source.Lifecycle
	if life == nil || life.KeepSnapshots == 0 || rec.Private != "" {
		return
	}
	var list []api.Snapshot
	for _, x := range m.allSnapshots() {
		r := x.record()
		if r.root() == rec.root() && r.Private == "" && r.Snapshot.Name == "" && r.Snapshot.State == api.SnapshotReady {
			list = append(list, r.Snapshot)
		}
	}
	slices.SortFunc(list, func(a, b api.Snapshot) int { return b.CreatedAt.Compare(a.CreatedAt) })
	for _, old := range list[min(life.KeepSnapshots, len(list)):] {
		m.expire(old.ID)
	}
}

// root returns the tree that the snapshot belongs to: the sandbox that was created.
func (r *snapRecord) root() string { return r.Ancestors[0] }

// expire deletes a snapshot whose time is over. Those that were written as what
// differs from it do not lose anything: its files stay as long as they need them.
func (m *Node) expire(id string) {
	m.mu.Lock()
	s := m.snaps[id]
	due := s != nil && s.settled && !s.deleted
	if due {
		s.deleted = true
		m.freeNameLocked(s)
	}
	m.mu.Unlock()
	if !due {
		return
	}
	m.markDeleted(s)
	m.collectSnapshots()
}

// armSnapshots sets when snapshots are to be deleted.
func (m *Node) armSnapshots(list ...*snapshot) {
	for _, s := range list {
		if v := s.view(); v.ExpiresAt != nil && v.State == api.SnapshotReady {
			m.alarms.Set(s.id, *v.ExpiresAt)
		}
	}
}

// VerifySnapshot reads all that a snapshot on disk consists of and compares it with
// its digests. One that does not match has failed then.
func (m *Node) VerifySnapshot(ctx context.Context, ref string) (*api.Snapshot, error) {
	s, err := m.resolveSnapshot(ctx, ref)
	if err != nil {
		return nil, err
	}
	rec := s.record()
	if rec.Snapshot.State != api.SnapshotReady || !rec.Snapshot.OnDisk {
		return nil, api.Errorf(api.CodeWrongState, "snapshot %s is not ready and on disk", s.id)
	}
	err = m.verify(ctx, s)
	if api.CodeOf(err) == api.CodeCorrupt {
		m.spoil(s, err)
	}
	if err != nil {
		return nil, err
	}
	v := s.view()
	return &v, nil
}

// spoil makes s one that nobody may use, as it is damaged. Its files stay while others
// have part of them, and are checked for those as before.
func (m *Node) spoil(s *snapshot, reason error) {
	m.mu.Lock()
	s.failed = true
	m.mu.Unlock()
	s.mu.Lock()
	s.rec.Snapshot.State, s.rec.Snapshot.Reason = api.SnapshotFailed, reason.Error()
	rec := s.rec
	s.mu.Unlock()
	if err := m.store.Apply(context.Background(), store.Change{Table: store.Snapshots, ID: s.id, Doc: rec}); err != nil {
		m.log.Error("record that a snapshot is damaged", "id", s.id, "error", err)
	}
}
