package snapshots

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/storage/store"
)

// dependents returns the snapshots that users see and that need s, and those that
// need them. The caller holds t.mu.
func (t *Set) dependents(s *Snapshot) []*Snapshot {
	var list []*Snapshot
	for todo := []string{s.ID}; len(todo) > 0; todo = todo[1:] {
		for _, x := range t.byID {
			if slices.Contains(x.needs, todo[0]) && x.state != api.SnapshotDeleted && x.rec.Private == "" && x != s && !slices.Contains(list, x) {
				list, todo = append(list, x), append(todo, x.ID)
			}
		}
	}
	slices.SortFunc(list, func(a, b *Snapshot) int { return a.rec.Snapshot.CreatedAt.Compare(b.rec.Snapshot.CreatedAt) })
	return list
}

// DeleteSnapshot deletes a snapshot. Sandboxes that were restored from it keep the files
// they need. Its dependents, the snapshots on disk that were written as differences from
// it, are deleted too, or made whole, as the request says. If the request says neither,
// dependents are a CodeConflict error.
func (r *Requests) DeleteSnapshot(ctx context.Context, ref string, how api.SnapshotDeletion) error {
	if how.Cascade && how.Flatten {
		return api.Invalid("flatten", "what depends on the snapshot is deleted or made whole, not both")
	}
	s, err := r.set.Find(ctx, ref)
	if err != nil {
		return err
	}
	for {
		dependents, err := r.set.condemn(s, how.Cascade)
		if err != nil {
			return err
		}
		if len(dependents) == 0 {
			break
		}
		if !how.Flatten {
			return protected(s, dependents)
		}
		for _, d := range dependents {
			if err := d.flatten(ctx, s.ID); err != nil {
				return fmt.Errorf("make snapshot %s independent of %s: %w", d.ID, s.ID, err)
			}
		}
	}
	r.set.Collect()
	return nil
}

// protected returns the CodeConflict error that names the dependents of s.
func protected(s *Snapshot, dependents []*Snapshot) error {
	var names []string
	for _, d := range dependents {
		name := d.ID
		if n := d.View().Name; n != "" {
			name += " (" + n + ")"
		}
		names = append(names, name)
	}
	return api.Errorf(api.CodeConflict, "snapshot %s has part of what %s: delete them first, or all at once (cascade), or have them made independent of it (flatten)",
		s.ID, strings.Join(names, ", ")+plural(len(names), " is made of", " are made of"))
}

func plural(n int, one, more string) string {
	if n == 1 {
		return one
	}
	return more
}

// condemn marks s as deleted, unless others that users see depend on it, which it
// returns. With cascade they are deleted, too.
func (t *Set) condemn(s *Snapshot, cascade bool) ([]*Snapshot, error) {
	t.mu.Lock()
	if t.byID[s.ID] != s || s.state == api.SnapshotDeleted {
		t.mu.Unlock()
		return nil, api.NotFound("snapshot", s.ID) // somebody was faster
	}
	dependents := t.dependents(s)
	if len(dependents) > 0 && !cascade {
		direct := directly(s, dependents)
		t.mu.Unlock()
		return direct, nil
	}
	doomed := append(dependents, s)
	for _, x := range doomed {
		if !x.settled() {
			t.mu.Unlock()
			return nil, api.Errorf(api.CodeWrongState, "snapshot %s is still being written", x.ID)
		}
	}
	for _, x := range doomed {
		if err := x.condition.become(x.ID, api.SnapshotDeleted, ""); err != nil {
			t.log.Error("delete a snapshot", "error", err)
		}
		t.freeName(x)
	}
	t.mu.Unlock()
	for _, x := range doomed {
		x.markDeleted()
	}
	return nil, nil
}

// directly returns those of dependents that need s itself. The caller holds
// Set.mu.
func directly(s *Snapshot, dependents []*Snapshot) []*Snapshot {
	return slices.DeleteFunc(slices.Clone(dependents), func(d *Snapshot) bool { return !slices.Contains(d.needs, s.ID) })
}

// Collect removes the snapshots that nobody needs any more: deleted ones, and
// those of sandboxes that went on without them.
func (t *Set) Collect() {
	for {
		garbage := t.garbage()
		for _, s := range garbage {
			s.Remove()
		}
		if len(garbage) == 0 {
			return
		}
	}
}

func (t *Set) garbage() (list []*Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	needed := map[string]bool{}
	for _, s := range t.byID {
		for _, id := range s.needs {
			needed[id] = true
		}
	}
	for _, s := range t.byID {
		if needed[s.ID] || !s.settled() || s.rewriting {
			continue // who writes it removes it if that fails, or looks here again
		}
		if s.state == api.SnapshotDeleted || s.rec.Private != "" && !t.keeps(s.rec.Private, s.ID) {
			list = append(list, s)
		}
	}
	return list
}

// flatten makes d, which is ready and on disk, independent of the snapshot called
// without: pages that d reads from files of that snapshot are copied to files of its own.
// The files that d has stay, as other snapshots may refer to them. Sandboxes that were
// restored from d go on as they are.
// If d is deleted meanwhile there is nothing left to do.
func (d *Snapshot) flatten(ctx context.Context, without string) (err error) {
	t := d.set
	t.flattening.Lock()
	defer t.flattening.Unlock()
	if !t.beginRewrite(d) {
		return nil
	}
	defer func() {
		if gone := t.endRewrite(d); gone {
			err = nil
		}
	}()
	if state := d.State(); state != api.SnapshotReady {
		return api.Errorf(api.CodeWrongState, "it is %s", state)
	}
	f, err := d.Open(ctx)
	if err != nil {
		return err
	}
	defer t.freezes.Drop(f)
	old := d.Record()
	if !slices.Contains(old.Needs, without) {
		return nil // somebody was faster
	}
	refers := func(id string) bool { return id == d.ID || id != without && slices.Contains(old.Needs, id) }
	w, err := d.lay(ctx, old.Version+1, f, func(*snapfile.Snapshot) (*snapdir.Contents, func(string) bool) { return nil, refers })
	if err != nil {
		return err
	}
	w.Size += old.Snapshot.SizeBytes
	for name, p := range old.Parts {
		w.Parts[name] = p
	}
	d.mu.Lock()
	rec := d.record()
	if rec.Snapshot.State == api.SnapshotDeleted {
		d.mu.Unlock()
		return nil // the new files go with the others, or are collected at the next start
	}
	t.describe(w, &rec)
	if err = t.store.Apply(ctx, store.Change{Table: store.Snapshots, ID: d.ID, Doc: rec}); err == nil {
		t.describe(w, &d.rec)
		f, d.freeze = d.freeze, nil
	}
	d.mu.Unlock()
	if err != nil {
		return err // the new files are collected at the next start
	}
	defer t.freezes.Drop(f)
	t.setNeeds(d, rec.Needs)
	if err := t.store.Sync(ctx); err != nil {
		return err
	}
	dir, err := t.paths.Snapshot(d.ID)
	if err != nil {
		return err
	}
	return os.Remove(filepath.Join(dir, snapdir.StateFile(old.Version)))
}

// beginRewrite keeps d from being collected until endRewrite. It reports whether d is
// still there.
func (t *Set) beginRewrite(d *Snapshot) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	there := t.byID[d.ID] == d && d.state != api.SnapshotDeleted
	d.rewriting = there
	return there
}

// endRewrite reports whether d has been deleted since.
func (t *Set) endRewrite(d *Snapshot) (deleted bool) {
	t.mu.Lock()
	d.rewriting = false
	deleted = d.state == api.SnapshotDeleted
	t.mu.Unlock()
	if deleted {
		t.Collect()
	}
	return deleted
}
