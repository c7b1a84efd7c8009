package cowfs

import (
	"fmt"
	"sync"

	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/pages"
)

// State is the state of a tree that must be kept, beside its pages, to open it again.
type State struct {
	Root    pages.Page
	NextIno Ino
	// Blocks is the number of pages of the tree: its nodes, and the data that they refer
	// to.
	Blocks int64
	// Limit is the largest number of pages. 0 means no limit.
	Limit int64
}

// core is the tree of a file system with the attributes of its inodes and the space that the
// tree takes. It knows neither names nor contents.
type core struct {
	image *erofs.Reader // nil: none
	data  []byte        // the bytes that image reads

	// mu protects the tree, the store and data pages that may change. It is an inner
	// lock: of the locks of others, only those of the functions that are called with the
	// tree locked are taken below it.
	mu    sync.RWMutex
	store *pages.Store
	tree  *btree.Tree
	state State
}

// Store returns the pages. Only methods that need no lock may be used.
func (c *core) Store() *pages.Store { return c.store }

// Image returns the mapped image below the tree, nil if there is none.
func (c *core) Image() []byte { return c.data }

// State returns the state that is to be kept.
func (c *core) State() State {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.stateNow()
}

func (c *core) stateNow() State {
	s := c.state
	s.Root, s.Blocks = c.tree.Root(), c.used()
	return s
}

// Pin makes the present tree immutable until Release: it returns the tree's state and the
// segments that its pages are in, for a child or a reader. No process may run until pages
// that are mapped writably have been unmapped.
func (c *core) Pin(id string) (State, []pages.Segment, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.store.Pin(id); err != nil {
		return State{}, nil, err
	}
	return c.stateNow(), c.store.Segments(), nil
}

// Release drops a pin, and frees pages that only the pin kept.
func (c *core) Release(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store.Release(id)
}

// Pins returns the names of all pins.
func (c *core) Pins() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.store.Pins()
}

// Root returns the root directory's number.
func (c *core) Root() Ino { return rootOf(c.image) }

// NewIno returns an inode number that was never used in this line of descent.
func (c *core) NewIno() Ino {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.state.NextIno
	c.state.NextIno++
	return n
}

// Attr returns an inode's attributes, and whether they are in the tree.
func (c *core) Attr(ino Ino) (a Attr, changed bool, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.attr(ino)
}

func (c *core) attr(ino Ino) (a Attr, changed bool, err error) {
	var buf [keyRoom]byte
	val, ok, err := c.tree.Get(key(&buf, ino, keyAttr))
	if err != nil {
		return a, false, err
	}
	if ok {
		return a, true, a.Decode(val)
	}
	in, err := c.imageInode(ino)
	if err != nil {
		return a, false, err
	}
	return imageAttr(&in), false, nil
}

func (c *core) imageInode(ino Ino) (erofs.Inode, error) {
	if c.image == nil || !ino.OfImage() {
		return erofs.Inode{}, fmt.Errorf("inode %d: %w", ino, ErrNotExist)
	}
	return c.image.Inode(uint64(ino))
}

// SetAttr stores an inode's attributes.
func (c *core) SetAttr(ino Ino, a *Attr) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setAttr(ino, a)
}

func (c *core) setAttr(ino Ino, a *Attr) error {
	var buf [keyRoom]byte
	var val [attrSize]byte
	a.encode(&val)
	return c.tree.Put(key(&buf, ino, keyAttr), val[:])
}
