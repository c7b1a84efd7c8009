package cowfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"testing"

	"ramet.dev/ramet/internal/storage/btree"
	"ramet.dev/ramet/internal/storage/erofs"
	"ramet.dev/ramet/internal/storage/erofs/erofstest"
	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/pages/pagestest"
)

// hostileFiles is a tree with all kinds of files, as an ancestor's file has it.
type hostileFiles struct {
	content []byte
	end     pages.Page
	state   State
	nodes   []pages.Page
	inos    []Ino
	image   []byte
}

func newHostileFiles(t testing.TB, image []byte) *hostileFiles {
	t.Helper()
	m := newFSModel(t, newRand(11), image, 0)
	for range 500 {
		m.step()
	}
	state, _, err := m.fs.Pin("pin")
	m.ok(err)
	h := &hostileFiles{end: m.fs.store.End(), state: state, inos: m.inos, image: image}
	content, err := m.fs.store.Bytes(1, int(h.end-1))
	m.ok(err)
	h.content = slices.Concat(make([]byte, pages.PageSize), content)
	eachNode(t, m.fs.store, state.Root, func(p pages.Page) { h.nodes = append(h.nodes, p) })
	return h
}

// corrupt changes some bytes of a node: mostly in what its entries say, not in its
// shape, which other tests are about.
func (h *hostileFiles) corrupt(r *rand.Rand, content []byte) {
	n := content[h.nodes[r.IntN(len(h.nodes))]*pages.PageSize:][:pages.PageSize]
	if n[4] > 0 || r.IntN(8) == 0 { // an inner node
		n[r.IntN(pages.PageSize)] = byte(r.Uint32())
		return
	}
	u16 := func(at int) int { return int(binary.LittleEndian.Uint16(n[at:])) }
	cell := u16(26 + 2*r.IntN(u16(6)))
	if cell > pages.PageSize-4 || cell+4+u16(cell)+u16(cell+2) > pages.PageSize {
		return
	}
	key, val := n[cell+4:][:u16(cell)], n[cell+4+u16(cell):][:u16(cell+2)]
	switch b := [][]byte{key, val, val}[r.IntN(3)]; {
	case len(b) == 0:
	case r.IntN(2) == 0:
		b[r.IntN(len(b))] = byte(r.Uint32())
	default: // a large number
		i := r.IntN(len(b))
		for j := range min(8, len(b)-i) {
			b[i+j] = []byte{0xff, 0x7f, 0x80, 0}[r.IntN(4)]
		}
	}
}

// use does with such files all that a child may, and all that a reader does. It
// returns how often something was wrong.
func (h *hostileFiles) use(t testing.TB, content []byte) int {
	t.Helper()
	file := pagestest.FileWith(t, content)
	defer file.Close()
	segs := []pages.Segment{{Start: 1, End: h.end, File: file}}
	// Its own pages are far away: an extent that refers to them is not found out, and
	// harms nobody but the one who believes its ancestor.
	f, err := Open(pagestest.Store(t, 1<<40, segs), h.image, h.state)
	if err != nil {
		t.Fatal(err)
	}
	defer f.store.Close()
	// What is too much is refused, as it is in every sandbox: else one would wait
	// for a tebibyte to be copied.
	f.state.Limit = f.used() + 2000
	wrong := 0
	try := func(err error) {
		t.Helper()
		if err == nil || errors.Is(err, ErrNotExist) || errors.Is(err, pages.ErrNoSpace) {
			return
		}
		wrong++
		otherKind := errors.As(err, new(syscall.Errno)) // of file
		if !errors.Is(err, pages.ErrCorrupt) && !errors.Is(err, erofs.ErrCorrupt) && !errors.Is(err, ErrNotReady) && !otherKind {
			t.Fatalf("%v is neither a right answer nor says that pages are corrupt", err)
		}
	}
	for _, ino := range h.inos {
		h.useFile(f, ino, try)
	}
	for _, ino := range h.inos {
		try(f.Remove(ino))
	}
	reader, err := NewFiles(btree.OpenView(segs, h.state.Root), h.image)
	if err != nil {
		t.Fatal(err)
	}
	for _, ino := range h.inos {
		n, err := reader.Node(ino)
		try(err)
		if err != nil {
			continue
		}
		_, err = reader.Xattrs(ino)
		try(err)
		_, err = reader.Target(ino)
		try(err)
		try(reader.Entries(ino, func(string, Ino) error { return nil }))
		_, err = reader.Map(&n, 0, 1<<40)
		try(err)
	}
	return wrong
}

func (h *hostileFiles) useFile(f *FS, ino Ino, try func(error)) {
	a, _, err := f.Attr(ino)
	try(err)
	if err != nil {
		return
	}
	left := 1 << 20
	try(f.Read(ino, &a, 0, a.Size, func(mem []byte, size int) (int, error) {
		left -= size
		if left < 0 {
			return 0, nil
		}
		return size, nil
	}))
	_, err = f.Target(ino)
	try(err)
	names, err := f.Xattrs(ino)
	try(err)
	for _, name := range names[:min(len(names), 3)] {
		_, _, err := f.Xattr(ino, name)
		try(err)
		_, err = f.RemoveXattr(ino, name)
		try(err)
	}
	try(f.SetXattr(ino, "user.new", make([]byte, 3000)))
	var entries []Entry
	try(f.Entries(ino, "", func(e Entry) bool {
		entries = append(entries, e)
		return true
	}))
	for _, e := range entries[:min(len(entries), 5)] {
		_, _, err := f.Lookup(ino, e.Name)
		try(err)
		try(f.Delete(ino, e))
	}
	for _, data := range []bool{true, false} {
		_, err := f.Seek(ino, &a, 0, data)
		try(err)
	}
	for off := uint64(0); off < 20*pages.PageSize; off += 3 * pages.PageSize {
		p, err := f.Prepare(ino, &a, off, 2*pages.PageSize)
		try(err)
		if p.Ready > 0 {
			try(f.write(ino, &a, off, make([]byte, p.Ready)))
		}
	}
	try(f.Reserve(ino, &a, 0, 30*pages.PageSize))
	try(f.Punch(ino, &a, 100, 1<<50))
	try(f.Truncate(ino, &a, 12345))
	try(f.SetAttr(ino, &a))
}

// TestHostileFiles: whatever is in the pages of an ancestor, a child gets an answer
// or an error, soon.
func TestHostileFiles(t *testing.T) {
	for _, image := range [][]byte{nil, erofstest.Image(t)} {
		h := newHostileFiles(t, image)
		sound := h.use(t, h.content)
		r := newRand(12)
		wrong := 0
		for range 60 {
			bad := bytes.Clone(h.content)
			for range 1 + r.IntN(30) {
				h.corrupt(r, bad)
			}
			wrong += h.use(t, bad) - sound
		}
		if wrong < 60 {
			t.Errorf("%d errors were found", wrong)
		}
	}
}

func FuzzHostileFiles(f *testing.F) {
	h := newHostileFiles(f, erofstest.Image(f))
	f.Add([]byte{1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, edits []byte) {
		bad := bytes.Clone(h.content)
		for ; len(edits) >= 5; edits = edits[5:] {
			node := h.nodes[(int(edits[0])<<8|int(edits[1]))%len(h.nodes)]
			bad[int(node)*pages.PageSize+(int(edits[2])<<8|int(edits[3]))%pages.PageSize] = edits[4]
		}
		h.use(t, bad)
	})
}

// TestFSConcurrently has several files changed and read at the same time, while pins
// come and go.
func TestFSConcurrently(t *testing.T) {
	m := newFSModel(t, newRand(13), nil, 0)
	root := m.fs.Root()
	var wg sync.WaitGroup
	for worker := range uint64(4) {
		ino := m.fs.NewIno()
		a := Attr{Mode: TypeReg | 0o600, Nlink: 1}
		m.ok(m.fs.SetAttr(ino, &a))
		m.ok(m.fs.Insert(root, Entry{Name: string(rune('a' + worker)), Ino: ino}))
		wg.Go(func() { m.work(newRand(worker), ino, &a) })
	}
	wg.Go(func() {
		for n := range 100 {
			id := string(rune('A' + n%26))
			if _, _, err := m.fs.Pin(id); err != nil {
				m.t.Error(err)
				return
			}
			m.fs.Release(id)
		}
	})
	wg.Wait()
	pagestest.Check(t, m.fs.store)
}

// work changes a file of which it knows what is in it.
func (m *fsModel) work(r *rand.Rand, ino Ino, a *Attr) {
	const blocks = 40
	var want [blocks]byte
	for range 300 {
		b := r.Uint64N(blocks)
		switch r.IntN(4) {
		case 0, 1:
			want[b] = byte(1 + r.IntN(255))
			for ready := false; !ready; { // a pin may come in between
				_, err := m.fs.Prepare(ino, a, b*pages.PageSize, pages.PageSize)
				if err == nil {
					err = m.fs.Write(ino, a, b*pages.PageSize, pages.PageSize, func(p Place) (uint64, error) {
						n, err := p.WriteAt(bytes.Repeat(want[b:b+1], int(p.N)))
						return uint64(n), err
					})
				}
				if ready = err == nil; !ready && !errors.Is(err, ErrNotReady) {
					m.t.Error(err)
					return
				}
			}
			a.Size = max(a.Size, (b+1)*pages.PageSize)
		case 2:
			if b*pages.PageSize < a.Size {
				want[b] = 0
				if err := m.fs.Punch(ino, a, b*pages.PageSize, pages.PageSize); err != nil {
					m.t.Error(err)
				}
			}
		}
		if _, _, err := m.fs.Lookup(m.fs.Root(), "a"); err != nil {
			m.t.Error(err)
		}
		at := uint64(0)
		err := m.fs.Read(ino, a, 0, a.Size, func(mem []byte, size int) (int, error) {
			for i := range size {
				got := byte(0)
				if mem != nil {
					got = mem[i]
				}
				if w := want[(at+uint64(i))/pages.PageSize]; got != w {
					m.t.Errorf("byte %d is %d, not %d", at+uint64(i), got, w)
					return 0, nil
				}
			}
			at += uint64(size)
			return size, nil
		})
		if err != nil {
			m.t.Error(err)
		}
	}
}
