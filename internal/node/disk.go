package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/snapdir"
	"ramet.dev/ramet/internal/storage/store"
)

// writeSnapshot writes f to disk as s, which is of b.
func (m *Node) writeSnapshot(ctx context.Context, b *instance, s *snapshot, f *freezes.Freeze) error {
	b.writing.Lock() // else both would be compared with what was before
	defer b.writing.Unlock()
	base, undo := m.baseOf(ctx, b, s)
	defer undo()
	w, err := m.lay(ctx, s, 0, f, func(snap *snapfile.Snapshot) (*snapdir.Contents, func(string) bool) {
		return base, m.referring(s, snap, base)
	})
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return api.Errorf(api.CodeNoSpace, "write snapshot: %w", err)
	}
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	s.mu.Lock()
	m.describeWritten(w, &s.rec)
	s.mu.Unlock()
	m.setNeeds(s, s.rec.Needs)
	return nil
}

// describeWritten puts what was written into a record.
func (m *Node) describeWritten(w *snapdir.Written, rec *snapRecord) {
	rec.Version, rec.Digest, rec.Parts, rec.Needs = w.Version, w.Digest, w.Parts, w.Needs
	rec.Snapshot.SizeBytes, rec.Snapshot.DependsOn = w.Size, nil
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range w.Needs {
		if x := m.snaps[id]; x != nil && x.rec.Private == "" {
			rec.Snapshot.DependsOn = append(rec.Snapshot.DependsOn, id)
		}
	}
}

// lay writes the files of a version of s, which is frozen in f. plan says what it is
// compared with and whose files it may refer to.
func (m *Node) lay(ctx context.Context, s *snapshot, version int, f *freezes.Freeze, plan snapdir.Plan) (_ *snapdir.Written, err error) {
	// It goes by what a sentry wrote, and most who come here have nobody above them who
	// would catch what that may bring about.
	defer func() {
		if v := recover(); v != nil {
			err = m.panicked("writing snapshot "+s.id, v)
		}
	}()
	files, err := m.memFiles.Files(f.Generations)
	if err != nil {
		return nil, err
	}
	dir, err := m.cfg.Paths.Snapshot(s.id)
	if err != nil {
		return nil, err
	}
	return snapdir.Write(ctx, dir, s.id, version, snapdir.Source{State: f.State, Generations: f.Generations, Files: files}, plan)
}

// baseOf returns what the next snapshot of b on disk is compared with, the last one of
// it or of what it came from, or nil. undo is to be called when that is over.
func (m *Node) baseOf(ctx context.Context, b *instance, s *snapshot) (_ *snapdir.Contents, undo func()) {
	undo = func() {}
	x := m.lastOf(b, s)
	if x == nil || len(m.mayNeed(s, x.id)) == 0 {
		return nil, undo
	}
	f, err := m.source(ctx, x)
	if err != nil {
		m.log.Warn("open a snapshot to compare the next one with", "snapshot", x.id, "error", err)
		return nil, undo
	}
	state, err := snapdir.OpenState(f.State)
	if err == nil {
		var files []*os.File
		if files, err = m.memFiles.Files(f.Generations); err == nil {
			return &snapdir.Contents{Snap: state.Snap, Files: files}, func() {
				state.Close()
				m.freezes.Drop(f)
			}
		}
		state.Close()
	}
	m.log.Warn("read a snapshot to compare the next one with", "snapshot", x.id, "error", err)
	m.freezes.Drop(f)
	return nil, undo
}

// openSnapshot opens s, a snapshot on disk, and gives it a freeze to restore
// from. The memory is paged in when it is used. The caller holds s.mu.
func (m *Node) openSnapshot(ctx context.Context, s *snapshot) error {
	dir, err := m.cfg.Paths.Snapshot(s.id)
	if err != nil {
		return err
	}
	state, err := os.Open(filepath.Join(dir, snapdir.StateFile(s.rec.Version)))
	if err != nil {
		return api.Errorf(api.CodeCorrupt, "open snapshot %s: %w", s.id, err)
	}
	f, read, err := m.checkSnapshot(ctx, s, state)
	if err != nil {
		state.Close()
		return err
	}
	s.stamp = read
	old := s.freeze
	if old != nil && slices.Equal(old.Generations, f.Generations) { // an earlier daemon restored sandboxes from it
		m.memFiles.Release(f.Generations...) // which the freeze holds
		old.Reopen(*f)
		return nil
	}
	s.freeze = m.freezes.Opened(*f)
	m.freezes.Drop(old)
	return nil
}

// checkSnapshot compares s with its digests. It returns the freeze that s describes,
// which no table has yet, and the stamp of the state. The caller owns a reference on each
// generation.
func (m *Node) checkSnapshot(ctx context.Context, s *snapshot, state *os.File) (*freezes.Freeze, snapdir.Stamp, error) {
	read, err := m.checkState(s, state)
	if err != nil {
		return nil, snapdir.Stamp{}, err
	}
	open, err := snapdir.OpenState(state)
	if err != nil {
		return nil, snapdir.Stamp{}, api.Errorf(api.CodeCorrupt, "snapshot %s: %w", s.id, err)
	}
	defer open.Close()
	snap := open.Snap
	if err := m.addParts(ctx, s, snap); err != nil {
		return nil, snapdir.Stamp{}, err
	}
	return &freezes.Freeze{ID: s.id, State: state, Generations: append([]string{}, snap.Generations...), Files: snap.Files, History: s.rec.History}, read, nil
}

// checkState compares the state of s with its digest. It returns the stamp of the file that it read.
func (m *Node) checkState(s *snapshot, state *os.File) (snapdir.Stamp, error) {
	read, err := snapdir.CheckState(state, s.rec.Digest)
	if errors.Is(err, snapdir.ErrDigest) {
		err = api.Errorf(api.CodeCorrupt, "snapshot %s does not match its digest", s.id)
	}
	return read, err
}

// recheck compares the files of s, a snapshot on disk that is open, with their digests if they changed since that was
// done last. The caller holds s.mu.
func (m *Node) recheck(ctx context.Context, s *snapshot) error {
	now, err := snapdir.StampOf(s.freeze.State)
	if err != nil {
		return err
	}
	if now != s.stamp {
		if s.stamp, err = m.checkState(s, s.freeze.State); err != nil {
			return err
		}
	}
	for _, name := range s.freeze.Generations {
		f, err := m.openGeneration(ctx, s, name)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return api.Errorf(api.CodeCorrupt, "open snapshot %s: %w", s.id, err)
		}
		f.Close()
	}
	return nil
}

// addParts takes a reference on each generation of a snapshot on disk, or on none.
func (m *Node) addParts(ctx context.Context, s *snapshot, snap *snapfile.Snapshot) error {
	sizes := snapdir.Sizes(snap)
	for i, name := range snap.Generations {
		if err := m.addPart(ctx, s, name, sizes[i]); err != nil {
			m.memFiles.Release(snap.Generations[:i]...)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return api.Errorf(api.CodeCorrupt, "open snapshot %s: %w", s.id, err)
		}
	}
	return nil
}

// addPart takes a reference on a generation of s, of which size bytes are referred to.
// The caller holds s.mu.
func (m *Node) addPart(ctx context.Context, s *snapshot, name string, size int64) error {
	f, err := m.openGeneration(ctx, s, name)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() < size {
		return fmt.Errorf("%s has not %d bytes", name, size)
	}
	return m.memFiles.Add(name, f)
}

// openGeneration opens a generation of s, which is a file of s or of a snapshot that s
// needs: see openPart. The caller holds s.mu.
func (m *Node) openGeneration(ctx context.Context, s *snapshot, name string) (*os.File, error) {
	id, file, ok := snapdir.Owner(name)
	if !ok || id != s.id && !slices.Contains(s.rec.Needs, id) {
		return nil, fmt.Errorf("%q is no generation of it", name)
	}
	of := s
	if id != s.id {
		m.mu.Lock()
		of = m.snaps[id]
		m.mu.Unlock()
		if of == nil {
			return nil, fmt.Errorf("snapshot %s, which has part of it, is gone", id)
		}
		of.mu.Lock() // it is older than s: nobody locks the two in another order
		defer of.mu.Unlock()
	}
	return m.openPart(ctx, of, file)
}

// openPart opens a file of s and compares it with its digest, unless it is the very
// file that was compared before. The caller holds s.mu.
func (m *Node) openPart(ctx context.Context, s *snapshot, file string) (*os.File, error) {
	dir, err := m.cfg.Paths.Snapshot(s.id)
	if err != nil {
		return nil, err
	}
	p, known := s.rec.Parts[file]
	if !known {
		if s.rec.Parts != nil {
			return nil, fmt.Errorf("%s is no part of snapshot %s", file, s.id)
		}
		f, _, err := snapdir.OpenPart(ctx, dir, file, nil) // of a version that kept no digests
		return f, err
	}
	f, changed, err := snapdir.OpenPart(ctx, dir, file, &p)
	if err != nil || !changed {
		return f, err
	}
	s.rec.Parts = maps.Clone(s.rec.Parts)
	s.rec.Parts[file] = p
	if err := m.store.Apply(ctx, store.Change{Table: store.Snapshots, ID: s.id, Doc: s.rec}); err != nil {
		m.log.Warn("record that a snapshot was checked", "id", s.id, "error", err) // it will be checked again
	}
	return f, nil
}

// verify reads all that s consists of and compares it with its digests.
func (m *Node) verify(ctx context.Context, s *snapshot) error {
	f, err := m.source(ctx, s) // compares the state, and keeps what is read here
	if err != nil {
		return err
	}
	defer m.freezes.Drop(f)
	rec := s.record()
	for _, id := range append([]string{s.id}, rec.Needs...) {
		m.mu.Lock()
		x := m.snaps[id]
		m.mu.Unlock()
		if x == nil {
			return api.Errorf(api.CodeCorrupt, "snapshot %s, which has part of %s, is gone", id, s.id)
		}
		if err := m.verifyParts(ctx, x.record()); err != nil {
			return err
		}
	}
	return nil
}

func (m *Node) verifyParts(ctx context.Context, rec snapRecord) error {
	dir, err := m.cfg.Paths.Snapshot(rec.Snapshot.ID)
	if err != nil {
		return err
	}
	return snapdir.CheckParts(ctx, dir, rec.Snapshot.ID, rec.Parts)
}
