package cow

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"pgregory.net/rapid"
)

// fill returns pages that each begin with their number and a tag.
func fill(n uint64, tag uint64) []byte {
	b := make([]byte, n*page)
	for p := range n {
		binary.LittleEndian.PutUint64(b[p*page:], p)
		binary.LittleEndian.PutUint64(b[p*page+8:], tag)
	}
	return b
}

// completed takes the one completion that an operation must have left.
func completed(t rapid.TB, wait func([]stateio.Completion, int) ([]stateio.Completion, error), id int, n uint64) {
	t.Helper()
	cs, err := wait(nil, 1)
	if err != nil || len(cs) != 1 || cs[0].ID != id || cs[0].N != n || cs[0].Err != nil {
		t.Fatalf("completions are %+v (%v), not one of %d with %d bytes", cs, err, id, n)
	}
}

// TestPagesComeBack saves pages, some of which are frozen, and reads them in a
// child: the frozen ones from their generations, the others from the snapshot.
func TestPagesComeBack(t *testing.T) {
	gens := []Generation{}
	for tag := range uint64(3) {
		gens = append(gens, Generation{Name: "gen", File: newFile(t, fill(modelPages, 100+tag))})
	}
	present := fill(modelPages, 1)
	rapid.Check(t, func(t *rapid.T) {
		table, in := drawTable(t)
		var frozen []memmap.FileRange
		for _, e := range table {
			frozen = append(frozen, memmap.FileRange(e.Range))
		}
		dead := drawRange(t) // frozen, but no longer in the table
		saved := normalize(drawRanges(t))

		const skipped = 3 * page
		file := tempFile(t)
		defer file.Close()
		w := NewWriter(&Pinned{drop: normalize(append(frozen, dead))}, file, skipped, nil, func() {})
		for i, r := range saved {
			w.AddWrite(i, nil, r, present[r.Start:r.End])
			completed(t, w.Wait, i, r.Length())
		}
		length := uint64(0)
		for _, r := range w.Copies() {
			length += r.Length()
		}
		if w.End() != int64(skipped+length) {
			t.Fatalf("pages end at %d after %d bytes", w.End(), length)
		}
		pages := make([]byte, length)
		if _, err := file.ReadAt(pages, skipped); err != nil && length > 0 {
			t.Fatal(err)
		}

		mem := &Memory{}
		mem.Inherit(table, gens)
		r := NewReader(mem, w.Copies(), pages)
		dst := anonymous(t, modelPages*page)
		defer unix.Munmap(dst)
		for i, fr := range saved {
			r.AddRead(i, 0, nil, fr, dst[fr.Start:fr.End])
			completed(t, r.Wait, i, fr.Length())
		}
		isSaved, isDead := modelOf(saved), modelOf([]memmap.FileRange{dead})
		for p := range uint64(modelPages) {
			want := make([]byte, page)
			switch {
			case isSaved[p] == 0: // nobody asked for it
			case in[p] >= 0:
				want = fill(modelPages, 100+uint64(in[p]))[p*page : (p+1)*page]
			case isDead[p] == 0:
				want = present[p*page : (p+1)*page]
			}
			if !bytes.Equal(dst[p*page:(p+1)*page], want) {
				t.Fatalf("page %d (generation %d, saved %d, dead %d) has %x", p, in[p], isSaved[p], isDead[p], dst[p*page:p*page+16])
			}
		}
	})
}

func tempFile(t *rapid.T) *os.File {
	fd, err := unix.MemfdCreate("pages", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), "pages")
}

func anonymous(t *rapid.T, size int) []byte {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGenerationsCannotBeWritten checks that what a child maps of its ancestors
// is read-only, whatever it does to it.
func TestGenerationsCannotBeWritten(t *testing.T) {
	rw := newFile(t, fill(4, 7))
	mem := &Memory{}
	mem.Inherit(Table{{Range: rangeOf(pages(0, 4))}}, []Generation{{Name: "gen", File: rw}})
	dst, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(dst)
	r := NewReader(mem, nil, nil)
	r.AddRead(0, 0, nil, pages(0, 4), dst)
	completed(t, r.Wait, 0, 4*page)
	// read(2) into a page that cannot be written fails, where a store would
	// end the test.
	if _, err := unix.Pread(int(rw.Fd()), dst[:8], 0); err != unix.EFAULT {
		t.Errorf("writing to a generation's page: %v", err)
	}
}

// TestVectoredIOFails checks that gVisor would notice if it used what was not
// announced.
func TestVectoredIOFails(t *testing.T) {
	w := NewWriter(&Pinned{}, newFile(t, nil), 0, nil, func() {})
	w.AddWritev(3, 0, nil, nil, nil)
	r := NewReader(&Memory{}, nil, nil)
	r.AddReadv(4, 0, 0, nil, nil, nil)
	for id, wait := range map[int]func([]stateio.Completion, int) ([]stateio.Completion, error){3: w.Wait, 4: r.Wait} {
		cs, err := wait(nil, 1)
		if err != nil || len(cs) != 1 || cs[0].ID != id || cs[0].Err == nil {
			t.Errorf("completions are %+v (%v)", cs, err)
		}
	}
	if w.MaxRanges() != 1 || r.MaxRanges() != 1 {
		t.Error("vectors are announced")
	}
}

// TestWriteErrorIsReported saves to a file that takes nothing.
func TestWriteErrorIsReported(t *testing.T) {
	closed := newFile(t, nil)
	closed.Close()
	w := NewWriter(&Pinned{}, closed, 0, nil, func() {})
	w.AddWrite(5, nil, pages(0, 1), make([]byte, page))
	cs, err := w.Wait(nil, 1)
	if err != nil || len(cs) != 1 || cs[0].ID != 5 || cs[0].Err == nil || cs[0].N != 0 {
		t.Errorf("completions are %+v (%v)", cs, err)
	}
}

// TestToCopy looks at which pages a save will copy, before and after it is known that they are in use, and
// has the first of them copied ahead.
func TestToCopy(t *testing.T) {
	mem := newMemory(t)
	frozen, used := allocate(t, mem, 8, "frozen"), allocate(t, mem, 8, "used")
	p := &Pinned{mem: mem, drop: normalize([]memmap.FileRange{frozen})}
	want := memmap.FileRange{Start: used.Start, End: used.Start + 4*page} // see allocate
	ahead, rest, err := p.ToCopy()
	if err != nil || len(ahead) != 0 || len(rest) != 1 || rest[0] != want {
		t.Errorf("of %v it copies %v ahead and then %v (%v) before it is known what is in use", want, ahead, rest, err)
	}
	if err := mem.FindCommitted(); err != nil {
		t.Fatal(err)
	}
	ahead, rest, err = p.ToCopy()
	if err != nil || len(ahead) != 1 || !slices.Equal(normalize(slices.Concat(ahead, rest)), Ranges{want}) {
		t.Fatalf("of %v it copies %v ahead and then %v (%v)", want, ahead, rest, err)
	}
	file := newFile(t, nil)
	const off = 3 * page
	if err := p.CopyAhead(file, off, ahead); err != nil {
		t.Fatal(err)
	}
	text := make([]byte, ahead.Bytes())
	if _, err := file.ReadAt(text, off); err != nil || string(text[:4]) != "used" {
		t.Errorf("it copied %q, %v", text[:4], err)
	}
	w := NewWriter(p, file, off, ahead, func() {})
	meta := save(t, mem, w)
	child := newMemory(t)
	content := make([]byte, w.End())
	if _, err := file.ReadAt(content, 0); err != nil {
		t.Fatal(err)
	}
	load(t, child, meta, NewReader(child, w.Copies(), content[off:]))
	for at := want.Start; at < want.End; at += page {
		if got := textAt(t, child, at, 4); got != "used" {
			t.Errorf("page %d of the child has %q", at/page, got)
		}
	}
}

// TestSecede has a process that is said to be a copy keep some pages.
func TestSecede(t *testing.T) {
	mem := newMemory(t)
	kept, lost := allocate(t, mem, 2, "kept"), allocate(t, mem, 2, "lost")
	if err := mem.Secede(Ranges{{Start: kept.Start, End: kept.Start + page}}); err != nil {
		t.Fatal(err)
	}
	if got := textAt(t, mem, kept.Start, 4) + textAt(t, mem, lost.Start, 4); got != "kept\x00\x00\x00\x00" {
		t.Errorf("it has %q", got)
	}
	blocks, err := mem.mf.MapInternal(memmap.FileRange{Start: kept.Start, End: kept.Start + page}, hostarch.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	copy(blocks.Head().ToSlice(), "mine")
	text := make([]byte, 4)
	if _, err := mem.file.ReadAt(text, int64(kept.Start)); err != nil || string(text) != "kept" {
		t.Errorf("the original has %q, %v", text, err)
	}
}
