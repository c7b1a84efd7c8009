package btree

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"ramet.dev/ramet/internal/storage/pages"
)

// Put sets the value of key. After an error nothing has changed. If the host has no space for
// more nodes, Put leaves some for deletions.
func (t *Tree) Put(key, val []byte) error { return t.PutLeaving(key, val, pages.PutNodes) }

// PutLeaving is Put that leaves a number of nodes.
func (t *Tree) PutLeaving(key, val []byte, leave int) error {
	if len(key) == 0 || len(key) > maxKey || len(val) > maxValue {
		return fmt.Errorf("put: key of %d bytes and value of %d bytes", len(key), len(val))
	}
	if t.root == 0 {
		return t.plant(key, val, leave)
	}
	exists, err := t.walk(key)
	if err != nil {
		return err
	}
	leaf := t.path.leaf()
	var old []byte
	if exists {
		_, old, _ = leaf.n.cell(leaf.i) // walk has checked it
		if len(old) == len(val) {
			if t.s.Mutable(leaf.p, leaf.n.born()) {
				copy(old, val)
				return nil
			}
			if bytes.Equal(old, val) {
				return nil
			}
		}
	}
	return t.insert(key, val, old, exists, leave)
}

// plant makes the first leaf.
func (t *Tree) plant(key, val []byte, leave int) error {
	if err := t.s.EnsureNodes(1 + leave); err != nil {
		return err
	}
	p, n, err := t.newNode()
	if err != nil {
		return err
	}
	n.init(0, t.s.Epoch(), p)
	n.appendCell(key, val)
	t.root = p
	return nil
}

// insert makes the entry at the end of t.path, in place of the one that exists, if there is one.
func (t *Tree) insert(key, val, old []byte, exists bool, leave int) error {
	// Steps that can fail come first.
	need, err := t.frozenNodes()
	if err != nil {
		return err
	}
	used := t.path.leaf().n.used() + cellCost(key, val)
	if exists {
		used -= cellCost(key, old)
	}
	if used > nodeCapacity {
		if t.path.depth == maxTreeDepth {
			return fmt.Errorf("%w: the tree is too deep", pages.ErrNoSpace)
		}
		need += t.path.depth + 1 // each node of the path may be split, and there may be a new root
	}
	if need > 0 {
		if err := t.s.EnsureNodes(need + leave); err != nil {
			return err
		}
	}

	// The caller's slices may be in a page that changes now.
	k := append(t.scratch[:0], key...)
	v := append(t.scratch[len(k):len(k)], val...)
	if err := t.thaw(); err != nil {
		return err
	}
	leaf := t.path.leaf()
	if exists && len(old) == len(v) {
		_, now, _ := leaf.n.cell(leaf.i)
		copy(now, v)
		return nil
	}
	if exists {
		leaf.n.remove(leaf.i)
	}
	return t.insertAt(t.path.depth-1, k, v)
}

// insertAt inserts an entry into the node at step d of the path, which is split if it is full.
func (t *Tree) insertAt(d int, key, val []byte) error {
	step := &t.path.steps[d]
	if step.n.insert(step.i, key, val) {
		return nil
	}
	right, sep, err := t.split(step, key, val)
	if err != nil {
		return err
	}
	var child [childSize]byte
	binary.LittleEndian.PutUint64(child[:], uint64(right))
	if d > 0 {
		t.path.steps[d-1].i++
		return t.insertAt(d-1, sep, child[:])
	}
	root, n, err := t.newNode()
	if err != nil {
		return err
	}
	n.init(step.n.level()+1, t.s.Epoch(), root)
	var left [childSize]byte
	binary.LittleEndian.PutUint64(left[:], uint64(step.p))
	n.appendCell(nil, left[:])
	n.appendCell(sep, child[:])
	t.root = root
	return nil
}

// split moves the upper entries of a node, among which a new entry is to be the step.i-th, to a
// new page. It returns that page and the key for it.
func (t *Tree) split(step *pathStep, key, val []byte) (pages.Page, []byte, error) {
	p, right, err := t.newNode()
	if err != nil {
		return 0, nil, err
	}
	left, old := step.n, &t.old
	*old = *left
	count := old.count() + 1
	entry := func(j int) (k, v []byte) {
		switch {
		case j == step.i:
			return key, val
		case j > step.i:
			j--
		}
		k, v, _ = old.cell(j)
		return k, v
	}
	for j := range count {
		t.sizes[j] = int16(cellCost(entry(j)))
	}
	at := splitPoint(t.sizes[:count], step.i, step.i == old.newest()+1)

	left.init(old.level(), t.s.Epoch(), step.p)
	right.init(old.level(), t.s.Epoch(), p)
	for j := range at {
		left.appendCell(entry(j))
	}
	before, _ := entry(at - 1)
	first, v := entry(at)
	if old.level() == 0 {
		right.appendCell(first, v)
	} else {
		right.appendCell(nil, v)
	}
	for j := at + 1; j < count; j++ {
		right.appendCell(entry(j))
	}
	var sep []byte // made only here: key may be in t.sep
	if old.level() == 0 {
		sep = separator(t.sep[:0], before, first, step.i == 0)
	} else {
		sep = append(t.sep[:0], first...)
	}
	if step.i < at {
		left.setNewest(step.i)
	} else {
		right.setNewest(step.i - at)
	}
	return p, sep, nil
}

// splitPoint returns the number of entries that stay in the left node, at least one and not all.
// i is the new entry; inOrder says that the entry before it was the last one to be inserted.
// Then the left node stays as full as it is, as no more entries will go into it, even if other
// keys follow: several files grow at a time.
//
// There always is a point at which both parts fit: the size of the left part grows in steps of
// at most maxCell, and the range that it has to hit is wider.
func splitPoint(sizes []int16, i int, inOrder bool) int {
	total := 0
	for _, size := range sizes {
		total += int(size)
	}
	inOrder = inOrder || i == len(sizes)-1
	best, distance, sum := 0, 0, 0
	for at := 1; at < len(sizes); at++ {
		sum += int(sizes[at-1])
		if sum > nodeCapacity || total-sum > nodeCapacity {
			continue
		}
		d := max(2*sum-total, total-2*sum)
		switch {
		case i == 0 && at == 1:
			return at
		case inOrder && (at == i || at == i+1):
			d = i - at - 1 // below all others; i+1 is better than i
		}
		if best == 0 || d < distance {
			best, distance = at, d
		}
	}
	return best
}

// separator appends to dst a short key that is above a and not above b, which is above a. If
// keys are inserted before b, the key is near b, so that the next keys go to the left node;
// otherwise it is near a.
func separator(dst, a, b []byte, nearB bool) []byte {
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	dst = append(dst, b[:i]...)
	switch {
	case i == len(a) && nearB:
		return append(dst, b[i])
	case i == len(a):
		return append(dst, 0)
	case nearB:
		return append(dst, b[i])
	default:
		return append(dst, a[i]+1)
	}
}
