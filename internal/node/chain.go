package node

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/storage/store"
)

// Snapshots on disk form chains: one needs those whose files it refers to. What is
// needed stays, whoever deletes it; from the moment at which a snapshot may come to
// refer to another one, that counts as needed.

// chained is what of a snapshot decides how long its files stay. It is guarded by
// Manager.mu.
type chained struct {
	needs   []string // snapshots whose files it refers to, or may do so soon
	settled bool     // it is whole
	failed  bool     // it is of no use
	deleted bool     // it is there for those only that need it
	buried  bool     // that is recorded
	// rewriting says that its files are being written anew: who deletes it meanwhile
	// leaves it to be collected after that.
	rewriting bool
}

// usable reports whether others may refer to it.
func (c *chained) usable() bool { return c.settled && !c.failed && !c.deleted }

// lastOf returns what the next snapshot of b, s, is compared with: the last one on disk
// of b, or of what it came from. It is nil if there is none.
func (m *Node) lastOf(b *instance, s *snapshot) *snapshot {
	b.mu.Lock()
	line := b.rec.lineage()
	b.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range slices.Backward(line) {
		var last *snapshot
		for _, x := range m.snaps {
			snap := &x.rec.Snapshot // what is read of it never changes
			if x == s || !x.usable() || !snap.OnDisk || snap.Sandbox != id && x.id != id {
				continue
			}
			if last == nil || snap.CreatedAt.After(last.rec.Snapshot.CreatedAt) {
				last = x
			}
		}
		if last != nil {
			return last
		}
	}
	return nil
}

// mayNeed notes that s may refer to files of others, and returns those of them that
// are there to be referred to.
func (m *Node) mayNeed(s *snapshot, ids ...string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var there []string
	for _, id := range ids {
		if x := m.snaps[id]; x != nil && x != s && (x.usable() || slices.Contains(s.needs, id)) && !slices.Contains(there, id) {
			there = append(there, id)
		}
	}
	for _, id := range there {
		if !slices.Contains(s.needs, id) {
			s.needs = append(s.needs, id)
		}
	}
	return there
}

// setNeeds notes which others s refers to.
func (m *Node) setNeeds(s *snapshot, ids []string) {
	m.mu.Lock()
	s.needs = ids
	m.mu.Unlock()
}

// referring returns which snapshots s may refer to: those that its generations are
// of, or its base's. Of too many, those that have most of it: what a chain of small
// changes has is copied now and then, and not what it began with.
func (m *Node) referring(s *snapshot, snap *snapfile.Snapshot, base *snapdir.Contents) func(id string) bool {
	bytes := map[string]uint64{}
	snapdir.Weigh(bytes, snap)
	if base != nil {
		snapdir.Weigh(bytes, base.Snap)
	}
	there := m.mayNeed(s, slices.Sorted(maps.Keys(bytes))...)
	if len(there) > snapdir.MaxNeeds {
		slices.SortStableFunc(there, func(a, b string) int { return cmp.Compare(bytes[b], bytes[a]) })
		there = there[:snapdir.MaxNeeds/2]
	}
	return func(id string) bool { return slices.Contains(there, id) }
}

// dependentsLocked returns the snapshots that users see and that need s, and those that
// need them. The caller holds m.mu.
func (m *Node) dependentsLocked(s *snapshot) []*snapshot {
	var list []*snapshot
	for todo := []string{s.id}; len(todo) > 0; todo = todo[1:] {
		for _, x := range m.snaps {
			if slices.Contains(x.needs, todo[0]) && !x.deleted && x.rec.Private == "" && x != s && !slices.Contains(list, x) {
				list, todo = append(list, x), append(todo, x.id)
			}
		}
	}
	slices.SortFunc(list, func(a, b *snapshot) int { return a.rec.Snapshot.CreatedAt.Compare(b.rec.Snapshot.CreatedAt) })
	return list
}

// DeleteSnapshot deletes a snapshot. Sandboxes that were restored from it keep what
// they need. Others on disk that were written as what differs from it are deleted
// too, or made whole, as the request says, or it is a CodeConflict error that there
// are any.
func (m *Node) DeleteSnapshot(ctx context.Context, ref string, how api.SnapshotDeletion) error {
	if how.Cascade && how.Flatten {
		return api.Invalid("flatten", "what depends on the snapshot is deleted or made whole, not both")
	}
	s, err := m.resolveSnapshot(ctx, ref)
	if err != nil {
		return err
	}
	for {
		dependents, err := m.condemn(s, how.Cascade)
		if err != nil {
			return err
		}
		if len(dependents) == 0 {
			break
		}
		if !how.Flatten {
			return m.protected(s, dependents)
		}
		for _, d := range dependents {
			if err := m.flatten(ctx, d, s.id); err != nil {
				return fmt.Errorf("make snapshot %s independent of %s: %w", d.id, s.id, err)
			}
		}
	}
	m.collectSnapshots()
	return nil
}

func (m *Node) protected(s *snapshot, dependents []*snapshot) error {
	var names []string
	for _, d := range dependents {
		name := d.id
		if n := d.view().Name; n != "" {
			name += " (" + n + ")"
		}
		names = append(names, name)
	}
	return api.Errorf(api.CodeConflict, "snapshot %s has part of what %s: delete them first, or all at once (cascade), or have them made independent of it (flatten)",
		s.id, strings.Join(names, ", ")+plural(len(names), " is made of", " are made of"))
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// condemn marks s as deleted, unless others that users see depend on it, which it
// returns. With cascade they are deleted, too.
func (m *Node) condemn(s *snapshot, cascade bool) ([]*snapshot, error) {
	m.mu.Lock()
	if m.snaps[s.id] != s || s.deleted {
		m.mu.Unlock()
		return nil, api.NotFound("snapshot", s.id) // somebody was faster
	}
	dependents := m.dependentsLocked(s)
	if len(dependents) > 0 && !cascade {
		direct := directly(s, dependents)
		m.mu.Unlock()
		return direct, nil
	}
	doomed := append(dependents, s)
	for _, x := range doomed {
		if !x.settled {
			m.mu.Unlock()
			return nil, api.Errorf(api.CodeWrongState, "snapshot %s is still being written", x.id)
		}
	}
	for _, x := range doomed {
		x.deleted = true
		m.freeNameLocked(x)
	}
	m.mu.Unlock()
	for _, x := range doomed {
		m.markDeleted(x)
	}
	return nil, nil
}

// directly returns those of dependents that need s itself. The caller holds
// Manager.mu.
func directly(s *snapshot, dependents []*snapshot) []*snapshot {
	return slices.DeleteFunc(slices.Clone(dependents), func(d *snapshot) bool { return !slices.Contains(d.needs, s.id) })
}

// markDeleted records that s is deleted, and gives up its memory. Its files are collected
// when nobody needs them.
func (m *Node) markDeleted(s *snapshot) {
	s.mu.Lock()
	f := s.freeze
	s.freeze = nil
	s.rec.Snapshot.State = api.SnapshotDeleted
	rec := s.rec
	s.mu.Unlock()
	m.freezes.Drop(f)
	m.alarms.Clear(s.id)
	if err := m.store.Apply(context.Background(), store.Change{Table: store.Snapshots, ID: s.id, Doc: rec}); err != nil {
		m.log.Error("record that a snapshot is deleted", "id", s.id, "error", err)
	}
	m.mu.Lock()
	s.buried = true // not before: a record must not be written after it was removed
	m.mu.Unlock()
}

// collectSnapshots removes the snapshots that nobody needs any more: deleted ones, and
// those of sandboxes that went on without them.
func (m *Node) collectSnapshots() {
	for {
		garbage := m.garbage()
		for _, s := range garbage {
			m.removeSnapshot(s)
		}
		if len(garbage) == 0 {
			return
		}
	}
}

func (m *Node) garbage() (list []*snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	needed := map[string]bool{}
	for _, s := range m.snaps {
		for _, id := range s.needs {
			needed[id] = true
		}
	}
	for _, s := range m.snaps {
		if needed[s.id] || !s.settled || s.rewriting {
			continue // who writes it removes it if that fails, or looks here again
		}
		if s.buried || s.rec.Private != "" && !m.instances[s.rec.Private].keeps(s.id) {
			list = append(list, s)
		}
	}
	return list
}

// keeps reports whether the snapshot id is one that b, which may be nil, may return
// to by itself.
func (b *instance) keeps(id string) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.Hibernation == id || b.rec.Base == id || b.timeline.has(id)
}

// flatten makes d, which is ready and on disk, independent of the snapshot called
// without: what it has of that is copied to files of its own, beside those it has, of
// which others may have part. Sandboxes that were restored from it go on as they are.
// If d is deleted meanwhile there is nothing left to do.
func (m *Node) flatten(ctx context.Context, d *snapshot, without string) (err error) {
	m.flattening.Lock()
	defer m.flattening.Unlock()
	if !m.beginRewrite(d) {
		return nil
	}
	defer func() {
		if gone := m.endRewrite(d); gone {
			err = nil
		}
	}()
	if v := d.view(); v.State != api.SnapshotReady {
		return api.Errorf(api.CodeWrongState, "it is %s", v.State)
	}
	f, err := m.source(ctx, d)
	if err != nil {
		return err
	}
	defer m.freezes.Drop(f)
	old := d.record()
	if !slices.Contains(old.Needs, without) {
		return nil // somebody was faster
	}
	refers := func(id string) bool { return id == d.id || id != without && slices.Contains(old.Needs, id) }
	w, err := m.lay(ctx, d, old.Version+1, f, func(*snapfile.Snapshot) (*snapdir.Contents, func(string) bool) { return nil, refers })
	if err != nil {
		return err
	}
	w.Size += old.Snapshot.SizeBytes
	for name, p := range old.Parts {
		w.Parts[name] = p
	}
	d.mu.Lock()
	if d.rec.Snapshot.State == api.SnapshotDeleted {
		d.mu.Unlock()
		return nil // the new files go with the others, or are collected at the next start
	}
	rec := d.rec
	m.describeWritten(w, &rec)
	if err = m.store.Apply(ctx, store.Change{Table: store.Snapshots, ID: d.id, Doc: rec}); err == nil {
		m.describeWritten(w, &d.rec)
		f, d.freeze = d.freeze, nil
	}
	d.mu.Unlock()
	if err != nil {
		return err // the new files are collected at the next start
	}
	defer m.freezes.Drop(f)
	m.setNeeds(d, rec.Needs)
	if err := m.store.Sync(ctx); err != nil {
		return err
	}
	dir, err := m.cfg.Paths.Snapshot(d.id)
	if err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, snapdir.StateFile(old.Version)))
}

// beginRewrite keeps d from being collected until endRewrite. It reports whether d is
// still there.
func (m *Node) beginRewrite(d *snapshot) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := m.snaps[d.id] == d && !d.deleted
	d.rewriting = there
	return there
}

// endRewrite reports whether d has been deleted since.
func (m *Node) endRewrite(d *snapshot) (deleted bool) {
	m.mu.Lock()
	d.rewriting = false
	deleted = d.deleted
	m.mu.Unlock()
	if deleted {
		m.collectSnapshots()
	}
	return deleted
}
