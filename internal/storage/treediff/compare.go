package treediff

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/pages"
)

// comparison is the result of comparing two files.
type comparison struct {
	differs Differs
	xattrs  []string
}

// compare compares a file with one of the other side.
func (d *differ) compare(a, b *cowfs.Node) (comparison, error) {
	if a.Ino == b.Ino && !d.differs[a.Ino] {
		return comparison{}, nil
	}
	if a.Attr.Nlink < 2 && b.Attr.Nlink < 2 || a.Attr.IsDir() {
		return d.compareNow(a, b)
	}
	pair := [2]cowfs.Ino{a.Ino, b.Ino}
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

func (d *differ) compareNow(a, b *cowfs.Node) (c comparison, err error) {
	x, y := &a.Attr, &b.Attr
	note := func(differs bool, what Differs) {
		if differs {
			c.differs |= what
		}
	}
	note((x.Mode^y.Mode)&^cowfs.TypeMask != 0, DiffersMode)
	note(x.UID != y.UID || x.GID != y.GID, DiffersOwner)
	if c.xattrs, err = d.compareXattrs(a.Ino, b.Ino); err != nil {
		return c, err
	}
	note(len(c.xattrs) > 0, DiffersXattrs)
	switch kind := x.Mode & cowfs.TypeMask; {
	case kind != y.Mode&cowfs.TypeMask:
		c.differs |= DiffersType
	case kind == cowfs.TypeReg:
		same, err := d.sameData(a, b)
		note(!same, DiffersData)
		return c, err
	case kind == cowfs.TypeLink:
		t, err := d.sides[before].Target(a.Ino)
		if err != nil {
			return c, err
		}
		u, err := d.sides[after].Target(b.Ino)
		note(t != u, DiffersTarget)
		return c, err
	case kind != cowfs.TypeDir:
		note(x.Major != y.Major || x.Minor != y.Minor, DiffersDevice)
	}
	return c, nil
}

// compareXattrs returns the names of the attributes that differ, in their order.
func (d *differ) compareXattrs(a, b cowfs.Ino) ([]string, error) {
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

// mayCompare returns the number of bytes that may be read for comparisons. No sandbox uses a
// page twice, but a crafted tree of few pages may, and would take long to compare.
func mayCompare(sides ...*cowfs.Files) int64 {
	const some = 1 << 30
	n := int64(some)
	for _, f := range sides {
		n += 4 * f.Bytes()
	}
	return n
}

// comparePiece is the number of bytes that are compared at once.
const comparePiece = 256 << 10

// sameData returns whether two regular files have the same contents.
func (d *differ) sameData(a, b *cowfs.Node) (bool, error) {
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

// dataRuns calls fn for the parts in which two regular files of one size differ, until fn
// returns false. The parts are whole pages, except the last of the file.
func (d *differ) dataRuns(a, b *cowfs.Node, fn func(off, n uint64) (bool, error)) error {
	blocks := cowfs.BlocksIn(a.Attr.Size)
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

// samePlace returns whether two runs are the same pages, which need not be read.
func (d *differ) samePlace(r, s *cowfs.Run) bool {
	if r.Page != s.Page || r.ImageOffset != s.ImageOffset {
		return false
	}
	return r.Page == 0 || cowfs.SamePlace(d.sides[before], d.sides[after], r)
}

// compareRun compares two runs of the same blocks.
func (d *differ) compareRun(a, b *cowfs.Node, r, s *cowfs.Run, fn func(off, n uint64) (bool, error)) (goOn bool, err error) {
	start := r.Block * pages.PageSize
	n := min(r.N*pages.PageSize, a.Attr.Size-start)
	if room := min(n, comparePiece); uint64(len(d.bufs[before])) < room {
		d.bufs = [2][]byte{make([]byte, room), make([]byte, room)}
	}
	for skip := uint64(0); skip < n; skip += comparePiece {
		if d.ctx.Err() != nil {
			return false, context.Cause(d.ctx)
		}
		size := min(comparePiece, n-skip)
		if d.left -= 2 * int64(size); d.left < 0 {
			return false, fmt.Errorf("%w: files have more data than there are", cowfs.ErrLimit)
		}
		x, y := d.bufs[before][:size], d.bufs[after][:size]
		if err := d.sides[before].ReadRun(a, r, skip, x); err != nil {
			return false, err
		}
		if err := d.sides[after].ReadRun(b, s, skip, y); err != nil {
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

// differingPages calls fn for the pages in which x and y, which are at off, differ.
func differingPages(x, y []byte, off uint64, fn func(off, n uint64) (bool, error)) (goOn bool, err error) {
	for at := 0; at < len(x); at += pages.PageSize {
		end := min(at+pages.PageSize, len(x))
		if bytes.Equal(x[at:end], y[at:end]) {
			continue
		}
		if goOn, err := fn(off+uint64(at), uint64(end-at)); !goOn || err != nil {
			return goOn, err
		}
	}
	return true, nil
}

// SameData returns whether two regular files of one size have the same contents. Pages that
// they share are not read.
func SameData(ctx context.Context, a *cowfs.Files, x *cowfs.Node, b *cowfs.Files, y *cowfs.Node) (bool, error) {
	d := differ{ctx: ctx, sides: [2]*cowfs.Files{a, b}, left: mayCompare(a, b)}
	same, err := d.sameData(x, y)
	if err != nil {
		return false, fmt.Errorf("compare files: %w", err)
	}
	return same, nil
}
