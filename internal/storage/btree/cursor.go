package btree

import (
	"bytes"
	"fmt"

	"ramet.dev/ramet/internal/storage/pages"
)

// nodeSource gives a cursor its nodes.
type nodeSource interface {
	// load returns the node on page p, which must be of a level; -1 is any level. It has
	// checked the header.
	load(p pages.Page, level int) (*treeNode, error)
}

// treeCursor walks a tree in the order of keys. It stands at an entry of a leaf, or at an entry
// of an inner node, which is before all keys of that subtree, or at the end, with depth 0.
//
// It refuses nodes with keys outside of the bounds that their parent sets. So it visits no leaf
// twice, however the pages of a hostile tree refer to each other: the work is bounded by the
// number of pages.
type treeCursor struct {
	src   nodeSource
	depth int
	stack [maxTreeDepth]cursorFrame
}

type cursorFrame struct {
	n      *treeNode
	i      int
	lo, hi []byte // lo <= keys < hi; nil: no bound
}

func entryError(n *treeNode, i int) error {
	return fmt.Errorf("%w: page %d: entry %d", pages.ErrCorrupt, n.self(), i)
}

// push enters the first entry of a node.
func (c *treeCursor) push(p pages.Page, level int, lo, hi []byte) error {
	n, err := c.src.load(p, level)
	if err != nil {
		return err
	}
	first, last := 0, n.count()-1
	if n.level() > 0 {
		first = 1 // entry 0 has no key
	}
	if first <= last {
		k0, _, ok0 := n.cell(first)
		k1, _, ok1 := n.cell(last)
		if !ok0 || !ok1 || bytes.Compare(k0, lo) < 0 || first == 1 && len(lo) > 0 && bytes.Equal(k0, lo) || hi != nil && bytes.Compare(k1, hi) >= 0 {
			return fmt.Errorf("%w: page %d has keys that are not its parent's", pages.ErrCorrupt, p)
		}
	}
	c.stack[c.depth] = cursorFrame{n, 0, lo, hi} // levels descend, so depth is bounded
	c.depth++
	return nil
}

func (c *treeCursor) top() *cursorFrame { return &c.stack[c.depth-1] }

// level returns 0 at a key, and otherwise one more than the level of the subtree ahead.
func (c *treeCursor) level() int { return c.top().n.level() }

// lowest returns a lower bound of the keys ahead.
func (c *treeCursor) lowest() ([]byte, error) {
	f := c.top()
	if f.i == 0 && f.n.level() > 0 {
		return f.lo, nil
	}
	key, _, ok := f.n.cell(f.i)
	if !ok {
		return nil, entryError(f.n, f.i)
	}
	return key, nil
}

// entry returns the key and value that the cursor stands at.
func (c *treeCursor) entry() (key, val []byte, err error) {
	f := c.top()
	key, val, ok := f.n.cell(f.i)
	if !ok {
		return nil, nil, entryError(f.n, f.i)
	}
	return key, val, nil
}

// child returns the page of the subtree ahead.
func (c *treeCursor) child() (pages.Page, error) {
	f := c.top()
	p, ok := f.n.child(f.i)
	if !ok {
		return 0, entryError(f.n, f.i)
	}
	return p, nil
}

// descend enters the subtree ahead.
func (c *treeCursor) descend() error {
	f := c.top()
	p, err := c.child()
	if err != nil {
		return err
	}
	lo, err := c.lowest()
	if err != nil {
		return err
	}
	hi := f.hi
	if f.i+1 < f.n.count() {
		key, _, ok := f.n.cell(f.i + 1)
		if !ok {
			return entryError(f.n, f.i+1)
		}
		hi = key
	}
	return c.push(p, f.n.level()-1, lo, hi)
}

// next passes the key or the subtree ahead.
func (c *treeCursor) next() {
	for c.depth > 0 {
		f := c.top()
		if f.i++; f.i < f.n.count() {
			return
		}
		c.depth--
	}
}

// toKey descends to the first key ahead.
func (c *treeCursor) toKey() error {
	for c.depth > 0 && c.level() > 0 {
		if err := c.descend(); err != nil {
			return err
		}
	}
	return nil
}

// seek goes to the leaf of key, and there to the first entry that is not below key, which may
// be behind the last entry.
func (c *treeCursor) seek(root pages.Page, key []byte) (equal bool, err error) {
	if root == 0 {
		return false, nil
	}
	if err := c.push(root, -1, nil, nil); err != nil {
		return false, err
	}
	for {
		f := c.top()
		if f.n.level() == 0 {
			i, equal, ok := f.n.find(key, 0)
			if !ok {
				return false, entryError(f.n, i)
			}
			f.i = i
			return equal, nil
		}
		i, ok := f.n.findChild(key)
		if !ok {
			return false, entryError(f.n, i)
		}
		f.i = i
		if err := c.descend(); err != nil {
			return false, err
		}
	}
}

// scanTree calls fn for all entries from from on, until it returns false.
func scanTree(src nodeSource, root pages.Page, from []byte, fn func(key, val []byte) bool) error {
	c := treeCursor{src: src}
	if _, err := c.seek(root, from); err != nil {
		return err
	}
	if c.depth > 0 && c.top().i == c.top().n.count() {
		c.top().i--
		c.next()
	}
	for {
		if err := c.toKey(); err != nil {
			return err
		}
		if c.depth == 0 {
			return nil
		}
		key, val, err := c.entry()
		if err != nil {
			return err
		}
		if !fn(key, val) {
			return nil
		}
		c.next()
	}
}

// floorTree returns the entry with the greatest key that is not above key.
func floorTree(src nodeSource, root pages.Page, key []byte) (k, v []byte, ok bool, err error) {
	c := treeCursor{src: src}
	equal, err := c.seek(root, key)
	if err != nil || c.depth == 0 {
		return nil, nil, false, err
	}
	if f := c.top(); !equal {
		if f.i > 0 {
			f.i--
		} else if ok, err := c.leafBefore(); !ok {
			return nil, nil, false, err
		}
	}
	k, v, err = c.entry()
	return k, v, err == nil, err
}

// leafBefore goes from a leaf to the last entry of the leaf before it, and returns whether
// there is one. Leaves are never empty, so one step is enough.
func (c *treeCursor) leafBefore() (bool, error) {
	for c.depth--; c.depth > 0 && c.top().i == 0; c.depth-- {
	}
	if c.depth == 0 {
		return false, nil
	}
	c.top().i--
	for c.level() > 0 {
		if err := c.descend(); err != nil {
			return false, err
		}
		c.top().i = c.top().n.count() - 1
	}
	return true, nil
}
