package btree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/pages/pagestest"
)

// TestDiffCost compares two children of a tree of 50 000 keys, with 10 keys changed
// in each.
func TestDiffCost(t *testing.T) {
	s := pagestest.Store(t, 1, nil)
	tree := OpenTree(s, 0)
	r := newRand(3)
	keys := make([][]byte, 50000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "/usr/lib/python3/%05d/%d", r.IntN(1000), i)
		if err := tree.Put(keys[i], make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Pin("fork"); err != nil {
		t.Fatal(err)
	}
	base, segs, root := s.End(), s.Segments(), tree.Root()
	views, want := []*View{}, map[string]bool{}
	for kid := range 2 {
		ks := pagestest.Store(t, base, segs)
		kt := OpenTree(ks, root)
		for i := range 10 {
			k := keys[r.IntN(len(keys))]
			want[string(k)] = true
			var err error
			switch i {
			case 8:
				_, err = kt.Delete(k)
			case 9:
				err = kt.Put(append(bytes.Clone(k), 'n'), nil)
				delete(want, string(k))
				want[string(k)+"n"] = true
			default:
				err = kt.Put(k, bytes.Repeat([]byte{byte(kid + 1)}, 64))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		views = append(views, OpenView(ks.Segments(), kt.Root()))
	}
	a, b := views[0], views[1]
	n := 0
	err := Diff(a, b, noData, func(key, av, bv []byte) error {
		if !want[string(key)] {
			t.Errorf("%q is no difference", key)
		}
		n++
		return nil
	})
	if err != nil || n != len(want) {
		t.Errorf("%d differences, want %d: %v", n, len(want), err)
	}
	nodes := 0
	treePages(t, s, root, func(pages.Page) { nodes++ })
	t.Logf("%d of %d nodes read, and %d", a.Reads(), nodes, b.Reads())
	if a.Reads() > 60 || b.Reads() > 60 {
		t.Errorf("%d and %d pages were read for 20 differences", a.Reads(), b.Reads())
	}
	stop := errors.New("stop")
	if err := Diff(a, b, noData, func(_, _, _ []byte) error { return stop }); err != stop {
		t.Errorf("the error of fn became %v", err)
	}
}

// hostileTree is a small tree in a file, with three levels.
func hostileTree(t testing.TB) (content []byte, root pages.Page, keys [][]byte) {
	s := pagestest.Store(t, 1, nil)
	tree := OpenTree(s, 0)
	for i := range 300 {
		k := fmt.Appendf(bytes.Repeat([]byte("x"), 400), "%03d", i*7%300) // long separators
		keys = append(keys, k)
		if err := tree.Put(k, k[:i%100]); err != nil {
			t.Fatal(err)
		}
	}
	content, err := s.Bytes(1, int(s.End()-1))
	if err != nil {
		t.Fatal(err)
	}
	n, err := tree.load(tree.Root(), -1)
	if err != nil || n.level() < 2 {
		t.Fatalf("root of level %d, %v", n.level(), err)
	}
	return slices.Concat(make([]byte, pages.PageSize), content), tree.Root(), keys
}

// readHostile does all that a View can do. It returns how often something was
// found to be wrong.
func readHostile(t testing.TB, content []byte, other *View, root pages.Page, keys [][]byte) int {
	f := pagestest.FileWith(t, content)
	defer f.Close()
	count := len(content) / pages.PageSize
	v := OpenView([]pages.Segment{{Start: 1, End: pages.Page(count), File: f}}, root)
	wrong := 0
	try := func(err error) {
		if err != nil && !errors.Is(err, pages.ErrCorrupt) {
			t.Fatal(err)
		}
		if err != nil {
			wrong++
		}
	}
	for _, k := range keys {
		_, _, err := v.Get(k)
		try(err)
		_, _, _, err = v.Floor(append(k[:len(k):len(k)], 0))
		try(err)
	}
	entries := 0
	var last []byte
	try(v.Scan(nil, func(k, val []byte) bool {
		if bytes.Compare(last, k) >= 0 || len(k) > maxKey || len(val) > maxValue {
			t.Fatalf("%q after %q", k, last)
		}
		last = k
		entries++
		return true
	}))
	if entries > count*maxNodeEntries {
		t.Fatalf("%d entries in %d pages", entries, count)
	}
	for _, pair := range [][2]*View{{v, other}, {other, v}} {
		last = nil
		try(Diff(pair[0], pair[1], noData, func(k, a, b []byte) error {
			if bytes.Compare(last, k) >= 0 || a == nil && b == nil {
				t.Fatalf("%q after %q", k, last)
			}
			last = k
			return nil
		}))
	}
	return wrong
}

func TestHostilePages(t *testing.T) {
	content, root, keys := hostileTree(t)
	good := OpenView([]pages.Segment{{Start: 1, End: pages.Page(len(content) / pages.PageSize), File: pagestest.FileWith(t, content)}}, root)
	if n := readHostile(t, content, good, root, keys); n != 0 {
		t.Fatalf("%d errors in a sound tree", n)
	}
	r := newRand(4)
	wrong := 0
	for range 400 {
		bad := bytes.Clone(content)
		for range 1 + r.IntN(3) {
			p := 1 + r.IntN(len(content)/pages.PageSize-1)
			off := r.IntN(pages.PageSize)
			if r.IntN(2) == 0 {
				off = r.IntN(100) // header and slots
			}
			at := p*pages.PageSize + off
			switch r.IntN(3) {
			case 0:
				bad[at] ^= 1 << r.IntN(8)
			case 1:
				bad[at] = byte(r.Uint32())
			default:
				copy(bad[p*pages.PageSize:], content[(1+r.IntN(len(content)/pages.PageSize-1))*pages.PageSize:][:pages.PageSize])
			}
		}
		wrong += readHostile(t, bad, good, root, keys[:20])
	}
	if wrong < 100 {
		t.Errorf("%d errors were found", wrong)
	}
}

// FuzzView changes pages of a tree: each 4 bytes of the input are a place and a
// value.
func FuzzView(f *testing.F) {
	content, root, keys := hostileTree(f)
	good := OpenView([]pages.Segment{{Start: 1, End: pages.Page(len(content) / pages.PageSize), File: pagestest.FileWith(f, content)}}, root)
	f.Add([]byte{0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, edits []byte) {
		bad := bytes.Clone(content)
		for ; len(edits) >= 4; edits = edits[4:] {
			at := int(edits[0])<<16 | int(edits[1])<<8 | int(edits[2])
			bad[pages.PageSize+at%(len(bad)-pages.PageSize)] = edits[3]
		}
		readHostile(t, bad, good, root, keys[:10])
	})
}

// TestHostileGraph is nodes that are sound each for itself and share children, so
// that a walk without bounds would take for ever.
func TestHostileGraph(t *testing.T) {
	const levels = 20
	content := make([]byte, (levels+2)*pages.PageSize)
	for _, single := range []bool{false, true} {
		for level := range levels {
			n := (*treeNode)(content[(level+1)*pages.PageSize:])
			n.init(level, 1, pages.Page(level+1))
			if level == 0 {
				n.appendCell([]byte("k"), nil)
				continue
			}
			var child [childSize]byte
			binary.LittleEndian.PutUint64(child[:], uint64(level))
			n.appendCell(nil, child[:])
			for i := range 200 {
				if !single || level == 1 {
					n.appendCell(fmt.Appendf(nil, "k%03d", i), child[:])
				}
			}
		}
		// The other one is the same but for the page of the root, and for what is
		// below the first key of each node: nothing can be skipped at once.
		f := pagestest.FileWith(t, content)
		a := OpenView([]pages.Segment{{Start: 1, End: levels + 1, File: f}}, levels)
		b := OpenView([]pages.Segment{{Start: 1, End: levels + 1, File: pagestest.FileWith(t, content)}}, levels)
		if err := a.Scan(nil, func(_, _ []byte) bool { return true }); !errors.Is(err, pages.ErrCorrupt) {
			t.Errorf("scan: %v", err)
		}
		if err := Diff(a, b, noData, func(_, _, _ []byte) error { return nil }); !errors.Is(err, pages.ErrCorrupt) {
			t.Errorf("diff: %v", err)
		}
		c := OpenView([]pages.Segment{{Start: 1, End: levels + 1, File: f}}, levels-1)
		if err := Diff(a, c, noData, func(_, _, _ []byte) error { return nil }); err != nil && !errors.Is(err, pages.ErrCorrupt) {
			t.Errorf("diff of levels: %v", err)
		}
	}
}

func TestViewOfWhatIsNotThere(t *testing.T) {
	content, root, keys := hostileTree(t)
	f := pagestest.FileWith(t, content)
	end := pages.Page(len(content) / pages.PageSize)
	v := OpenView([]pages.Segment{{Start: 1, End: end, File: f}}, root)
	buf := make([]byte, 2*pages.PageSize)
	if err := v.ReadAt(1, 100, buf[:5000]); err != nil || !bytes.Equal(buf[:5000], content[pages.PageSize+100:][:5000]) {
		t.Errorf("ReadAt: %v", err)
	}
	for _, c := range []struct {
		p      pages.Page
		off, n int
	}{{0, 0, 1}, {end, 0, 1}, {end - 1, 1, pages.PageSize}, {1 << 60, 0, 1}, {1, -1, 1}, {1, 1 << 62, 1}, {^pages.Page(0), 0, 2 * pages.PageSize}, {end - 1, pages.PageSize, 1}} {
		if err := v.ReadAt(c.p, c.off, buf[:c.n]); !errors.Is(err, pages.ErrCorrupt) {
			t.Errorf("ReadAt(%d, %d, %d): %v", c.p, c.off, c.n, err)
		}
	}
	if err := f.Truncate(pages.PageSize); err != nil {
		t.Fatal(err)
	}
	v = OpenView([]pages.Segment{{Start: 1, End: end, File: f}}, root)
	if _, _, err := v.Get(keys[0]); !errors.Is(err, pages.ErrCorrupt) {
		t.Errorf("a file that was cut: %v", err)
	}
	if err := v.ReadAt(1, 0, buf); !errors.Is(err, pages.ErrCorrupt) {
		t.Errorf("data of a file that was cut: %v", err)
	}
	v = OpenView([]pages.Segment{{Start: 5, End: 4, File: f}}, root)
	if _, _, err := v.Get(keys[0]); !errors.Is(err, pages.ErrCorrupt) {
		t.Errorf("segments that make no sense: %v", err)
	}
	closed := pagestest.FileWith(t, nil)
	closed.Close()
	if err := OpenView([]pages.Segment{{Start: 1, End: 2, File: closed}}, 1).ReadAt(1, 0, buf); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("a closed file: %v", err)
	}
	empty := OpenView(nil, 0)
	if err := empty.Scan(nil, func(_, _ []byte) bool { return false }); err != nil {
		t.Errorf("an empty view: %v", err)
	}
}

// TestTreeOfHostilePages: what an ancestor wrote may be wrong. It is an error, and
// changes nothing.
func TestTreeOfHostilePages(t *testing.T) {
	content, root, keys := hostileTree(t)
	end := pages.Page(len(content) / pages.PageSize)
	r := newRand(5)
	wrong := 0
	for range 100 {
		bad := bytes.Clone(content)
		for range 5 {
			p := 1 + r.IntN(len(content)/pages.PageSize-1)
			bad[p*pages.PageSize+r.IntN(200)] = byte(r.Uint32())
		}
		s := pagestest.Store(t, end, []pages.Segment{{Start: 1, End: end, File: pagestest.FileWith(t, bad)}})
		tree := OpenTree(s, root)
		try := func(err error) {
			if err != nil && !errors.Is(err, pages.ErrCorrupt) {
				t.Fatal(err)
			}
			if err != nil {
				wrong++
			}
		}
		for i, k := range keys {
			_, _, err := tree.Get(k)
			try(err)
			_, _, _, err = tree.Floor(k[:len(k)-1])
			try(err)
			if i%2 == 0 {
				try(tree.Put(k, k))
				continue
			}
			_, err = tree.Delete(k)
			try(err)
		}
		try(tree.Scan(nil, func(_, _ []byte) bool { return true }))
		s.Close()
	}
	if wrong < 100 {
		t.Errorf("%d errors were found", wrong)
	}
}
