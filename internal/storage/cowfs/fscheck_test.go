package cowfs

import (
	"bytes"
	"maps"
	"slices"

	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/pages/pagestest"
)

// checkFile compares a file with what fs has.
func (m *fsModel) checkFile(fs *FS, ino Ino, f *modelFile) {
	m.t.Helper()
	a, _, err := fs.Attr(ino)
	if err != nil || a != f.attr {
		m.t.Fatalf("inode %d has %+v, not %+v: %v", ino, a, f.attr, err)
	}
	for b, want := range f.blocks {
		n := min(pages.PageSize, a.Size-min(a.Size, b*pages.PageSize))
		if got := m.read(fs, ino, &a, b*pages.PageSize, n); !bytes.Equal(got, want[:n]) {
			m.t.Fatalf("inode %d: block %d is something else", ino, b)
		}
	}
	for off, from := uint64(0), 0; off < a.Size && from < 100; from++ { // what is no data is zero
		data, err := fs.Seek(ino, &a, off, true)
		m.ok(err)
		if got := f.load(off, min(data-off, 4*pages.PageSize)); len(bytes.Trim(got, "\x00")) > 0 {
			m.t.Fatalf("inode %d: there should be data at %d", ino, off)
		}
		hole, err := fs.Seek(ino, &a, data, false)
		m.ok(err)
		n := min(hole, a.Size) - min(data, a.Size)
		if n = min(n, 16*pages.PageSize); !bytes.Equal(m.read(fs, ino, &a, data, n), f.load(data, n)) {
			m.t.Fatalf("inode %d: %d bytes at %d are something else", ino, n, data)
		}
		if hole <= off {
			m.t.Fatalf("inode %d: data at %d, hole at %d after %d", ino, data, hole, off)
		}
		off = hole
	}
	names, err := fs.Xattrs(ino)
	if want := slices.Sorted(maps.Keys(f.xattrs)); err != nil || !slices.Equal(slices.Sorted(slices.Values(names)), want) {
		m.t.Fatalf("inode %d has attributes %q, not %q: %v", ino, names, want, err)
	}
	for name, want := range f.xattrs {
		if val, ok, err := fs.Xattr(ino, name); err != nil || !ok || string(val) != want {
			m.t.Fatalf("inode %d: attribute %s has %d bytes, not %d: %v, %v", ino, name, len(val), len(want), ok, err)
		}
	}
	if f.attr.Mode&TypeMask == TypeLink {
		if got, err := fs.Target(ino); err != nil || got != f.target {
			m.t.Fatalf("inode %d leads to %d bytes, not %d: %v", ino, len(got), len(f.target), err)
		}
	}
	if f.attr.IsDir() {
		m.checkDir(fs, ino, f)
	}
}

func (m *fsModel) checkDir(fs *FS, ino Ino, f *modelFile) {
	m.t.Helper()
	want := slices.Sorted(maps.Keys(f.entries))
	from := ""
	if len(want) > 0 && m.r.IntN(2) == 0 {
		i := m.r.IntN(len(want))
		want, from = want[i:], want[i]
	}
	i := 0
	m.ok(fs.Entries(ino, from, func(e Entry) bool {
		if i >= len(want) || e.Name != want[i] || e.Ino != f.entries[e.Name] {
			m.t.Fatalf("directory %d: entry %d is %+v, not of %q", ino, i, e, want)
		}
		i++
		return true
	}))
	if i != len(want) {
		m.t.Fatalf("directory %d: %d entries, not %q", ino, i, want)
	}
	for _, name := range append(want, "nothing") {
		e, ok, err := fs.Lookup(ino, name)
		if _, has := f.entries[name]; err != nil || ok != has || ok && e.Ino != f.entries[name] {
			m.t.Fatalf("directory %d: %q is %+v, %v, %v", ino, name, e, ok, err)
		}
	}
}

// check looks at everything, and counts the pages.
func (m *fsModel) check() {
	m.t.Helper()
	for ino, f := range m.files {
		m.checkFile(m.fs, ino, f)
	}
	m.checkPages()
	for id, p := range m.pins {
		pinned, err := Open(pagestest.Store(m.t, p.segs[len(p.segs)-1].End, p.segs), m.image, p.state)
		m.ok(err)
		for ino, f := range p.files {
			m.checkFile(pinned, ino, f)
		}
		if used := pinned.Space().Used; used != p.state.Blocks {
			m.t.Fatalf("%s has %d pages, not %d", id, used, p.state.Blocks)
		}
		m.ok(pinned.store.Close())
	}
}

// checkPages counts the pages of the present tree.
func (m *fsModel) checkPages() {
	m.t.Helper()
	pagestest.Check(m.t, m.fs.store)
	count, blocks := int64(0), map[Ino]uint64{}
	eachNode(m.t, m.fs.store, m.fs.tree.Root(), func(pages.Page) { count++ })
	at, owner := uint64(0), Ino(0)
	m.ok(m.fs.tree.Scan(nil, func(k, val []byte) bool {
		ino, kind, _ := keyOf(k)
		if m.files[ino] == nil && !ino.OfImage() {
			m.t.Fatalf("inode %d is gone and has a key %q", ino, kind)
		}
		if kind != keyExtent {
			return true
		}
		e, err := extentOf(k, val)
		m.ok(err)
		if owner != ino {
			owner, at = ino, 0
		}
		if e.block < at {
			m.t.Fatalf("inode %d: two extents have block %d", ino, e.block)
		}
		at = e.block + e.n
		if e.page != 0 {
			count += int64(e.n)
			blocks[ino] += e.n
		}
		return true
	}))
	for ino, f := range m.files {
		if f.attr.Blocks != blocks[ino] {
			m.t.Fatalf("inode %d has %d pages, counted %d", ino, blocks[ino], f.attr.Blocks)
		}
	}
	if s := m.fs.Space(); s.Used != count || m.fs.State().Blocks != count {
		m.t.Fatalf("the tree has %d pages, counted %d", count, s.Used)
	}
}
