package cowfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"
)

// TestDiffCost compares two children of a tree of 50 000 keys, with 10 keys changed
// in each.
func TestDiffCost(t *testing.T) {
	s := storeForTest(t, 1, nil)
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
		ks := storeForTest(t, base, segs)
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
	err := DiffViews(a, b, func(key, av, bv []byte) error {
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
	treePages(t, s, root, func(Page) { nodes++ })
	t.Logf("%d of %d nodes read, and %d", a.reads, nodes, b.reads)
	if a.reads > 60 || b.reads > 60 {
		t.Errorf("%d and %d pages were read for 20 differences", a.reads, b.reads)
	}
	stop := errors.New("stop")
	if err := DiffViews(a, b, func(_, _, _ []byte) error { return stop }); err != stop {
		t.Errorf("the error of fn became %v", err)
	}
}

// hostileTree is a small tree in a file, with three levels.
func hostileTree(t testing.TB) (content []byte, root Page, keys [][]byte) {
	s := storeForTest(t, 1, nil)
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
	return slices.Concat(make([]byte, PageSize), content), tree.Root(), keys
}

func fileWith(t testing.TB, content []byte) *os.File {
	t.Helper()
	f := pageFileForTest(t)
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

// readHostile does all that a View can do. It returns how often something was
// found to be wrong.
func readHostile(t testing.TB, content []byte, other *View, root Page, keys [][]byte) int {
	f := fileWith(t, content)
	defer f.Close()
	pages := len(content) / PageSize
	v := OpenView([]Segment{{1, Page(pages), f}}, root)
	wrong := 0
	try := func(err error) {
		if err != nil && !errors.Is(err, ErrCorrupt) {
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
	if entries > pages*maxNodeEntries {
		t.Fatalf("%d entries in %d pages", entries, pages)
	}
	for _, pair := range [][2]*View{{v, other}, {other, v}} {
		last = nil
		try(DiffViews(pair[0], pair[1], func(k, a, b []byte) error {
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
	good := OpenView([]Segment{{1, Page(len(content) / PageSize), fileWith(t, content)}}, root)
	if n := readHostile(t, content, good, root, keys); n != 0 {
		t.Fatalf("%d errors in a sound tree", n)
	}
	r := newRand(4)
	wrong := 0
	for range 400 {
		bad := bytes.Clone(content)
		for range 1 + r.IntN(3) {
			p := 1 + r.IntN(len(content)/PageSize-1)
			off := r.IntN(PageSize)
			if r.IntN(2) == 0 {
				off = r.IntN(100) // header and slots
			}
			at := p*PageSize + off
			switch r.IntN(3) {
			case 0:
				bad[at] ^= 1 << r.IntN(8)
			case 1:
				bad[at] = byte(r.Uint32())
			default:
				copy(bad[p*PageSize:], content[(1+r.IntN(len(content)/PageSize-1))*PageSize:][:PageSize])
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
	good := OpenView([]Segment{{1, Page(len(content) / PageSize), fileWith(f, content)}}, root)
	f.Add([]byte{0, 1, 2, 3})
	f.Fuzz(func(t *testing.T, edits []byte) {
		bad := bytes.Clone(content)
		for ; len(edits) >= 4; edits = edits[4:] {
			at := int(edits[0])<<16 | int(edits[1])<<8 | int(edits[2])
			bad[PageSize+at%(len(bad)-PageSize)] = edits[3]
		}
		readHostile(t, bad, good, root, keys[:10])
	})
}

// TestHostileGraph is nodes that are sound each for itself and share children, so
// that a walk without bounds would take for ever.
func TestHostileGraph(t *testing.T) {
	const levels = 20
	content := make([]byte, (levels+2)*PageSize)
	for _, single := range []bool{false, true} {
		for level := range levels {
			n := (*treeNode)(content[(level+1)*PageSize:])
			n.init(level, 1, Page(level+1))
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
		f := fileWith(t, content)
		a := OpenView([]Segment{{1, levels + 1, f}}, levels)
		b := OpenView([]Segment{{1, levels + 1, fileWith(t, content)}}, levels)
		if err := a.Scan(nil, func(_, _ []byte) bool { return true }); !errors.Is(err, ErrCorrupt) {
			t.Errorf("scan: %v", err)
		}
		if err := DiffViews(a, b, func(_, _, _ []byte) error { return nil }); !errors.Is(err, ErrCorrupt) {
			t.Errorf("diff: %v", err)
		}
		c := OpenView([]Segment{{1, levels + 1, f}}, levels-1)
		if err := DiffViews(a, c, func(_, _, _ []byte) error { return nil }); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("diff of levels: %v", err)
		}
	}
}

func TestViewOfWhatIsNotThere(t *testing.T) {
	content, root, keys := hostileTree(t)
	f := fileWith(t, content)
	end := Page(len(content) / PageSize)
	v := OpenView([]Segment{{1, end, f}}, root)
	buf := make([]byte, 2*PageSize)
	if err := v.ReadAt(1, 100, buf[:5000]); err != nil || !bytes.Equal(buf[:5000], content[PageSize+100:][:5000]) {
		t.Errorf("ReadAt: %v", err)
	}
	for _, c := range []struct {
		p      Page
		off, n int
	}{{0, 0, 1}, {end, 0, 1}, {end - 1, 1, PageSize}, {1 << 60, 0, 1}, {1, -1, 1}, {1, 1 << 62, 1}, {^Page(0), 0, 2 * PageSize}, {end - 1, PageSize, 1}} {
		if err := v.ReadAt(c.p, c.off, buf[:c.n]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("ReadAt(%d, %d, %d): %v", c.p, c.off, c.n, err)
		}
	}
	if err := f.Truncate(PageSize); err != nil {
		t.Fatal(err)
	}
	v = OpenView([]Segment{{1, end, f}}, root)
	if _, _, err := v.Get(keys[0]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a file that was cut: %v", err)
	}
	if err := v.ReadAt(1, 0, buf); !errors.Is(err, ErrCorrupt) {
		t.Errorf("data of a file that was cut: %v", err)
	}
	v = OpenView([]Segment{{5, 4, f}}, root)
	if _, _, err := v.Get(keys[0]); !errors.Is(err, ErrCorrupt) {
		t.Errorf("segments that make no sense: %v", err)
	}
	closed := fileWith(t, nil)
	closed.Close()
	if err := OpenView([]Segment{{1, 2, closed}}, 1).ReadAt(1, 0, buf); !errors.Is(err, fs.ErrClosed) {
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
	end := Page(len(content) / PageSize)
	r := newRand(5)
	wrong := 0
	for range 100 {
		bad := bytes.Clone(content)
		for range 5 {
			p := 1 + r.IntN(len(content)/PageSize-1)
			bad[p*PageSize+r.IntN(200)] = byte(r.Uint32())
		}
		s := storeForTest(t, end, []Segment{{1, end, fileWith(t, bad)}})
		tree := OpenTree(s, root)
		try := func(err error) {
			if err != nil && !errors.Is(err, ErrCorrupt) {
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
