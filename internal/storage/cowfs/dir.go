package cowfs

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/pages"
)

// whiteout is the type of an entry that hides an entry of the image.
const whiteout = 0xff

// Entry is an entry of a directory.
type Entry struct {
	Name string
	Ino  Ino
	Type uint8 // DT_*, see getdents(2)
}

const entrySize = 9

func entryOf(val []byte) (Ino, uint8, error) {
	if len(val) != entrySize {
		return 0, 0, fmt.Errorf("%w: directory entry of %d bytes", pages.ErrCorrupt, len(val))
	}
	return Ino(binary.LittleEndian.Uint64(val[1:])), val[0], nil
}

func entryKey(buf *[keyRoom]byte, dir Ino, name string) []byte {
	return append(key(buf, dir, keyEntry), name...)
}

func parentKey(buf *[keyRoom]byte, ino, dir Ino, name string) []byte {
	k := binary.BigEndian.AppendUint64(key(buf, ino, keyParent), uint64(dir))
	return append(k, name...)
}

// Lookup finds an entry.
func (f *FS) Lookup(dir Ino, name string) (Entry, bool, error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	var buf [keyRoom]byte
	val, ok, err := f.tree.Get(entryKey(&buf, dir, name))
	if err != nil {
		return Entry{}, false, err
	}
	if ok {
		ino, typ, err := entryOf(val)
		return Entry{Name: name, Ino: ino, Type: typ}, err == nil && typ != whiteout, err
	}
	return f.imageLookup(dir, name)
}

func (f *FS) imageLookup(dir Ino, name string) (Entry, bool, error) {
	in, ok, err := f.imageDir(dir)
	if !ok || err != nil {
		return Entry{}, false, err
	}
	nid, typ, ok, err := f.image.Lookup(&in, name)
	return Entry{Name: name, Ino: Ino(nid), Type: typ}, ok, err
}

// imageDir returns the image's inode of a directory, if there is one.
func (f *FS) imageDir(dir Ino) (erofs.Inode, bool, error) {
	if f.image == nil || !dir.OfImage() {
		return erofs.Inode{}, false, nil
	}
	in, err := f.image.Inode(uint64(dir))
	return in, err == nil && in.Mode&TypeMask == TypeDir, err
}

// Insert adds an entry, or replaces one.
func (f *FS) Insert(dir Ino, e Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.insert(dir, e)
}

func (f *FS) insert(dir Ino, e Entry) error {
	var buf [keyRoom]byte
	if err := f.tree.Put(parentKey(&buf, e.Ino, dir, e.Name), nil); err != nil {
		return err
	}
	return f.putEntry(dir, e, pages.PutNodes)
}

// putEntry stores an entry, and leaves as many nodes for others.
func (f *FS) putEntry(dir Ino, e Entry, leave int) error {
	var buf [keyRoom]byte
	var val [entrySize]byte
	val[0] = e.Type
	binary.LittleEndian.PutUint64(val[1:], uint64(e.Ino))
	return f.tree.PutLeaving(entryKey(&buf, dir, e.Name), val[:], leave)
}

// Delete removes an entry that exists.
func (f *FS) Delete(dir Ino, e Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var buf [keyRoom]byte
	_, hidden, err := f.imageLookup(dir, e.Name)
	if err != nil {
		return err
	}
	if hidden {
		err = f.putEntry(dir, Entry{Name: e.Name, Type: whiteout}, 0)
	} else {
		_, err = f.tree.Delete(entryKey(&buf, dir, e.Name))
	}
	if err != nil {
		return err
	}
	_, err = f.tree.Delete(parentKey(&buf, e.Ino, dir, e.Name))
	return err
}

// NoteParent records an entry that leads to an inode of the image before the inode changes,
// so that a diff finds its path. For a new record it asks room first, which may be Room.
func (f *FS) NoteParent(ino, dir Ino, name string, room func(bytes int) error) error {
	var buf [keyRoom]byte
	k := parentKey(&buf, ino, dir, name)
	f.mu.RLock()
	_, ok, err := f.tree.Get(k)
	f.mu.RUnlock()
	if ok || err != nil {
		return err
	}
	if err := room(len(k)); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tree.PutLeaving(k, nil, 0)
}

// Entries calls fn for the entries whose names are at least from, in the order of their
// names, until fn returns false. fn is called with the tree locked.
func (f *FS) Entries(dir Ino, from string, fn func(Entry) bool) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return mergeEntries(f.tree, f.image, dir, from, fn)
}

// scanner is a Tree or a View.
type scanner interface {
	Scan(from []byte, fn func(key, val []byte) bool) error
}

// mergeEntries walks the tree's entries and the image's side by side.
func mergeEntries(tree scanner, image *erofs.Reader, dir Ino, from string, fn func(Entry) bool) error {
	type change struct {
		name []byte
		val  [entrySize]byte
	}
	var changes []change
	var buf [keyRoom]byte
	var bad error
	stopped := false
	inImage := image != nil && dir.OfImage()
	err := tree.Scan(entryKey(&buf, dir, from), func(k, val []byte) bool {
		ino, kind, name := keyOf(k)
		if ino != dir || kind != keyEntry {
			return false
		}
		child, typ, err := entryOf(val)
		if err != nil {
			bad = err
			return false
		}
		if !inImage {
			if typ != whiteout && !fn(Entry{string(name), child, typ}) {
				stopped = true
			}
			return !stopped
		}
		changes = append(changes, change{name: bytes.Clone(name), val: [entrySize]byte(val)})
		return true
	})
	if err != nil || bad != nil || stopped || !inImage {
		return firstError(err, bad)
	}
	emit := func(c *change) bool {
		ino, typ, _ := entryOf(c.val[:])
		if typ == whiteout {
			return true
		}
		return fn(Entry{string(c.name), ino, typ})
	}
	in, err := image.Inode(uint64(dir))
	if err != nil {
		return err
	}
	err = image.Entries(&in, from, func(name string, typ uint8, nid uint64) bool {
		for len(changes) > 0 && string(changes[0].name) < name {
			if !emit(&changes[0]) {
				stopped = true
				return false
			}
			changes = changes[1:]
		}
		if len(changes) > 0 && string(changes[0].name) == name {
			stopped = !emit(&changes[0])
			changes = changes[1:]
		} else {
			stopped = !fn(Entry{name, Ino(nid), typ})
		}
		return !stopped
	})
	for i := 0; err == nil && !stopped && i < len(changes); i++ {
		stopped = !emit(&changes[i])
	}
	return err
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Empty returns whether a directory has no entries.
func (f *FS) Empty(dir Ino) (bool, error) {
	empty := true
	err := f.Entries(dir, "", func(Entry) bool {
		empty = false
		return false
	})
	return empty, err
}
