package cowfs

import (
	"bytes"
	"context"
	"fmt"
	"slices"
)

// comparison is how two files differ.
type comparison struct {
	differs Differs
	xattrs  []string
}

// sameAttr says whether attributes differ in nothing that counts. Not all that
// counts for the data is in them.
func sameAttr(a, b *Attr) bool {
	return a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID && a.Major == b.Major && a.Minor == b.Minor &&
		(a.Size == b.Size || a.IsDir())
}

// compare compares a file with one of the other side.
func (d *differ) compare(a, b *Node) (comparison, error) {
	if a.Ino == b.Ino && !d.differs[a.Ino] {
		return comparison{}, nil
	}
	if a.Attr.Nlink < 2 && b.Attr.Nlink < 2 || a.Attr.IsDir() {
		return d.compareNow(a, b)
	}
	pair := [2]Ino{a.Ino, b.Ino}
	c, ok := d.compared[pair]
	if !ok {
		var err error
		if c, err = d.compareNow(a, b); err != nil {
			return c, err
		}
		d.compared[pair] = c
	}
	return c, nil
}

func (d *differ) compareNow(a, b *Node) (c comparison, err error) {
	x, y := &a.Attr, &b.Attr
	note := func(differs bool, what Differs) {
		if differs {
			c.differs |= what
		}
	}
	note((x.Mode^y.Mode)&^TypeMask != 0, DiffersMode)
	note(x.UID != y.UID || x.GID != y.GID, DiffersOwner)
	if c.xattrs, err = d.compareXattrs(a.Ino, b.Ino); err != nil {
		return c, err
	}
	note(len(c.xattrs) > 0, DiffersXattrs)
	switch kind := x.Mode & TypeMask; {
	case kind != y.Mode&TypeMask:
		c.differs |= DiffersType
	case kind == TypeReg:
		same, err := d.sameData(a, b)
		note(!same, DiffersData)
		return c, err
	case kind == TypeLink:
		t, err := d.sides[before].Target(a.Ino)
		if err != nil {
			return c, err
		}
		u, err := d.sides[after].Target(b.Ino)
		note(t != u, DiffersTarget)
		return c, err
	case kind != TypeDir:
		note(x.Major != y.Major || x.Minor != y.Minor, DiffersDevice)
	}
	return c, nil
}

// compareXattrs returns the names of the attributes that differ, in their order.
func (d *differ) compareXattrs(a, b Ino) ([]string, error) {
	old, err := d.sides[before].Xattrs(a)
	if err != nil {
		return nil, err
	}
	names, err := d.sides[after].Xattrs(b)
	if err != nil {
		return nil, err
	}
	names = append(names, old...)
	slices.Sort(names)
	var differ []string
	for _, name := range slices.Compact(names) {
		x, err := d.sides[before].Xattr(a, name)
		if err != nil {
			return nil, err
		}
		y, err := d.sides[after].Xattr(b, name)
		if err != nil {
			return nil, err
		}
		if (x == nil) != (y == nil) || !bytes.Equal(x, y) {
			differ = append(differ, name)
		}
	}
	return differ, nil
}

// mayCompare bounds what is read to compare. No sandbox uses a page twice; a tree
// that does can make much of little.
func mayCompare(sides ...*Files) int64 {
	const some = 1 << 30
	n := int64(some)
	for _, f := range sides {
		for _, seg := range f.view.segs {
			n += 4 * int64(seg.End-seg.Start) * PageSize
		}
		n += 4 * int64(len(f.data))
	}
	return n
}

// comparePiece is how much is compared at once, in bytes.
const comparePiece = 256 << 10

// sameData says whether two regular files contain the same.
func (d *differ) sameData(a, b *Node) (bool, error) {
	if a.Attr.Size != b.Attr.Size {
		return false, nil
	}
	same := true
	err := d.dataRuns(a, b, func(off, n uint64) (bool, error) {
		same = false
		return false, nil
	})
	return same, err
}

// dataRuns calls fn for the parts in which two regular files of one size differ,
// in whole pages but for the end, until it returns false.
func (d *differ) dataRuns(a, b *Node, fn func(off, n uint64) (bool, error)) error {
	blocks := blocksIn(a.Attr.Size)
	for block := uint64(0); block < blocks; {
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		r, err := d.sides[before].Map(a, block, blocks-block)
		if err != nil {
			return err
		}
		s, err := d.sides[after].Map(b, block, r.N)
		if err != nil {
			return err
		}
		r.N = s.N
		if !d.samePlace(&r, &s) {
			if goOn, err := d.compareRun(a, b, &r, &s, fn); !goOn || err != nil {
				return err
			}
		}
		block += r.N
	}
	return nil
}

// samePlace says whether two runs are one, which need not be read.
func (d *differ) samePlace(r, s *Run) bool {
	if r.Page != s.Page || r.ImageOffset != s.ImageOffset {
		return false
	}
	return r.Page == 0 || samePages(d.sides[before].view, d.sides[after].view, r.Page, Page(r.N))
}

// compareRun compares two runs of the same blocks.
func (d *differ) compareRun(a, b *Node, r, s *Run, fn func(off, n uint64) (bool, error)) (goOn bool, err error) {
	start := r.Block * PageSize
	n := min(r.N*PageSize, a.Attr.Size-start)
	if room := min(n, comparePiece); uint64(len(d.bufs[before])) < room {
		d.bufs = [2][]byte{make([]byte, room), make([]byte, room)}
	}
	for skip := uint64(0); skip < n; skip += comparePiece {
		if d.ctx.Err() != nil {
			return false, context.Cause(d.ctx)
		}
		size := min(comparePiece, n-skip)
		if d.left -= 2 * int64(size); d.left < 0 {
			return false, fmt.Errorf("%w: files have more data than there are", ErrLimit)
		}
		x, y := d.bufs[before][:size], d.bufs[after][:size]
		if err := d.sides[before].readRun(a, r, skip, x); err != nil {
			return false, err
		}
		if err := d.sides[after].readRun(b, s, skip, y); err != nil {
			return false, err
		}
		if bytes.Equal(x, y) {
			continue
		}
		if goOn, err := differingPages(x, y, start+skip, fn); !goOn || err != nil {
			return goOn, err
		}
	}
	return true, nil
}

// differingPages calls fn for the pages in which x and y differ, which are at off.
func differingPages(x, y []byte, off uint64, fn func(off, n uint64) (bool, error)) (goOn bool, err error) {
	for at := 0; at < len(x); at += PageSize {
		end := min(at+PageSize, len(x))
		if bytes.Equal(x[at:end], y[at:end]) {
			continue
		}
		if goOn, err := fn(off+uint64(at), uint64(end-at)); !goOn || err != nil {
			return goOn, err
		}
	}
	return true, nil
}
