package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/storage/store"
)

// A snapshot on disk is a directory with up to three files: the state, a snapshot
// file, and what is its own of the memory and of the pages of the file system, sparse
// files with everything at the place that it has in the sandbox. What is the same in
// the snapshot before is in that one's files, to which the state refers as generations
// (layout.go). All is written beside its place and renamed, so a directory of that name
// is complete.

// writeSnapshot writes f to disk as s, which is of b.
func (m *Node) writeSnapshot(ctx context.Context, b *instance, s *snapshot, f *freeze) error {
	b.writing.Lock() // else both would be compared with what was before
	defer b.writing.Unlock()
	base, undo := m.baseOf(ctx, b, s)
	defer undo()
	w, err := m.lay(ctx, s, 0, f, func(snap *snapfile.Snapshot) (*laid, func(string) bool) {
		return base, m.referring(s, snap, base)
	})
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return api.Errorf(api.CodeNoSpace, "write snapshot: %w", err)
	}
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	s.mu.Lock()
	w.describe(m, &s.rec)
	s.mu.Unlock()
	m.setNeeds(s, s.rec.Needs)
	return nil
}

// written is what came of writing a snapshot.
type written struct {
	version int
	digest  string
	size    int64
	parts   map[string]part
	needs   []string
}

// describe puts it into a record.
func (w *written) describe(m *Node, rec *snapRecord) {
	rec.Version, rec.Digest, rec.Parts, rec.Needs = w.version, w.digest, w.parts, w.needs
	rec.Snapshot.SizeBytes, rec.Snapshot.DependsOn = w.size, nil
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range w.needs {
		if x := m.snaps[id]; x != nil && x.rec.Private == "" {
			rec.Snapshot.DependsOn = append(rec.Snapshot.DependsOn, id)
		}
	}
}

// lay writes the files of a version of s, which is frozen in f. plan says what it is
// compared with and whose files it may refer to.
func (m *Node) lay(ctx context.Context, s *snapshot, version int, f *freeze, plan func(*snapfile.Snapshot) (*laid, func(string) bool)) (_ *written, err error) {
	// It goes by what a sentry wrote, and most who come here have nobody above them who
	// would catch what that may bring about.
	defer func() {
		if v := recover(); v != nil {
			err = m.panicked("writing snapshot "+s.id, v)
		}
	}()
	gens, err := m.gens.files(f.generations)
	if err != nil {
		return nil, err
	}
	data, err := mapWhole(f.file)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(data)
	snap, err := snapfile.Parse(data)
	if err != nil {
		return nil, err
	}
	// What was checked is the list in the sentry's answer, or in the record.
	if !slices.Equal(snap.Generations, f.generations) {
		return nil, api.Errorf(api.CodeCorrupt, "the state of the sandbox is of other memory than it said")
	}
	dir, err := m.cfg.Paths.Snapshot(s.id)
	if err != nil {
		return nil, err
	}
	temp := dir + ".tmp"
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, err
	}
	whole := false
	defer func() {
		if !whole { // err is not set yet in a panic
			os.RemoveAll(temp)
		}
	}()
	l := &layout{laid: laid{snap, gens}, id: s.id, version: version, dir: temp}
	l.base, l.refers = plan(snap)
	if err := l.write(ctx); err != nil {
		return nil, err
	}
	pages := data[snapfile.PagesOffset : snapfile.PagesOffset+snap.Pages]
	w := &written{version: version, parts: l.parts, needs: l.needs()}
	if w.digest, w.size, err = writeState(filepath.Join(temp, versioned("state", version)), snap, pages); err != nil {
		return nil, err
	}
	w.size += l.space
	if err := put(temp, dir, version); err != nil {
		return nil, err
	}
	whole = true
	return w, nil
}

// put moves what was written to its place: the directory, or the files of a new
// version of what is there.
func put(temp, dir string, version int) error {
	if err := syncDir(temp); err != nil {
		return err
	}
	if version == 0 {
		return errors.Join(os.Rename(temp, dir), syncDir(filepath.Dir(dir)))
	}
	entries, err := os.ReadDir(temp)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Rename(filepath.Join(temp, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return errors.Join(os.Remove(temp), syncDir(dir))
}

// writeState writes the state of a snapshot, and returns its digest and size.
func writeState(path string, snap *snapfile.Snapshot, pages []byte) (digest string, size int64, err error) {
	state, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return "", 0, err
	}
	defer state.Close()
	if _, err := state.WriteAt(pages, snapfile.PagesOffset); err != nil {
		return "", 0, err
	}
	if size, err = snap.WriteTo(state); err != nil {
		return "", 0, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(state, 0, size)); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, state.Sync()
}

// baseOf returns what the next snapshot of b on disk is compared with, the last one of
// it or of what it came from, or nil. undo is to be called when that is over.
func (m *Node) baseOf(ctx context.Context, b *instance, s *snapshot) (_ *laid, undo func()) {
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
	base, err := m.laidOf(f)
	if err != nil {
		m.log.Warn("read a snapshot to compare the next one with", "snapshot", x.id, "error", err)
		m.drop(f)
		return nil, undo
	}
	return base.laid, func() {
		base.close()
		m.drop(f)
	}
}

// openLaid is a laid whose state is mapped.
type openLaid struct {
	*laid
	data []byte
}

func (o *openLaid) close() { _ = unix.Munmap(o.data) } // its argument is right

func (m *Node) laidOf(f *freeze) (*openLaid, error) {
	data, err := mapWhole(f.file)
	if err != nil {
		return nil, err
	}
	o := &openLaid{data: data, laid: &laid{}}
	if o.snap, err = snapfile.Parse(data); err == nil {
		o.gens, err = m.gens.files(f.generations)
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// openSnapshot opens s, a snapshot on disk, and gives it a freeze to restore
// from. The memory is paged in when it is used. The caller holds s.mu.
func (m *Node) openSnapshot(ctx context.Context, s *snapshot) error {
	dir, err := m.cfg.Paths.Snapshot(s.id)
	if err != nil {
		return err
	}
	state, err := os.Open(filepath.Join(dir, versioned("state", s.rec.Version)))
	if err != nil {
		return api.Errorf(api.CodeCorrupt, "open snapshot %s: %w", s.id, err)
	}
	f, err := m.checkSnapshot(ctx, s, state)
	if err != nil {
		state.Close()
		return err
	}
	old := s.freeze
	if old != nil && slices.Equal(old.generations, f.generations) { // an earlier daemon restored sandboxes from it
		m.gens.release(f.generations...) // which the freeze holds
		old.file, old.stamp, old.files = f.file, f.stamp, f.files
		return nil
	}
	s.freeze = f
	m.mu.Lock()
	if m.freezes[f.id] != nil { // sandboxes were restored from it when it was in memory, or of another version
		f.id = api.NewID(api.KindSnapshot)
	}
	m.freezes[f.id] = f
	m.mu.Unlock()
	m.drop(old)
	return nil
}

// checkSnapshot compares s with its digests, and returns what it says. The caller
// owns a reference, and one on each generation.
func (m *Node) checkSnapshot(ctx context.Context, s *snapshot, state *os.File) (*freeze, error) {
	read, err := m.checkState(s, state)
	if err != nil {
		return nil, err
	}
	data, err := mapWhole(state)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(data)
	snap, err := snapfile.Parse(data)
	if err != nil {
		return nil, api.Errorf(api.CodeCorrupt, "snapshot %s: %w", s.id, err)
	}
	if err := m.addParts(ctx, s, snap); err != nil {
		return nil, err
	}
	return &freeze{id: s.id, file: state, stamp: read, generations: append([]string{}, snap.Generations...), files: snap.Files, history: s.rec.History, refs: 1}, nil
}

// checkState compares the state of s with its digest. It returns the stamp of the file that it read.
func (m *Node) checkState(s *snapshot, state *os.File) (stamp, error) {
	read, err := stampOf(state) // before: a change while it is read is seen the next time
	if err != nil {
		return stamp{}, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(state, 0, math.MaxInt64)); err != nil || hex.EncodeToString(h.Sum(nil)) != s.rec.Digest {
		return stamp{}, api.Errorf(api.CodeCorrupt, "snapshot %s does not match its digest", s.id)
	}
	return read, nil
}

// recheck compares the files of s, a snapshot on disk that is open, with their digests if they changed since that was
// done last. The caller holds s.mu.
func (m *Node) recheck(ctx context.Context, s *snapshot) error {
	now, err := stampOf(s.freeze.file)
	if err != nil {
		return err
	}
	if now != s.freeze.stamp {
		if s.freeze.stamp, err = m.checkState(s, s.freeze.file); err != nil {
			return err
		}
	}
	for _, name := range s.freeze.generations {
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
	sizes := make([]int64, len(snap.Generations))
	for _, k := range []kind{kindMemory, kindFiles} {
		for _, e := range k.extents(snap) {
			sizes[e.Gen] = max(sizes[e.Gen], int64(e.End))
		}
	}
	for i, name := range snap.Generations {
		if err := m.addPart(ctx, s, name, sizes[i]); err != nil {
			m.gens.release(snap.Generations[:i]...)
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
	return m.gens.add(name, f)
}

// openGeneration opens a generation of s, which is a file of s or of a snapshot that s
// needs: see openPart. The caller holds s.mu.
func (m *Node) openGeneration(ctx context.Context, s *snapshot, name string) (*os.File, error) {
	id, file, ok := ofDisk(name)
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
func (m *Node) openPart(ctx context.Context, s *snapshot, file string) (_ *os.File, err error) {
	dir, err := m.cfg.Paths.Snapshot(s.id)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	now, err := stampOf(f)
	if err != nil {
		return nil, err
	}
	p, known := s.rec.Parts[file]
	if !known && s.rec.Parts != nil {
		return nil, fmt.Errorf("%s is no part of snapshot %s", file, s.id)
	}
	if !known || p.Stamp == now { // one of a version that kept no digests
		return f, nil
	}
	if err := p.check(ctx, f); err != nil {
		return nil, err
	}
	p.Stamp = now
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
	defer m.drop(f)
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
	for name, p := range rec.Parts {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return api.Errorf(api.CodeCorrupt, "verify snapshot: %w", err)
		}
		err = p.check(ctx, f)
		f.Close()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return api.Errorf(api.CodeCorrupt, "verify snapshot: %s/%w", rec.Snapshot.ID, err)
		}
	}
	return nil
}

// mapWhole maps a file for reading.
func mapWhole(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 {
		return nil, api.Errorf(api.CodeCorrupt, "snapshot file is empty")
	}
	return unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
}
