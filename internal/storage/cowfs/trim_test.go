package cowfs

import (
	"fmt"
	"maps"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/pages/pagestest"
)

// eachNode calls fn for every node of a tree in a store.
func eachNode(t testing.TB, s *pages.Store, root pages.Page, fn func(pages.Page)) {
	t.Helper()
	if err := btree.OpenTree(s, root).Check(fn); err != nil {
		t.Fatal(err)
	}
}

// dup returns another descriptor of a file.
func dup(t testing.TB, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	d := os.NewFile(uintptr(fd), f.Name())
	t.Cleanup(func() { d.Close() })
	return d
}

// checkPin compares a pin with what it should be, read from what the store has on
// the host.
func (m *fsModel) checkPin(id string) (own map[pages.Page]bool) {
	m.t.Helper()
	p := m.pins[id]
	pinned, err := Open(pagestest.Store(m.t, p.segs[len(p.segs)-1].End, p.segs), m.image, p.state)
	m.ok(err)
	defer pinned.store.Close()
	for ino, f := range p.files {
		m.checkFile(pinned, ino, f)
	}
	own = map[pages.Page]bool{}
	use := func(p pages.Page, n uint64) {
		for i := range pages.Page(n) {
			if m.fs.store.Own(p + i) {
				own[p+i] = true
			}
		}
	}
	eachNode(m.t, pinned.store, pinned.tree.Root(), func(p pages.Page) { use(p, 1) })
	m.ok(pinned.tree.Scan(nil, func(k, val []byte) bool {
		if _, kind, _ := keyOf(k); kind == keyExtent {
			e, err := extentOf(k, val)
			m.ok(err)
			if e.page != 0 {
				use(e.page, e.n)
			}
		}
		return true
	}))
	return own
}

// TestTrim: what a sandbox that ended leaves behind is what its relatives need.
func TestTrim(t *testing.T) {
	for seed := range uint64(4) {
		m := newFSModel(t, newRand(seed), nil, 0)
		for range 5 {
			for range 150 {
				m.step()
			}
			if seed > 0 {
				m.pin()
			}
		}
		for range 150 {
			m.step()
		}
		m.ok(m.fs.Trim())
		needed := map[pages.Page]bool{}
		for id := range m.pins {
			maps.Copy(needed, m.checkPin(id))
		}
		if used := m.fs.store.Used(); used != int64(len(needed)) {
			t.Errorf("%d pages are needed, %d used", len(needed), used)
		}
		// Pages that were reserved and never written take nothing.
		if got := pagestest.BlocksOf(t, pagestest.OwnFile(m.fs.store)) / pages.PageSize; got > int64(len(needed)) {
			t.Errorf("%d pages are needed, %d are there", len(needed), got)
		}
	}
}

// TestDeepChain goes on for 100 generations, each of which changes some files of
// many. A lookup visits as many nodes in the last as in the first, the tree does not
// grow, and a generation adds to the host's disk what it changed.
func TestDeepChain(t *testing.T) {
	const files, generations, changed = 4000, 100, 10
	m := newFSModel(t, newRand(5), nil, 0)
	fs, root := m.fs, m.fs.Root()
	name := func(i int) string { return fmt.Sprintf("file-%05d", i) }
	write := func(fs *FS, ino Ino, text string) {
		a, _, err := fs.Attr(ino)
		m.ok(err)
		if _, err := fs.Prepare(ino, &a, 0, uint64(len(text))); err != nil {
			t.Fatal(err)
		}
		m.ok(fs.write(ino, &a, 0, []byte(text)))
		a.Size = uint64(len(text))
		m.ok(fs.SetAttr(ino, &a))
	}
	inos, want := make([]Ino, files), make([]string, files)
	for i := range inos {
		inos[i], want[i] = fs.NewIno(), fmt.Sprint("first ", i)
		m.ok(fs.SetAttr(inos[i], &Attr{Mode: TypeReg | 0o600, Nlink: 1}))
		m.ok(fs.Insert(root, Entry{Name: name(i), Ino: inos[i]}))
		write(fs, inos[i], want[i])
	}
	// visited is how many nodes a lookup visits.
	visited := func(fs *FS) int {
		n, err := fs.tree.Depth()
		m.ok(err)
		return n
	}
	nodes := func(fs *FS) (n int) {
		eachNode(t, fs.store, fs.tree.Root(), func(pages.Page) { n++ })
		return n
	}
	depth, size, before := visited(fs), nodes(fs), fs.Space().Used
	for generation := range generations {
		state, segs, err := fs.Pin("fork")
		m.ok(err)
		segs[len(segs)-1].File = dup(t, segs[len(segs)-1].File)
		child, err := Open(pagestest.Store(t, fs.store.End(), segs), nil, state)
		m.ok(err)
		m.ok(fs.Trim()) // the parent is destroyed
		m.ok(fs.store.Close())
		fs = child
		for range changed {
			i := m.r.IntN(files)
			want[i] = fmt.Sprintf("generation %d of %d", generation, i)
			write(fs, inos[i], want[i])
		}
		// A leaf for the attributes and extents of each, what is above them, and
		// the data; and pages that are kept for more.
		most := int64(changed*(depth+1)+4*pages.NodeStep) * pages.PageSize
		if got := pagestest.BlocksOf(t, pagestest.OwnFile(fs.store)); got > most {
			t.Fatalf("generation %d takes %d KiB, at most %d are needed", generation, got>>10, most>>10)
		}
	}
	if visited(fs) > depth || nodes(fs) > size+size/10 || fs.Space().Used > before+before/10 {
		t.Errorf("%d nodes are visited, %d were; there are %d, %d were; %d pages, %d were", visited(fs), depth, nodes(fs), size, fs.Space().Used, before)
	}
	if n := len(fs.store.Segments()); n != generations+1 {
		t.Errorf("the pages are in %d files", n)
	}
	for i, ino := range inos {
		e, ok, err := fs.Lookup(root, name(i))
		if err != nil || !ok || e.Ino != ino {
			t.Fatalf("%s is %+v, %v, %v", name(i), e, ok, err)
		}
		a, _, err := fs.Attr(ino)
		m.ok(err)
		if got := string(m.read(fs, ino, &a, 0, a.Size)); got != want[i] {
			t.Fatalf("%s has %q, not %q", name(i), got, want[i])
		}
	}
	// A reader finds an entry with as few pages.
	state, segs, err := fs.Pin("view")
	m.ok(err)
	view := btree.OpenView(segs, state.Root)
	if _, ok, err := view.Get(entryKey(new([keyRoom]byte), root, name(1234))); err != nil || !ok || view.Reads() > depth {
		t.Errorf("%d pages are read for an entry: %v, %v", view.Reads(), ok, err)
	}
}
