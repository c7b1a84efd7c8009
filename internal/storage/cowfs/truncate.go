package cowfs

import (
	"math"

	"ramet.dev/ramet/internal/storage/pages"
)

// Truncate changes a file's size. a is changed and stored. If there is no space for it,
// neither the size nor the contents have changed; the block in which the file was to end may
// have moved.
func (f *contents) Truncate(ino Ino, a *Attr, size uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size < a.Size {
		// First all that can fail.
		end := min(a.Size, roundUp(size))
		if err := f.prepareZero(ino, a, size, end); err != nil {
			return err
		}
		if err := f.roomToCut(ino, BlocksIn(size)); err != nil {
			return err
		}
		if err := f.zero(ino, a, size, end); err != nil {
			return err
		}
		if err := f.clear(a, ino, BlocksIn(size), math.MaxUint64-BlocksIn(size)); err != nil {
			return err
		}
	}
	b := *a
	b.Size, b.ImageEnd = size, min(a.ImageEnd, roundUp(size))
	if err := f.setAttr(ino, &b); err != nil {
		return err
	}
	*a = b
	return nil
}

func roundUp(n uint64) uint64 { return BlocksIn(n) * pages.PageSize }

// roomToCut makes sure that there are nodes to remove all extents of an inode from a block
// on, and to store its attributes.
func (f *contents) roomToCut(ino Ino, block uint64) error {
	e, _, err := extentAt(f.tree, ino, block)
	if err != nil {
		return err
	}
	if e.n > 0 {
		block = e.block // the part before stays
	}
	depth, err := f.tree.Depth()
	if err != nil {
		return err
	}
	// Leaves are emptied and then freed one after the other: new nodes are needed on two
	// paths from the root at most, to the first leaf and to the present one.
	var from, to [keyRoom]byte
	need, err := f.tree.FrozenBetween(extentKey(&from, ino, block), extentKey(&to, ino, math.MaxUint64), 2*depth)
	if err != nil {
		return err
	}
	attr := key(&from, ino, keyAttr)
	frozen, err := f.tree.FrozenBetween(attr, attr, depth)
	if err != nil {
		return err
	}
	need += frozen
	_, exists, err := f.tree.Get(attr)
	if err != nil {
		return err
	}
	if !exists {
		need += depth + 1 // a new key may split all nodes above it
	}
	if need == 0 {
		return nil
	}
	return f.store.EnsureNodes(min(need+pages.PutNodes, pages.MaxEnsured))
}

// prepareZero makes the block of [from, to) ready to be written by zero.
func (f *contents) prepareZero(ino Ino, a *Attr, from, to uint64) error {
	if from >= to {
		return nil
	}
	r, err := f.run(ino, a, from/pages.PageSize, 1)
	if err != nil || r.Zero() {
		return err
	}
	// If the image's part ends in this block, the whole block becomes the tree's.
	p, err := f.prepare(ino, a, from, to-from)
	if err != nil {
		return err
	}
	if p.Ready < to-from {
		return pages.ErrNoSpace
	}
	return nil
}

// zero overwrites a part of one block with zeros.
func (f *contents) zero(ino Ino, a *Attr, from, to uint64) error {
	if from >= to {
		return nil
	}
	r, err := f.run(ino, a, from/pages.PageSize, 1)
	if err != nil || r.Zero() {
		return err
	}
	if err := f.prepareZero(ino, a, from, to); err != nil {
		return err
	}
	return f.write(ino, a, from, make([]byte, to-from))
}

// write writes into pages that Prepare made ready.
func (f *contents) write(ino Ino, a *Attr, off uint64, b []byte) error {
	for len(b) > 0 {
		p, err := f.place(ino, a, off, uint64(len(b)))
		if err != nil {
			return err
		}
		if _, err := p.WriteAt(b[:p.N]); err != nil {
			return err
		}
		off, b = off+p.N, b[p.N:]
	}
	return nil
}
