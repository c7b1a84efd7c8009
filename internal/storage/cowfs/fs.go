package cowfs

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"ramet.dev/ramet/internal/storage/erofs"
)

// ErrNotExist is returned for an inode that is neither in the tree nor in the
// image.
var ErrNotExist = errors.New("no such inode")

// State is what must be kept of a tree, beside its pages, to open it again.
type State struct {
	Root    Page
	NextIno Ino
	// Blocks is how many pages the tree has: its nodes, and the data that it
	// refers to.
	Blocks int64
	// Limit is how many it may have. 0 means any number.
	Limit int64
}

// FS is a tree that changes. Its methods may be called concurrently; two calls
// for the same inode must not both be changes.
//
// Nothing here checks permissions or the meaning of an operation: that is the
// caller's, who also says what is renamed to what and counts links.
type FS struct {
	image *erofs.Reader // nil: none
	data  []byte        // what image reads

	// mu protects the tree, the store and data pages that may change. It is the
	// innermost lock: nothing is called with it held that could take another.
	mu     sync.RWMutex
	store  *Store
	tree   *Tree
	state  State
	recent *recentExtents // by itself: it has no pointers, the collector leaves it alone
	// held is asked before pages of the present tree are given back; see Hold.
	held func(p Page, n int, born uint32) bool
}

// Open opens the tree that state describes, above the image in the mapped file
// data, which may be nil.
func Open(store *Store, data []byte, state State) (*FS, error) {
	f := &FS{data: data, store: store, tree: OpenTree(store, state.Root), state: state, recent: new(recentExtents)}
	if data != nil {
		var err error
		if f.image, err = erofs.NewReader(data); err != nil {
			return nil, fmt.Errorf("open image: %w", err)
		}
	}
	if state.Root >= store.base {
		return nil, fmt.Errorf("%w: page %d cannot be the root", ErrCorrupt, state.Root)
	}
	f.state.NextIno = max(state.NextIno, FirstIno)
	return f, nil
}

// OnFree makes f decide about pages that the tree gives up: if it returns true it
// has taken them over, because somebody still maps them, and calls Free later.
// f is called with the tree locked.
func (f *FS) OnFree(held func(p Page, n int, born uint32) bool) { f.held = held }

// Free gives back pages that an OnFree function took over.
func (f *FS) Free(p Page, n int, born uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.Free(p, n, born)
}

// Store returns the pages. Use what it is documented to allow without the lock.
func (f *FS) Store() *Store { return f.store }

// State returns what is to be kept.
func (f *FS) State() State {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.stateNow()
}

func (f *FS) stateNow() State {
	s := f.state
	s.Root, s.Blocks = f.tree.Root(), f.used()
	return s
}

// Pin makes the present tree immutable until Release: it returns the tree's root
// and the segments that its pages are in, for a child or a reader. Pages that are
// mapped writably must have been taken away from the mappings before.
func (f *FS) Pin(id string) (State, []Segment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.store.Pin(id); err != nil {
		return State{}, nil, err
	}
	return f.stateNow(), f.store.Segments(), nil
}

// Release gives back what only the pin kept.
func (f *FS) Release(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store.Release(id)
}

// Pins returns the names of all pins.
func (f *FS) Pins() []string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.store.Pins()
}

// Root returns the root directory's number.
func (f *FS) Root() Ino { return rootOf(f.image) }

// NewIno returns an inode number that was never used in this line of descent.
func (f *FS) NewIno() Ino {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.state.NextIno
	f.state.NextIno++
	return n
}

// Attr returns an inode's attributes, and whether they are in the tree.
func (f *FS) Attr(ino Ino) (a Attr, changed bool, err error) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return f.attr(ino)
}

func (f *FS) attr(ino Ino) (a Attr, changed bool, err error) {
	var buf [keyRoom]byte
	val, ok, err := f.tree.Get(key(&buf, ino, keyAttr))
	if err != nil {
		return a, false, err
	}
	if ok {
		return a, true, a.Decode(val)
	}
	in, err := f.imageInode(ino)
	if err != nil {
		return a, false, err
	}
	return imageAttr(&in), false, nil
}

func (f *FS) imageInode(ino Ino) (erofs.Inode, error) {
	if f.image == nil || !ino.OfImage() {
		return erofs.Inode{}, fmt.Errorf("inode %d: %w", ino, ErrNotExist)
	}
	return f.image.Inode(uint64(ino))
}

// SetAttr stores an inode's attributes.
func (f *FS) SetAttr(ino Ino, a *Attr) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.setAttr(ino, a)
}

func (f *FS) setAttr(ino Ino, a *Attr) error {
	var buf [keyRoom]byte
	var val [attrSize]byte
	a.encode(&val)
	return f.tree.Put(key(&buf, ino, keyAttr), val[:])
}

// Remove removes all that the tree has of an inode without links. After an error
// some of it is left, and it may be called again.
func (f *FS) Remove(ino Ino) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recent.forget(ino)
	var from [keyRoom]byte
	for {
		// A batch at a time, since a scan must not see changes.
		var keys [][]byte
		var extents []extent // of keys, those without pages for other keys
		err := f.tree.Scan(key(&from, ino, 0), func(k, val []byte) bool {
			i, kind, _ := keyOf(k)
			if i != ino {
				return false
			}
			var e extent
			if kind == keyExtent {
				if x, err := extentOf(k, val); err == nil {
					e = x
				}
			}
			keys, extents = append(keys, bytes.Clone(k)), append(extents, e)
			return len(keys) < 256
		})
		if err != nil {
			return err
		}
		for n, k := range keys {
			if _, err := f.tree.Delete(k); err != nil {
				return err
			}
			f.drop(extents[n])
		}
		if len(keys) < 256 {
			return nil
		}
	}
}
