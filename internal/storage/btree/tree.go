package btree

import (
	"fmt"

	"ramet.dev/ramet/internal/storage/pages"
)

// Tree is a sorted map in pages of a store. A node that may not be changed is copied first, with
// all nodes above it: the tree of a pinned root does not change.
//
// Get, Floor and Scan may run at the same time while the tree and its store do not change. Nodes
// of ancestors are checked before a change uses them; nodes of the own file are trusted.
type Tree struct {
	s    *pages.Store
	root pages.Page
	path treePath // of the change under way
	// nodes is the number of nodes that were added since the tree was opened.
	nodes int64

	old     treeNode         // the node that a split or a merge reads
	scratch [maxCell]byte    // the entry to insert: the caller's may be in a page that changes
	sep     [maxKey + 1]byte // key between the halves of a split
	sizes   [maxNodeEntries + 1]int16
}

// OpenTree returns the tree with a root. 0 is an empty tree.
func OpenTree(s *pages.Store, root pages.Page) *Tree { return &Tree{s: s, root: root} }

// Root returns the page of the root, 0 for an empty tree. It changes with the tree.
func (t *Tree) Root() pages.Page { return t.root }

// Grown returns the number of nodes that were added since the tree was opened.
func (t *Tree) Grown() int64 { return t.nodes }

// load implements nodeSource.
func (t *Tree) load(p pages.Page, level int) (*treeNode, error) {
	b, err := t.s.Bytes(p, 1)
	if err != nil {
		return nil, err
	}
	n := (*treeNode)(b)
	if err := n.checkHeader(p, level); err != nil {
		return nil, err
	}
	return n, nil
}

// Get returns the value of key. It is valid until the tree changes.
func (t *Tree) Get(key []byte) (val []byte, ok bool, err error) {
	if t.root == 0 {
		return nil, false, nil
	}
	n, err := t.load(t.root, -1)
	for err == nil && n.level() > 0 {
		i, sound := n.findChild(key)
		p, good := n.child(i)
		if !sound || !good {
			return nil, false, entryError(n, i)
		}
		n, err = t.load(p, n.level()-1)
	}
	if err != nil {
		return nil, false, err
	}
	i, equal, sound := n.find(key, 0)
	if !sound {
		return nil, false, entryError(n, i)
	}
	if !equal {
		return nil, false, nil
	}
	_, val, _ = n.cell(i) // find has checked it
	return val, true, nil
}

// Floor returns the entry with the greatest key that is not above key.
func (t *Tree) Floor(key []byte) (k, val []byte, ok bool, err error) {
	return floorTree(t, t.root, key)
}

// Scan calls fn for each entry whose key is not below from, in order, until fn returns false.
// fn must not change the tree.
func (t *Tree) Scan(from []byte, fn func(key, val []byte) bool) error {
	return scanTree(t, t.root, from, fn)
}

// treePath has the nodes from the root to a leaf.
type treePath struct {
	depth int
	steps [maxTreeDepth]pathStep
}

type pathStep struct {
	p pages.Page
	n *treeNode
	i int // the entry that the next step is the child of; in the leaf, the key's
}

func (w *treePath) leaf() *pathStep { return &w.steps[w.depth-1] }

// walk sets t.path to the path to key.
func (t *Tree) walk(key []byte) (equal bool, err error) {
	w := &t.path
	w.depth = 0
	for p, level := t.root, -1; ; {
		n, err := t.load(p, level)
		if err != nil {
			return false, err
		}
		step := &w.steps[w.depth]
		step.p, step.n = p, n
		w.depth++
		var sound bool
		if n.level() == 0 {
			if step.i, equal, sound = n.find(key, 0); !sound {
				return false, entryError(n, step.i)
			}
			return equal, nil
		}
		if step.i, sound = n.findChild(key); !sound {
			return false, entryError(n, step.i)
		}
		if p, sound = n.child(step.i); !sound {
			return false, entryError(n, step.i)
		}
		level = n.level() - 1
	}
}

// frozenNodes returns the number of nodes of the path that have to be copied. It checks those
// that are inherited.
func (t *Tree) frozenNodes() (int, error) {
	frozen := 0
	for i := range t.path.depth {
		step := &t.path.steps[i]
		if t.s.Mutable(step.p, step.n.born()) {
			continue
		}
		frozen++
		if t.s.Own(step.p) {
			continue
		}
		if err := t.checkInherited(step.p, step.n); err != nil {
			return 0, err
		}
	}
	return frozen, nil
}

// Depth returns the number of nodes from the root to a leaf.
func (t *Tree) Depth() (int, error) {
	if t.root == 0 {
		return 0, nil
	}
	n, err := t.load(t.root, -1)
	if err != nil {
		return 0, err
	}
	return n.level() + 1, nil
}

// FrozenBetween returns the number of nodes that have to be copied to change all keys from one
// to another, at most most.
func (t *Tree) FrozenBetween(from, to []byte, most int) (int, error) {
	if t.root == 0 {
		return 0, nil
	}
	return t.frozenBelow(t.root, -1, from, to, most)
}

func (t *Tree) frozenBelow(p pages.Page, level int, from, to []byte, most int) (int, error) {
	n, err := t.load(p, level)
	if err != nil {
		return 0, err
	}
	count := 0
	if !t.s.Mutable(p, n.born()) {
		count++
	}
	if n.level() == 0 {
		return min(count, most), nil
	}
	first, sound := n.findChild(from)
	if !sound {
		return 0, entryError(n, first)
	}
	last, sound := n.findChild(to)
	if !sound {
		return 0, entryError(n, last)
	}
	for i := first; i <= last && count < most; i++ {
		child, sound := n.child(i)
		if !sound {
			return 0, entryError(n, i)
		}
		below, err := t.frozenBelow(child, n.level()-1, from, to, most-count)
		if err != nil {
			return 0, err
		}
		count += below
	}
	return min(count, most), nil
}

// checkInherited checks a node of an ancestor: it must not refer to pages of the own file, which
// are trusted.
func (t *Tree) checkInherited(p pages.Page, n *treeNode) error {
	if err := n.check(p, n.level()); err != nil {
		return err
	}
	for i := range n.count() {
		if child, _ := n.child(i); n.level() > 0 && child >= t.s.Base() {
			return entryError(n, i)
		}
	}
	return nil
}

// thaw copies the nodes of the path that must not be changed. EnsureNodes must have been called
// for them.
func (t *Tree) thaw() error {
	for i := range t.path.depth {
		step := &t.path.steps[i]
		if t.s.Mutable(step.p, step.n.born()) {
			continue
		}
		p, n, err := t.newNode()
		if err != nil {
			return err
		}
		*n = *step.n
		born := n.born()
		n.setBorn(t.s.Epoch())
		n.setSelf(p)
		t.freeNode(step.p, born)
		step.p, step.n = p, n
		t.relink(i)
	}
	return nil
}

// relink makes the node above step i of the path, or the tree, refer to that step's page.
func (t *Tree) relink(i int) {
	p := t.path.steps[i].p
	if i == 0 {
		t.root = p
		return
	}
	above := &t.path.steps[i-1]
	above.n.setChild(above.i, p)
}

// newNode returns a page for a node, with undefined contents.
func (t *Tree) newNode() (pages.Page, *treeNode, error) {
	p, err := t.s.AllocNode()
	if err != nil {
		return 0, nil, err
	}
	b, err := t.s.Bytes(p, 1)
	if err != nil {
		return 0, nil, fmt.Errorf("new node: %w", err)
	}
	t.nodes++
	return p, (*treeNode)(b), nil
}

// freeNode frees a node that was removed from the tree.
func (t *Tree) freeNode(p pages.Page, born uint32) {
	t.nodes--
	t.s.Free(p, 1, born)
}
