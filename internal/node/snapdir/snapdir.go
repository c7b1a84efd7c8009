package snapdir

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// Contents is where the contents of a snapshot are.
type Contents struct {
	Snap  *snapfile.Snapshot
	Files []*os.File // of Snap.Generations
}

// State is a state file that is mapped for reading.
type State struct {
	Snap *snapfile.Snapshot
	data []byte
}

// OpenState maps and parses a state file. The file may be closed afterwards.
func OpenState(f *os.File) (*State, error) { return openState(f, snapfile.Parse) }

// OpenForeignState is OpenState for a state of another machine, whose parts but the guest's own are small.
func OpenForeignState(f *os.File) (*State, error) { return openState(f, snapfile.ParseForeign) }

func openState(f *os.File, parse func([]byte) (*snapfile.Snapshot, error)) (*State, error) {
	data, err := MapFile(f)
	if err != nil {
		return nil, err
	}
	snap, err := parse(data)
	if err != nil {
		_ = unix.Munmap(data) // its argument is right
		return nil, err
	}
	return &State{snap, data}, nil
}

// Close ends the mapping, and with it the use of Snap.
func (s *State) Close() { _ = unix.Munmap(s.data) } // its argument is right

// Plan says what the contents of snap are compared with, which may be nil, and whose
// files the result may refer to.
type Plan func(snap *snapfile.Snapshot) (base *Contents, refers func(id string) bool)

// Written describes a version of a snapshot on disk.
type Written struct {
	Version int
	Digest  string          // sha256 of the state
	Size    int64           // bytes that the files of this version take up
	Parts   map[string]Part // the files besides the state, by name
	Needs   []string        // ids of the snapshots that the state refers to
}

// Source is what a snapshot on disk is written from.
type Source struct {
	State *os.File
	// Generations are the names that were checked when the state was made, and Files
	// their files. A state that has others is an error of CodeCorrupt.
	Generations []string
	Files       []*os.File
}

// Write writes a version of the snapshot id to its directory dir. Version 0 makes the
// directory; a later version adds its files to those that are there.
func Write(ctx context.Context, dir, id string, version int, from Source, plan Plan) (*Written, error) {
	return write(ctx, hostfs.OS, dir, id, version, from, plan)
}

// write is Write on another file system.
func write(ctx context.Context, fsys hostfs.FS, dir, id string, version int, from Source, plan Plan) (_ *Written, err error) {
	state, err := OpenState(from.State)
	if err != nil {
		return nil, err
	}
	defer state.Close()
	snap := state.Snap
	if !slices.Equal(snap.Generations, from.Generations) {
		return nil, api.Errorf(api.CodeCorrupt, "the state of the sandbox is of other memory than it said")
	}
	temp := dir + ".tmp"
	if err := fsys.Mkdir(temp, 0o700); err != nil {
		return nil, err
	}
	whole := false
	defer func() {
		if !whole { // err is not set yet in a panic
			os.RemoveAll(temp)
		}
	}()
	l := &layout{Contents: Contents{snap, from.Files}, id: id, version: version, fs: fsys, dir: temp}
	l.base, l.refers = plan(snap)
	if err := l.write(ctx); err != nil {
		return nil, err
	}
	pages := state.Pages()
	w := &Written{Version: version, Parts: l.parts, Needs: l.needs()}
	if w.Digest, w.Size, err = writeState(fsys, filepath.Join(temp, StateFile(version)), snap, pages); err != nil {
		return nil, err
	}
	w.Size += l.space
	if err := put(fsys, temp, dir, version); err != nil {
		return nil, err
	}
	whole = true
	return w, nil
}

// put moves what was written to its place: the directory, or the files of a new
// version of what is there.
func put(fsys hostfs.FS, temp, dir string, version int) error {
	if err := fsys.SyncDir(temp); err != nil {
		return err
	}
	if version == 0 {
		if err := fsys.Rename(temp, dir); err != nil {
			return err
		}
		if err := fsys.SyncDir(filepath.Dir(dir)); err != nil {
			os.RemoveAll(dir) // else a later try would find its place taken
			return err
		}
		return nil
	}
	entries, err := os.ReadDir(temp)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := fsys.Rename(filepath.Join(temp, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return errors.Join(fsys.Remove(temp), fsys.SyncDir(dir))
}

// writeState writes the state of a snapshot, and returns its digest and size.
func writeState(fsys hostfs.FS, path string, snap *snapfile.Snapshot, pages []byte) (digest string, size int64, err error) {
	state, err := fsys.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
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

// ErrDigest says that a state file does not match its digest.
var ErrDigest = errors.New("the state does not match its digest")

// CheckState compares a state file with its digest. It returns the stamp of the file
// that it read.
func CheckState(state *os.File, digest string) (Stamp, error) {
	read, err := StampOf(state) // before: a change while it is read is seen the next time
	if err != nil {
		return Stamp{}, err
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(state, 0, math.MaxInt64)); err != nil || hex.EncodeToString(h.Sum(nil)) != digest {
		return Stamp{}, ErrDigest
	}
	return read, nil
}

// CheckParts reads the parts of the snapshot id and compares them with their digests.
// Damage is an error of CodeCorrupt.
func CheckParts(ctx context.Context, dir, id string, parts map[string]Part) error {
	for name, p := range parts {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return api.Errorf(api.CodeCorrupt, "verify snapshot: %w", err)
		}
		err = p.Check(ctx, f)
		f.Close()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return api.Errorf(api.CodeCorrupt, "verify snapshot: %s/%w", id, err)
		}
	}
	return nil
}

// OpenPart opens a part of the snapshot in dir. The part is compared with its digest
// unless it is the very file that was compared before; changed says that p has another
// stamp since, which is to be stored.
func OpenPart(ctx context.Context, dir, name string, p *Part) (_ *os.File, changed bool, err error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, false, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	now, err := StampOf(f)
	if err != nil {
		return nil, false, err
	}
	if p == nil || p.Stamp == now {
		return f, false, nil
	}
	if err := p.Check(ctx, f); err != nil {
		return nil, false, err
	}
	p.Stamp = now
	return f, true, nil
}

// Sweep removes what is left over of other versions of the snapshot in dir.
func Sweep(dir string, version int, parts map[string]Part) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, part := parts[e.Name()]; part || e.Name() == StateFile(version) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// MapFile maps a whole file for reading.
func MapFile(f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 {
		return nil, api.Errorf(api.CodeCorrupt, "%s is empty", filepath.Base(f.Name()))
	}
	return unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
}
