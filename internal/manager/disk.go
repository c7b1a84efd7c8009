package manager

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapfile"
)

// A snapshot on disk is a directory with three files: the state, a snapshot file,
// and its only generations: the memory, a sparse file, and files, another with the
// pages of the file system. It is written beside its place and renamed, so a directory of
// that name is complete.

// writeSnapshot writes f to disk as s.
func (m *Manager) writeSnapshot(ctx context.Context, s *snapshot, f *freeze) error {
	dir, _, _, err := m.snapshotDir(s.id)
	if err != nil {
		return err
	}
	temp := dir + ".tmp"
	var digest string
	var size int64
	if err = os.Mkdir(temp, 0o700); err == nil {
		digest, size, err = m.writeSnapshotFiles(ctx, s.id, f, temp)
	}
	if err == nil {
		err = os.Rename(temp, dir)
	}
	if err == nil {
		err = syncDir(filepath.Dir(dir))
	}
	if err != nil {
		os.RemoveAll(temp)
		if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
			return sandbox.Errorf(sandbox.CodeNoSpace, "write snapshot: %w", err)
		}
		return fmt.Errorf("write snapshot: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.Digest, s.rec.Snapshot.SizeBytes = digest, size
	return nil
}

func (m *Manager) writeSnapshotFiles(ctx context.Context, id string, f *freeze, dir string) (digest string, size int64, err error) {
	data, err := mapWhole(f.file)
	if err != nil {
		return "", 0, err
	}
	defer unix.Munmap(data)
	snap, err := snapfile.Parse(data)
	if err != nil {
		return "", 0, err
	}
	gens, err := m.gens.files(f.generations)
	if err != nil {
		return "", 0, err
	}
	parts := diskParts(snap)
	size = int64(0)
	for _, p := range parts {
		n, err := p.write(ctx, filepath.Join(dir, p.file), gens)
		if err != nil {
			return "", 0, err
		}
		size += n
	}
	pages := data[snapfile.PagesOffset : snapfile.PagesOffset+snap.Pages]
	snap.Generations = snap.Generations[:0]
	for i, p := range parts {
		snap.Generations = append(snap.Generations, p.name(id))
		p.moveTo(snap, uint32(i))
	}
	state, err := os.OpenFile(filepath.Join(dir, "state"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return "", 0, err
	}
	defer state.Close()
	if _, err := state.WriteAt(pages, snapfile.PagesOffset); err != nil {
		return "", 0, err
	}
	stateSize, err := snap.WriteTo(state)
	if err != nil {
		return "", 0, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(state, 0, stateSize)); err != nil {
		return "", 0, err
	}
	if err := errors.Join(state.Sync(), syncDir(dir)); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), stateSize + size, nil
}

// diskPart is one of the generations of a snapshot on disk.
type diskPart struct {
	file   string // its name in the snapshot's directory
	ranges []snapfile.Extent
}

// diskParts returns what a snapshot consists of besides its state. Parts without
// contents are left out.
func diskParts(s *snapfile.Snapshot) []diskPart {
	memory, files := diskPart{file: "memory", ranges: s.Table}, diskPart{file: "files"}
	for _, seg := range s.Files.Segments {
		files.ranges = append(files.ranges, snapfile.Extent{
			Range: snapfile.Range{Start: seg.Start * snapfile.PageSize, End: seg.End * snapfile.PageSize}, Gen: seg.Gen,
		})
	}
	return slices.DeleteFunc([]diskPart{memory, files}, func(p diskPart) bool { return len(p.ranges) == 0 })
}

// name is the name of the part among generations.
func (p *diskPart) name(id string) string { return id + "/" + p.file }

// moveTo makes s refer to the part as generation gen.
func (p *diskPart) moveTo(s *snapfile.Snapshot, gen uint32) {
	if p.file == "memory" {
		for i := range s.Table {
			s.Table[i].Gen = gen
		}
		return
	}
	for i := range s.Files.Segments {
		s.Files.Segments[i].Gen = gen
	}
}

// size returns the size of the part's file.
func (p *diskPart) size() int64 { return int64(p.ranges[len(p.ranges)-1].End) }

// write copies the part to path and returns how much space it takes there.
func (p *diskPart) write(ctx context.Context, path string, gens []*os.File) (int64, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for _, e := range p.ranges {
		if err := copyRange(ctx, f, gens[e.Gen], int64(e.Start), int64(e.End)); err != nil {
			return 0, err
		}
	}
	// So that a file that lost its end is not taken for one that ends in a hole.
	if err := f.Truncate(p.size()); err != nil {
		return 0, err
	}
	return allocated(f), f.Sync()
}

// open opens the part's file in the snapshot's directory.
func (p *diskPart) open(dir string) (*os.File, error) {
	f, err := os.Open(filepath.Join(dir, p.file))
	if err != nil {
		return nil, err
	}
	if st, err := f.Stat(); err != nil || st.Size() != p.size() {
		f.Close()
		return nil, fmt.Errorf("%s is not %d bytes long", p.file, p.size())
	}
	return f, nil
}

// copyRange copies [start, end) from one file to the same place in another and
// leaves holes where the source has them.
func copyRange(ctx context.Context, to, from *os.File, start, end int64) error {
	buf := make([]byte, 1<<20)
	for start < end {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		data, err := unix.Seek(int(from.Fd()), start, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole up to the end of the file
		}
		if err != nil {
			return err
		}
		if start = data; start >= end {
			return nil
		}
		hole, err := unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		for stop := min(hole, end); start < stop; {
			n, err := from.ReadAt(buf[:min(int64(len(buf)), stop-start)], start)
			if n == 0 && err != nil {
				return err
			}
			if _, err := to.WriteAt(buf[:n], start); err != nil {
				return err
			}
			start += int64(n)
		}
	}
	return nil
}

// openSnapshot opens s, a snapshot on disk, and gives it a freeze to restore
// from. The memory is paged in when it is used. The caller holds s.mu.
func (m *Manager) openSnapshot(s *snapshot) error {
	dir, statePath, _, err := m.snapshotDir(s.id)
	if err != nil {
		return err
	}
	state, err := os.Open(statePath)
	if err != nil {
		return sandbox.Errorf(sandbox.CodeCorrupt, "open snapshot %s: %w", s.id, err)
	}
	f, err := m.checkSnapshot(s, state, dir)
	if err != nil {
		state.Close()
		return err
	}
	if s.freeze != nil { // an earlier daemon restored sandboxes from it
		m.gens.release(f.generations...) // which the freeze holds
		s.freeze.file, s.freeze.files = f.file, f.files
		return nil
	}
	s.freeze = f
	m.mu.Lock()
	defer m.mu.Unlock()
	m.freezes[s.id] = f
	return nil
}

// checkSnapshot compares the state of s with its digest, and returns what it says.
// The caller owns a reference, and one on each generation.
func (m *Manager) checkSnapshot(s *snapshot, state *os.File, dir string) (*freeze, error) {
	h := sha256.New()
	if _, err := io.Copy(h, state); err != nil || hex.EncodeToString(h.Sum(nil)) != s.rec.Digest {
		return nil, sandbox.Errorf(sandbox.CodeCorrupt, "snapshot %s does not match its digest", s.id)
	}
	data, err := mapWhole(state)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(data)
	snap, err := snapfile.Parse(data)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeCorrupt, "snapshot %s: %w", s.id, err)
	}
	if err := m.addParts(s.id, snap.Generations, dir, diskParts(snap)); err != nil {
		return nil, err
	}
	return &freeze{id: s.id, file: state, generations: append([]string{}, snap.Generations...), files: snap.Files, history: s.rec.History, refs: 1}, nil
}

// addParts takes a reference on each generation of a snapshot on disk, or on none.
func (m *Manager) addParts(id string, names []string, dir string, parts []diskPart) error {
	if len(parts) != len(names) {
		return sandbox.Errorf(sandbox.CodeCorrupt, "snapshot %s has %d generations, not %d", id, len(names), len(parts))
	}
	for i, p := range parts {
		var err error = sandbox.Errorf(sandbox.CodeCorrupt, "%q is no generation of it", names[i])
		if names[i] == p.name(id) {
			err = m.addPart(names[i], dir, p)
		}
		if err != nil {
			m.gens.release(names[:i]...)
			return sandbox.Errorf(sandbox.CodeCorrupt, "open snapshot %s: %w", id, err)
		}
	}
	return nil
}

func (m *Manager) addPart(name, dir string, p diskPart) error {
	file, err := p.open(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	return m.gens.add(name, file)
}

// mapWhole maps a file for reading.
func mapWhole(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 {
		return nil, sandbox.Errorf(sandbox.CodeCorrupt, "snapshot file is empty")
	}
	return unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
}

// allocated returns how many bytes of a sparse file take up space.
func allocated(f *os.File) int64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0
	}
	return st.Blocks * 512
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
