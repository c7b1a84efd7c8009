package btree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/pages/pagestest"
)

// TestNoMorePages fills a store: a Put that fails changes nothing, and deletions
// find nodes even where all are pinned.
func TestNoMorePages(t *testing.T) {
	s := pagestest.Store(t, 1, nil)
	s.Bound(1000)
	tree := OpenTree(s, 0)
	key, keys := make([]byte, 500), uint32(0)
	for ; ; keys++ {
		binary.BigEndian.PutUint32(key, keys)
		root, nodes := tree.Root(), tree.Grown()
		err := tree.Put(key, key)
		if errors.Is(err, pages.ErrNoSpace) {
			if tree.Root() != root || tree.Grown() != nodes {
				t.Error("a Put that failed changed the tree")
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if s.ReadyNodes() < pages.PutNodes || s.ReadyNodes() > 2*pages.PutNodes {
		t.Errorf("%d nodes are left", s.ReadyNodes())
	}
	for _, _, err := s.Alloc(64); !errors.Is(err, pages.ErrNoSpace); _, _, err = s.Alloc(64) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Pin("pin"); err != nil {
		t.Fatal(err)
	}
	for i := range uint32(3) {
		binary.BigEndian.PutUint32(key, i*keys/3)
		if ok, err := tree.Delete(key); err != nil || !ok {
			t.Fatalf("delete in a full store: %v, %v", ok, err)
		}
	}
	if s.End() > 1000 {
		t.Errorf("pages up to %d are used", s.End())
	}
	pagestest.Check(t, s)
	s.Bound(10000)
	pagestest.Alloc(t, s, 5000)
}

func TestSpaceGoesBack(t *testing.T) {
	s := pagestest.Store(t, 1, nil)
	tree := OpenTree(s, 0)
	r := newRand(2)
	type extent struct {
		p    pages.Page
		n    int
		born uint32
	}
	var extents []extent
	for i := range 20000 {
		if err := tree.Put(fmt.Appendf(nil, "key %d", r.IntN(1e9)), make([]byte, 50)); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			p, n := pagestest.Alloc(t, s, 1+r.IntN(8))
			pagestest.Fill(t, s, p, n, 7)
			extents = append(extents, extent{p, n, s.Epoch()})
		}
		if i%5000 == 0 {
			if err := s.Pin(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := pagestest.OwnFile(s).Sync(); err != nil {
		t.Fatal(err)
	}
	before := pagestest.BlocksOf(t, pagestest.OwnFile(s))
	for tree.Root() != 0 {
		var keys [][]byte
		err := tree.Scan(nil, func(k, _ []byte) bool {
			keys = append(keys, bytes.Clone(k))
			return len(keys) < 1000
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range keys {
			if _, err := tree.Delete(k); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, e := range extents {
		s.Free(e.p, e.n, e.born)
	}
	for _, id := range s.Pins() {
		s.Release(id)
	}
	if s.Used() != 0 {
		t.Errorf("%d pages are used by nothing", s.Used())
	}
	if after := pagestest.BlocksOf(t, pagestest.OwnFile(s)); after > 1<<20 || before < 10<<20 {
		t.Errorf("%d bytes on disk, before %d", after, before)
	}
	pagestest.Check(t, s) // reads holes, which gives them memory
}
