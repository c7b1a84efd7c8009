package snapshots

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/snapdir"
)

// Open returns the freeze to restore s from. The caller owns a reference.
func (s *Snapshot) Open(ctx context.Context) (*freezes.Freeze, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.record()
	snap := &rec.Snapshot
	if snap.State != api.SnapshotReady && (snap.State != api.SnapshotUploading || s.freeze == nil) {
		return nil, api.Errorf(api.CodeWrongState, "snapshot %s is %s, not ready", s.ID, snap.State)
	}
	if err := checkArchitecture(rec.Architecture, runtime.GOARCH); err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", s.ID, err)
	}
	if !s.set.engines.Knows(snap.Engine) {
		return nil, api.Errorf(api.CodeUnsupported, "snapshot %s is for engine %q, which is not here: use the ramet that made it", s.ID, snap.Engine)
	}
	if err := checkProcessor(rec.Processor, ProcessorFeatures()); err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", s.ID, err)
	}
	if s.freeze == nil || s.freeze.State == nil { // never while it is uploading
		if err := s.open(ctx); err != nil {
			return nil, err
		}
	} else if snap.OnDisk && snap.State == api.SnapshotReady {
		if err := s.recheck(ctx); err != nil {
			return nil, err
		}
	}
	s.set.freezes.Hold(s.freeze, 1)
	return s.freeze, nil
}

// open opens s, a snapshot on disk, and gives it a freeze to restore from. The memory is paged in when it is used. The caller holds s.mu.
func (s *Snapshot) open(ctx context.Context) error {
	dir, err := s.set.paths.Snapshot(s.ID)
	if err != nil {
		return err
	}
	state, err := os.Open(filepath.Join(dir, snapdir.StateFile(s.rec.Version)))
	if err != nil {
		return api.Errorf(api.CodeCorrupt, "open snapshot %s: %w", s.ID, err)
	}
	f, read, err := s.check(ctx, state)
	if err != nil {
		state.Close()
		return err
	}
	s.stamp = read
	old := s.freeze
	if old != nil && slices.Equal(old.Generations, f.Generations) { // an earlier daemon restored sandboxes from it
		s.set.memFiles.Release(f.Generations...) // which the freeze holds
		old.Reopen(*f)
		return nil
	}
	s.freeze = s.set.freezes.Opened(*f)
	s.set.freezes.Drop(old)
	return nil
}

// check compares s with its digests. It returns the freeze that s describes,
// which no table has yet, and the stamp of the state. The caller owns a reference on each
// generation.
func (s *Snapshot) check(ctx context.Context, state *os.File) (*freezes.Freeze, snapdir.Stamp, error) {
	read, err := checkState(&s.rec, state)
	if err != nil {
		return nil, snapdir.Stamp{}, err
	}
	open, err := snapdir.OpenState(state)
	if err != nil {
		return nil, snapdir.Stamp{}, api.Errorf(api.CodeCorrupt, "snapshot %s: %w", s.ID, err)
	}
	defer open.Close()
	snap := open.Snap
	if err := s.addParts(ctx, snap); err != nil {
		return nil, snapdir.Stamp{}, err
	}
	return &freezes.Freeze{ID: s.ID, Engine: s.rec.Snapshot.Engine, State: state, Generations: append([]string{}, snap.Generations...), Files: snap.Files, History: s.rec.History}, read, nil
}

// checkState compares the state of a snapshot with its digest. It returns the stamp of the
// file that it read.
func checkState(rec *Record, state *os.File) (snapdir.Stamp, error) {
	read, err := snapdir.CheckState(state, rec.Digest)
	if errors.Is(err, snapdir.ErrDigest) {
		err = api.Errorf(api.CodeCorrupt, "snapshot %s does not match its digest", rec.Snapshot.ID)
	}
	return read, err
}

// recheck compares the files of s, a snapshot on disk that is open, with their digests if they changed since that was
// done last. The caller holds s.mu.
func (s *Snapshot) recheck(ctx context.Context) error {
	now, err := snapdir.StampOf(s.freeze.State)
	if err != nil {
		return err
	}
	if now != s.stamp {
		if s.stamp, err = checkState(&s.rec, s.freeze.State); err != nil {
			return err
		}
	}
	for _, name := range s.freeze.Generations {
		f, err := s.openGeneration(ctx, name)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return api.Errorf(api.CodeCorrupt, "open snapshot %s: %w", s.ID, err)
		}
		f.Close()
	}
	return nil
}

// addParts takes a reference on each generation of a snapshot on disk, or on none.
func (s *Snapshot) addParts(ctx context.Context, snap *snapfile.Snapshot) error {
	sizes := snapdir.Sizes(snap)
	add := func(name string, size int64) error {
		f, err := s.openGeneration(ctx, name)
		if err != nil {
			return err
		}
		defer f.Close()
		if st, err := f.Stat(); err != nil || st.Size() < size {
			return fmt.Errorf("%s has not %d bytes", name, size)
		}
		return s.set.memFiles.Add(name, f)
	}
	for i, name := range snap.Generations {
		if err := add(name, sizes[i]); err != nil {
			s.set.memFiles.Release(snap.Generations[:i]...)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return api.Errorf(api.CodeCorrupt, "open snapshot %s: %w", s.ID, err)
		}
	}
	return nil
}

// openGeneration opens a generation of s, which is a file of s or of a snapshot that s
// needs: see openPart. The caller holds s.mu.
func (s *Snapshot) openGeneration(ctx context.Context, name string) (*os.File, error) {
	id, file, ok := snapdir.Owner(name)
	if !ok || id != s.ID && !slices.Contains(s.rec.Needs, id) {
		return nil, fmt.Errorf("%q is no generation of it", name)
	}
	of := s
	if id != s.ID {
		if of = s.set.Get(id); of == nil {
			return nil, fmt.Errorf("snapshot %s, which has part of it, is gone", id)
		}
		of.mu.Lock() // it is older than s: nobody locks the two in another order
		defer of.mu.Unlock()
	}
	return of.openPart(ctx, file)
}

// openPart opens a file of s and compares it with its digest, unless it is the very
// file that was compared before. The caller holds s.mu.
func (s *Snapshot) openPart(ctx context.Context, file string) (*os.File, error) {
	dir, err := s.set.paths.Snapshot(s.ID)
	if err != nil {
		return nil, err
	}
	p, known := s.rec.Parts[file]
	if !known {
		if s.rec.Parts != nil {
			return nil, fmt.Errorf("%s is no part of snapshot %s", file, s.ID)
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
	s.store("record that a snapshot was checked") // if that fails, it is checked again
	return f, nil
}
