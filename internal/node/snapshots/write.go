package snapshots

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/snapdir"
)

// Chain says what the next snapshot of a sandbox is compared with.
type Chain struct {
	// Lineage are the ids of what the sandbox descends from, itself the last.
	Lineage []string
	// Turn is held while a snapshot of the sandbox is written: else two would be compared
	// with the one before both.
	Turn *sync.Mutex
}

// Write writes f to disk as s.
func (s *Snapshot) Write(ctx context.Context, f *freezes.Freeze, from Chain) error {
	if err := s.set.engines.Keep(); err != nil {
		s.set.log.Warn("a later version of Ramet may not restore a snapshot", "id", s.ID, "error", err)
	}
	from.Turn.Lock()
	defer from.Turn.Unlock()
	base, undo := s.set.base(ctx, s, from.Lineage)
	defer undo()
	w, err := s.lay(ctx, 0, f, func(snap *snapfile.Snapshot) (*snapdir.Contents, func(string) bool) {
		return base, s.set.referring(s, snap, base)
	})
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return api.Errorf(api.CodeNoSpace, "write snapshot: %w", err)
	}
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	s.mu.Lock()
	s.set.describe(w, &s.rec)
	s.mu.Unlock()
	s.set.setNeeds(s, w.Needs)
	return nil
}

// lay writes the files of a version of s, which is frozen in f. plan says what it is
// compared with and whose files it may refer to.
func (s *Snapshot) lay(ctx context.Context, version int, f *freezes.Freeze, plan snapdir.Plan) (_ *snapdir.Written, err error) {
	// The code below trusts data that a sentry wrote, and most callers are goroutines in
	// which nothing recovers from a panic.
	defer func() {
		if v := recover(); v != nil {
			err = s.set.panicked("writing snapshot "+s.ID, v)
		}
	}()
	files, err := s.set.memFiles.Files(f.Generations)
	if err != nil {
		return nil, err
	}
	dir, err := s.set.paths.Snapshot(s.ID)
	if err != nil {
		return nil, err
	}
	return snapdir.Write(ctx, dir, s.ID, version, snapdir.Source{State: f.State, Generations: f.Generations, Files: files}, plan)
}

// describe puts what was written into a record.
func (t *Set) describe(w *snapdir.Written, rec *Record) {
	rec.Version, rec.Digest, rec.Parts, rec.Needs = w.Version, w.Digest, w.Parts, w.Needs
	rec.Snapshot.SizeBytes, rec.Snapshot.DependsOn = w.Size, nil
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range w.Needs {
		if x := t.byID[id]; x != nil && x.rec.Private == "" {
			rec.Snapshot.DependsOn = append(rec.Snapshot.DependsOn, id)
		}
	}
}

// base returns the contents that s is compared with when it is written: those of the last
// snapshot on disk of its sandbox or of an ancestor, or nil. undo is to be called when s is
// written.
func (t *Set) base(ctx context.Context, s *Snapshot, lineage []string) (_ *snapdir.Contents, undo func()) {
	undo = func() {}
	x := t.last(s, lineage)
	if x == nil || len(t.mayNeed(s, x.ID)) == 0 {
		return nil, undo
	}
	f, err := x.Open(ctx)
	if err != nil {
		t.log.Warn("open a snapshot to compare the next one with", "snapshot", x.ID, "error", err)
		return nil, undo
	}
	state, err := snapdir.OpenState(f.State)
	if err == nil {
		var files []*os.File
		if files, err = t.memFiles.Files(f.Generations); err == nil {
			return &snapdir.Contents{Snap: state.Snap, Files: files}, func() {
				state.Close()
				t.freezes.Drop(f)
			}
		}
		state.Close()
	}
	t.log.Warn("read a snapshot to compare the next one with", "snapshot", x.ID, "error", err)
	t.freezes.Drop(f)
	return nil, undo
}

// last returns the last snapshot on disk, but for s, of a sandbox with the lineage, or of
// an ancestor. It is nil if there is no such snapshot.
func (t *Set) last(s *Snapshot, lineage []string) *Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range slices.Backward(lineage) {
		var last *Snapshot
		for _, x := range t.byID {
			snap := &x.rec.Snapshot // what is read of it never changes
			if x == s || !x.usable() || !snap.OnDisk || snap.Sandbox != id && x.ID != id {
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
func (t *Set) mayNeed(s *Snapshot, ids ...string) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var there []string
	for _, id := range ids {
		if x := t.byID[id]; x != nil && x != s && (x.usable() || slices.Contains(s.needs, id)) && !slices.Contains(there, id) {
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
func (t *Set) setNeeds(s *Snapshot, ids []string) {
	t.mu.Lock()
	s.needs = ids
	t.mu.Unlock()
}

// referring returns which snapshots s may refer to: those that its generations, or those
// of its base, come from. Of too many, it takes the snapshots that have most of the bytes,
// so that the small changes of a long chain are copied now and then, and its first
// snapshot is not.
func (t *Set) referring(s *Snapshot, snap *snapfile.Snapshot, base *snapdir.Contents) func(id string) bool {
	bytes := map[string]uint64{}
	snapdir.Weigh(bytes, snap)
	if base != nil {
		snapdir.Weigh(bytes, base.Snap)
	}
	there := t.mayNeed(s, slices.Sorted(maps.Keys(bytes))...)
	if len(there) > snapdir.MaxNeeds {
		slices.SortStableFunc(there, func(a, b string) int { return cmp.Compare(bytes[b], bytes[a]) })
		there = there[:snapdir.MaxNeeds/2]
	}
	return func(id string) bool { return slices.Contains(there, id) }
}
