package cowfs

import (
	"fmt"
	"maps"
	"testing"
)

// checkPin compares a pin with what it should be, read from what the store has on
// the host.
func (m *fsModel) checkPin(id string) (own map[Page]bool) {
	m.t.Helper()
	p := m.pins[id]
	pinned, err := Open(storeForTest(m.t, p.segs[len(p.segs)-1].End, p.segs), m.image, p.state)
	m.ok(err)
	defer pinned.store.Close()
	for ino, f := range p.files {
		m.checkFile(pinned, ino, f)
	}
	own = map[Page]bool{}
	use := func(p Page, n uint64) {
		for i := range Page(n) {
			if m.fs.store.Own(p + i) {
				own[p+i] = true
			}
		}
	}
	treePages(m.t, pinned.store, pinned.tree.Root(), func(p Page) { use(p, 1) })
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
		needed := map[Page]bool{}
		for id := range m.pins {
			maps.Copy(needed, m.checkPin(id))
		}
		if used := m.fs.store.Used(); used != int64(len(needed)) {
			t.Errorf("%d pages are needed, %d used", len(needed), used)
		}
		// Pages that were reserved and never written take nothing.
		if got := blocksOf(t, m.fs.store.own) / PageSize; got > int64(len(needed)) {
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
		n, err := fs.tree.load(fs.tree.Root(), -1)
		m.ok(err)
		return n.level() + 1
	}
	nodes := func(fs *FS) (n int) {
		treePages(t, fs.store, fs.tree.Root(), func(Page) { n++ })
		return n
	}
	depth, size, pages := visited(fs), nodes(fs), fs.Space().Used
	for generation := range generations {
		state, segs, err := fs.Pin("fork")
		m.ok(err)
		child, err := Open(storeForTest(t, fs.store.End(), segs), nil, state)
		m.ok(err)
		m.ok(fs.Trim()) // the parent is destroyed
		m.ok(fs.store.unmap())
		fs = child
		for range changed {
			i := m.r.IntN(files)
			want[i] = fmt.Sprintf("generation %d of %d", generation, i)
			write(fs, inos[i], want[i])
		}
		// A leaf for the attributes and extents of each, what is above them, and
		// the data; and pages that are kept for more.
		most := int64(changed*(depth+1)+4*nodeStep) * PageSize
		if got := blocksOf(t, fs.store.own); got > most {
			t.Fatalf("generation %d takes %d KiB, at most %d are needed", generation, got>>10, most>>10)
		}
	}
	if visited(fs) > depth || nodes(fs) > size+size/10 || fs.Space().Used > pages+pages/10 {
		t.Errorf("%d nodes are visited, %d were; there are %d, %d were; %d pages, %d were", visited(fs), depth, nodes(fs), size, fs.Space().Used, pages)
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
	view := OpenView(segs, state.Root)
	if _, ok, err := view.Get(entryKey(new([keyRoom]byte), root, name(1234))); err != nil || !ok || view.reads > depth {
		t.Errorf("%d pages are read for an entry: %v, %v", view.reads, ok, err)
	}
}
