package cowfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// pageFileForTest returns an empty file. It is in memory: a test makes thousands
// of holes, and disks are slow at that.
func pageFileForTest(t testing.TB) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("pages", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "pages")
	t.Cleanup(func() { f.Close() })
	return f
}

func storeForTest(t testing.TB, base Page, inherited []Segment) *Store {
	t.Helper()
	s, err := NewStore(pageFileForTest(t), base, inherited)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// treePages calls fn for every node of a tree in a store.
func treePages(t testing.TB, s *Store, root Page, fn func(Page)) {
	t.Helper()
	if root == 0 {
		return
	}
	n, err := OpenTree(s, root).load(root, -1)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.check(root, n.level()); err != nil {
		t.Fatal(err)
	}
	fn(root)
	if n.level() == 0 {
		return
	}
	for i := range n.count() {
		p, _ := n.child(i)
		treePages(t, s, p, fn)
	}
}

// checkFreeSpace fails if pages are lost or free twice.
func checkFreeSpace(t testing.TB, s *Store) {
	t.Helper()
	owner := map[Page]string{}
	claim := func(p Page, who string) {
		if was := owner[p]; was != "" {
			t.Fatalf("page %d is %s and %s", p, was, who)
		}
		if !s.Own(p) {
			t.Fatalf("page %d is %s and not ours", p, who)
		}
		owner[p] = who
	}
	free, dirty := int64(0), Page(0)
	for _, r := range s.free.byStart {
		for i := range r.n {
			claim(r.start+i, "free")
		}
		free += int64(r.n)
		if !r.clean {
			dirty += r.n
			continue
		}
		b, err := s.Bytes(r.start, int(r.n))
		if err != nil {
			t.Fatal(err)
		}
		for len(b) > 0 && b[0] == 0 && b[len(b)/2] == 0 { // a sample
			b = b[min(len(b), PageSize/2):]
		}
		if len(b) > 0 {
			t.Fatalf("%d clean pages from %d on are not zero", r.n, r.start)
		}
	}
	if dirty != s.free.dirtyPages {
		t.Fatalf("%d dirty pages, counted %d", dirty, s.free.dirtyPages)
	}
	nodes, idle := 0, 0
	for at, c := range s.clusters {
		if at*clusterPages != c.start {
			t.Fatalf("cluster at %d begins at %d", at*clusterPages, c.start)
		}
		if (c.free != 0) != (c.pos < len(s.partial) && s.partial[c.pos] == c) {
			t.Fatalf("cluster at %d with free pages %b is in the wrong place", c.start, c.free)
		}
		for i := range Page(clusterPages) {
			if c.free&(1<<i) != 0 {
				claim(c.start+i, "a free node")
				nodes++
			}
		}
		for i := c.ready; i < clusterPages; i++ {
			claim(c.start+Page(i), "not ready")
			idle++
		}
		if c.ready < clusterPages && c != s.growing {
			t.Fatalf("cluster at %d does not grow any more", c.start)
		}
	}
	if nodes != s.free1 {
		t.Fatalf("%d free nodes, counted %d", nodes, s.free1)
	}
	free += int64(idle)
	for _, pin := range s.pins {
		for _, d := range pin.dead {
			for i := range d.n {
				claim(d.start+i, "dead")
			}
		}
	}
	if all := int64(s.end - s.base); all-free-int64(nodes) != s.Used() {
		t.Fatalf("%d pages, %d free, %d of nodes free, and %d used", all, free, nodes, s.Used())
	}
}

func blocksOf(t testing.TB, f *os.File) int64 {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

func allocForTest(t testing.TB, s *Store, want int) (Page, int) {
	t.Helper()
	p, got, err := s.Alloc(want)
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Bytes(p, got)
	if err != nil {
		t.Fatal(err)
	}
	if got < 1 || got > want || !bytes.Equal(b, make([]byte, len(b))) {
		t.Fatalf("Alloc(%d) = %d, %d, or pages that are not zero", want, p, got)
	}
	return p, got
}

func fillForTest(t testing.TB, s *Store, p Page, n int, with byte) {
	t.Helper()
	b, err := s.Bytes(p, n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = with
	}
}

func TestAllocFillsAndReuses(t *testing.T) {
	s := storeForTest(t, 1, nil)
	p, n := allocForTest(t, s, 100)
	if p != 1 || n != 100 {
		t.Fatalf("first pages are %d, %d", p, n)
	}
	fillForTest(t, s, p, n, 1)
	if err := s.own.Sync(); err != nil {
		t.Fatal(err)
	}
	before := blocksOf(t, s.own)
	s.Free(p+10, 50, s.Epoch())
	if after := blocksOf(t, s.own); after > before-48*PageSize {
		t.Errorf("%d bytes on disk before a hole of 50 pages, %d after", before, after)
	}
	s.Free(p+80, 3, s.Epoch()) // too short for a hole
	if q, _ := allocForTest(t, s, 2); q != p+80 {
		t.Errorf("2 pages at %d", q)
	}
	if q, n := allocForTest(t, s, 50); q != p+10 || n != 50 {
		t.Errorf("50 pages at %d, %d", q, n)
	}
	if s.Used() != 99 {
		t.Errorf("%d pages used", s.Used())
	}
	checkFreeSpace(t, s)
}

func TestSinglePagesBecomeHoles(t *testing.T) {
	s := storeForTest(t, 1, nil)
	p, n := allocForTest(t, s, 4096)
	fillForTest(t, s, p, n, 1)
	if err := s.own.Sync(); err != nil {
		t.Fatal(err)
	}
	r := newRand(1)
	for _, i := range r.Perm(n) {
		s.Free(p+Page(i), 1, s.Epoch())
	}
	if got := blocksOf(t, s.own); got > 20*PageSize {
		t.Errorf("%d bytes on disk", got)
	}
	checkFreeSpace(t, s)
}

func TestBytesOfWhatIsNotThere(t *testing.T) {
	s := storeForTest(t, 1, nil)
	p, n := allocForTest(t, s, 10)
	for _, c := range []struct {
		p Page
		n int
	}{{0, 1}, {p, n + 1}, {p + Page(n), 1}, {1 << 63, 1}, {^Page(0), 2}, {p, -1}, {1 << 40, 1}} {
		if _, err := s.Bytes(c.p, c.n); !errors.Is(err, ErrCorrupt) {
			t.Errorf("Bytes(%d, %d): %v", c.p, c.n, err)
		}
	}
	if _, _, err := s.FileOf(0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("FileOf(0): %v", err)
	}
}

func TestSegmentsAreChecked(t *testing.T) {
	f := pageFileForTest(t)
	if err := f.Truncate(10 * PageSize); err != nil {
		t.Fatal(err)
	}
	for _, segs := range [][]Segment{
		{{0, 5, f}}, {{5, 5, f}}, {{1, 5, nil}}, {{1, 5, f}, {4, 6, f}}, {{5, 8, f}, {1, 4, f}}, {{1, 11, f}}, {{1, 25, f}}, {{1, 1 << 60, f}},
	} {
		if _, err := NewStore(pageFileForTest(t), 20, segs); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v: %v", segs, err)
		}
	}
	if _, err := NewStore(f, 9, nil); err == nil {
		t.Error("a file that is in use was taken")
	}
	s, err := NewStore(f, 20, []Segment{{1, 10, pageFileForTest10(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.Segments(); len(got) != 1 || s.End() != 20 {
		t.Errorf("segments %v, end %d", got, s.End())
	}
	p, _ := allocForTest(t, s, 3)
	file, i, err := s.FileOf(p)
	if err != nil || i != 1 || file != f || s.Segments()[i] != (Segment{20, 23, f}) {
		t.Errorf("page %d: file %v, %d, %v of %v", p, file, i, err, s.Segments())
	}
}

func pageFileForTest10(t *testing.T) *os.File {
	f := pageFileForTest(t)
	if err := f.Truncate(10 * PageSize); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPinsKeepPages(t *testing.T) {
	s := storeForTest(t, 1, nil)
	p, _ := allocForTest(t, s, 10)
	born := s.Epoch()
	if !s.Mutable(p, born) {
		t.Error("a new page is not mutable")
	}
	for _, id := range []string{"a", "b"} {
		if err := s.Pin(id); err != nil {
			t.Fatal(err)
		}
	}
	if s.Pin("a") == nil {
		t.Error("a pin was made twice")
	}
	if s.Mutable(p, born) || !s.Mutable(p, s.Epoch()) {
		t.Error("the wrong pages are mutable")
	}
	s.Free(p, 4, born)
	if err := s.Pin("c"); err != nil {
		t.Fatal(err)
	}
	s.Free(p+4, 6, born)
	if got := s.Pins(); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("pins %q", got)
	}
	s.Release("x")
	for _, c := range []struct {
		id   string
		used int64
	}{{"b", 10}, {"a", 6}, {"c", 0}} {
		if s.Release(c.id); s.Used() != c.used {
			t.Errorf("after the release of %s %d pages are used, want %d", c.id, s.Used(), c.used)
		}
		checkFreeSpace(t, s)
	}
	if !s.Mutable(p, born) {
		t.Error("a page is not mutable after all pins have gone")
	}
}

// TestNoMorePages fills a store: a Put that fails changes nothing, and deletions
// find nodes even where all are pinned.
func TestNoMorePages(t *testing.T) {
	s := storeForTest(t, 1, nil)
	s.most = 1000
	tree := OpenTree(s, 0)
	key, keys := make([]byte, 500), uint32(0)
	for ; ; keys++ {
		binary.BigEndian.PutUint32(key, keys)
		root, nodes := tree.Root(), tree.nodes
		err := tree.Put(key, key)
		if errors.Is(err, ErrNoSpace) {
			if tree.Root() != root || tree.nodes != nodes {
				t.Error("a Put that failed changed the tree")
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if s.free1 < putNodes || s.free1 > 2*putNodes {
		t.Errorf("%d nodes are left", s.free1)
	}
	for _, _, err := s.Alloc(64); !errors.Is(err, ErrNoSpace); _, _, err = s.Alloc(64) {
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
	checkFreeSpace(t, s)
	s.most = 10000
	allocForTest(t, s, 5000)
}

func TestSpaceGoesBack(t *testing.T) {
	s := storeForTest(t, 1, nil)
	tree := OpenTree(s, 0)
	r := newRand(2)
	type extent struct {
		p    Page
		n    int
		born uint32
	}
	var extents []extent
	for i := range 20000 {
		if err := tree.Put(fmt.Appendf(nil, "key %d", r.IntN(1e9)), make([]byte, 50)); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			p, n := allocForTest(t, s, 1+r.IntN(8))
			fillForTest(t, s, p, n, 7)
			extents = append(extents, extent{p, n, s.Epoch()})
		}
		if i%5000 == 0 {
			if err := s.Pin(fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.own.Sync(); err != nil {
		t.Fatal(err)
	}
	before := blocksOf(t, s.own)
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
	if after := blocksOf(t, s.own); after > 1<<20 || before < 10<<20 {
		t.Errorf("%d bytes on disk, before %d; %d pages dirty, %d clusters", after, before, s.free.dirtyPages, len(s.clusters))
	}
	checkFreeSpace(t, s) // reads holes, which gives them memory
}
