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

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/snapfile"
)

// A snapshot on disk is a directory with two files: the state, a snapshot file
// whose table has one generation, and the memory, a sparse file with that
// generation. It is written beside its place and renamed, so a directory of
// that name is complete.

// writeSnapshot writes f to disk as s.
func (m *Manager) writeSnapshot(ctx context.Context, s *snapshot, f *freeze) error {
	dir, _, _, err := m.snapshotDir(s.id)
	if err != nil {
		return err
	}
	temp := dir + ".tmp"
	if err := os.Mkdir(temp, 0o700); err != nil {
		return fmt.Errorf("make snapshot directory: %w", err)
	}
	digest, size, err := m.writeSnapshotFiles(ctx, s.id, f, temp)
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
	memory, err := os.OpenFile(filepath.Join(dir, "memory"), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return "", 0, err
	}
	defer memory.Close()
	for _, e := range snap.Table {
		if err := copyRange(ctx, memory, gens[e.Gen], int64(e.Start), int64(e.End)); err != nil {
			return "", 0, err
		}
	}
	// So that a file that lost its end is not taken for one that ends in a hole.
	if err := memory.Truncate(memorySize(snap)); err != nil {
		return "", 0, err
	}
	pages := data[snapfile.PagesOffset : snapfile.PagesOffset+snap.Pages]
	for i := range snap.Table {
		snap.Table[i].Gen = 0
	}
	snap.Generations = nil
	if len(snap.Table) > 0 {
		snap.Generations = []string{id}
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
	if err := errors.Join(memory.Sync(), state.Sync(), syncDir(dir)); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), stateSize + allocated(memory), nil
}

// memorySize returns the size of the memory file of a snapshot on disk.
func memorySize(s *snapfile.Snapshot) int64 {
	if len(s.Table) == 0 {
		return 0
	}
	return int64(s.Table[len(s.Table)-1].End)
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
	_, statePath, memoryPath, err := m.snapshotDir(s.id)
	if err != nil {
		return err
	}
	state, err := os.Open(statePath)
	if err != nil {
		return sandbox.Errorf(sandbox.CodeCorrupt, "open snapshot %s: %w", s.id, err)
	}
	generations, err := m.checkSnapshot(s, state, memoryPath)
	if err != nil {
		state.Close()
		return err
	}
	if s.freeze != nil { // an earlier daemon restored sandboxes from it
		m.gens.release(generations...) // which the freeze holds
		s.freeze.file = state
		return nil
	}
	s.freeze = &freeze{id: s.id, file: state, generations: generations, refs: 1}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.freezes[s.id] = s.freeze
	return nil
}

// checkSnapshot compares the state of s with its digest, and returns the
// generations that it has. The caller owns a reference on them.
func (m *Manager) checkSnapshot(s *snapshot, state *os.File, memoryPath string) ([]string, error) {
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
	if len(snap.Generations) == 0 {
		return []string{}, nil
	}
	memory, err := os.Open(memoryPath)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.CodeCorrupt, "open snapshot %s: %w", s.id, err)
	}
	defer memory.Close()
	if st, err := memory.Stat(); err != nil || st.Size() != memorySize(snap) {
		return nil, sandbox.Errorf(sandbox.CodeCorrupt, "memory of snapshot %s is not %d bytes long", s.id, memorySize(snap))
	}
	if err := m.gens.add(s.id, memory); err != nil {
		return nil, err
	}
	return []string{s.id}, nil
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
