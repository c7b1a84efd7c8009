package cowfs

import (
	"bytes"
	"errors"
	"testing"

	"ramet.dev/ramet/internal/storage/pages"
)

// TestTruncateIsWhole cuts a pinned file of many extents with so few nodes that they
// may not be enough: what then fails has changed nothing, and what does not has done
// all.
func TestTruncateIsWhole(t *testing.T) {
	const (
		blocks = 3000                        // every other one has data
		size   = 10*pages.PageSize + 100     // within a block of data
		full   = 2 * blocks * pages.PageSize // before
	)
	data := bytes.Repeat([]byte{7}, pages.PageSize)
	failed, done := 0, 0
	for nodes := range 2 * pages.RoomNodes {
		m := newFSModel(t, nil, nil, 0)
		ino := m.fs.NewIno()
		f := m.add(ino, Attr{Mode: TypeReg | 0o644, Nlink: 1})
		put := func(block uint64) {
			p, err := m.fs.Prepare(ino, &f.attr, block*pages.PageSize, pages.PageSize)
			if err != nil || p.Ready != pages.PageSize {
				t.Fatal(p, err)
			}
			m.ok(m.fs.write(ino, &f.attr, block*pages.PageSize, data))
		}
		for b := range uint64(blocks) {
			put(2 * b)
		}
		f.attr.Size = full
		m.ok(m.fs.SetAttr(ino, &f.attr))
		if _, _, err := m.fs.Pin("pin"); err != nil {
			t.Fatal(err)
		}
		put(size / pages.PageSize)
		s := m.fs.store
		s.Bound(0)
		for s.ReadyNodes() > nodes {
			_, err := s.AllocNode()
			m.ok(err)
		}
		before := f.attr
		err := m.fs.Truncate(ino, &f.attr, size)
		stored, _, attrErr := m.fs.Attr(ino)
		m.ok(attrErr)
		if stored != f.attr {
			t.Fatalf("%d nodes: stored is %+v, not %+v", nodes, stored, f.attr)
		}
		switch {
		case err == nil:
			done++
			if f.attr.Size != size || f.attr.Blocks != 6 {
				t.Errorf("%d nodes: the file has %+v", nodes, f.attr)
			}
			m.ok(m.fs.Truncate(ino, &f.attr, full)) // what was cut off must not come back
		case !errors.Is(err, pages.ErrNoSpace):
			t.Fatal(err)
		default:
			failed++
			if f.attr != before {
				t.Errorf("%d nodes: the file had %+v and has %+v", nodes, before, f.attr)
			}
		}
		for b := range uint64(2 * blocks) {
			want := make([]byte, pages.PageSize)
			if b%2 == 0 && (err != nil || b < size/pages.PageSize) {
				want = data
			} else if b == size/pages.PageSize {
				copy(want, data[:size%pages.PageSize])
			}
			if got := m.read(m.fs, ino, &f.attr, b*pages.PageSize, pages.PageSize); !bytes.Equal(got, want) {
				t.Fatalf("%d nodes: after %v block %d is wrong", nodes, err, b)
			}
		}
	}
	if failed == 0 || done == 0 {
		t.Errorf("it failed %d times and was done %d times", failed, done)
	}
}

// TestTruncateGrows makes a file larger when that cannot be stored.
func TestTruncateGrows(t *testing.T) {
	m := newFSModel(t, nil, nil, 0)
	ino := m.fs.NewIno()
	a := Attr{Mode: TypeReg | 0o644, Nlink: 1, Size: 5}
	m.ok(m.fs.SetAttr(ino, &a))
	if _, _, err := m.fs.Pin("pin"); err != nil {
		t.Fatal(err)
	}
	s := m.fs.store
	s.Bound(0)
	for s.ReadyNodes() > 0 {
		_, err := s.AllocNode()
		m.ok(err)
	}
	if err := m.fs.Truncate(ino, &a, 100); !errors.Is(err, pages.ErrNoSpace) || a.Size != 5 {
		t.Errorf("it has %d bytes, %v", a.Size, err)
	}
}
