package pages_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"ramet.dev/ramet/internal/storage/pages"
	"ramet.dev/ramet/internal/storage/pages/pagestest"
)

func TestAllocFillsAndReuses(t *testing.T) {
	s := pagestest.Store(t, 1, nil)
	p, n := pagestest.Alloc(t, s, 100)
	if p != 1 || n != 100 {
		t.Fatalf("first pages are %d, %d", p, n)
	}
	pagestest.Fill(t, s, p, n, 1)
	if err := pagestest.OwnFile(s).Sync(); err != nil {
		t.Fatal(err)
	}
	before := pagestest.BlocksOf(t, pagestest.OwnFile(s))
	s.Free(p+10, 50, s.Epoch())
	if after := pagestest.BlocksOf(t, pagestest.OwnFile(s)); after > before-48*pages.PageSize {
		t.Errorf("%d bytes on disk before a hole of 50 pages, %d after", before, after)
	}
	s.Free(p+80, 3, s.Epoch()) // too short for a hole
	if q, _ := pagestest.Alloc(t, s, 2); q != p+80 {
		t.Errorf("2 pages at %d", q)
	}
	if q, n := pagestest.Alloc(t, s, 50); q != p+10 || n != 50 {
		t.Errorf("50 pages at %d, %d", q, n)
	}
	if s.Used() != 99 {
		t.Errorf("%d pages used", s.Used())
	}
	pagestest.Check(t, s)
}

func TestSinglePagesBecomeHoles(t *testing.T) {
	s := pagestest.Store(t, 1, nil)
	p, n := pagestest.Alloc(t, s, 4096)
	pagestest.Fill(t, s, p, n, 1)
	if err := pagestest.OwnFile(s).Sync(); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 0))
	for _, i := range r.Perm(n) {
		s.Free(p+pages.Page(i), 1, s.Epoch())
	}
	if got := pagestest.BlocksOf(t, pagestest.OwnFile(s)); got > 20*pages.PageSize {
		t.Errorf("%d bytes on disk", got)
	}
	pagestest.Check(t, s)
}

func TestBytesOfWhatIsNotThere(t *testing.T) {
	s := pagestest.Store(t, 1, nil)
	p, n := pagestest.Alloc(t, s, 10)
	for _, c := range []struct {
		p pages.Page
		n int
	}{{0, 1}, {p, n + 1}, {p + pages.Page(n), 1}, {1 << 63, 1}, {^pages.Page(0), 2}, {p, -1}, {1 << 40, 1}} {
		if _, err := s.Bytes(c.p, c.n); !errors.Is(err, pages.ErrCorrupt) {
			t.Errorf("Bytes(%d, %d): %v", c.p, c.n, err)
		}
	}
	if _, _, err := s.FileOf(0); !errors.Is(err, pages.ErrCorrupt) {
		t.Errorf("FileOf(0): %v", err)
	}
}

func TestSegmentsAreChecked(t *testing.T) {
	f := pagestest.File(t)
	if err := f.Truncate(10 * pages.PageSize); err != nil {
		t.Fatal(err)
	}
	for _, segs := range [][]pages.Segment{
		{{0, 5, f}}, {{5, 5, f}}, {{1, 5, nil}}, {{1, 5, f}, {4, 6, f}}, {{5, 8, f}, {1, 4, f}}, {{1, 11, f}}, {{1, 25, f}}, {{1, 1 << 60, f}},
	} {
		if _, err := pages.NewStore(pagestest.File(t), 20, segs); !errors.Is(err, pages.ErrCorrupt) {
			t.Errorf("%v: %v", segs, err)
		}
	}
	if _, err := pages.NewStore(f, 9, nil); err == nil {
		t.Error("a file that is in use was taken")
	}
	s, err := pages.NewStore(f, 20, []pages.Segment{{1, 10, pageFileForTest10(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got := s.Segments(); len(got) != 1 || s.End() != 20 {
		t.Errorf("segments %v, end %d", got, s.End())
	}
	p, _ := pagestest.Alloc(t, s, 3)
	file, i, err := s.FileOf(p)
	if err != nil || i != 1 || file != f || s.Segments()[i] != (pages.Segment{20, 23, f}) {
		t.Errorf("page %d: file %v, %d, %v of %v", p, file, i, err, s.Segments())
	}
}

func pageFileForTest10(t *testing.T) *os.File {
	f := pagestest.File(t)
	if err := f.Truncate(10 * pages.PageSize); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPinsKeepPages(t *testing.T) {
	s := pagestest.Store(t, 1, nil)
	p, _ := pagestest.Alloc(t, s, 10)
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
		pagestest.Check(t, s)
	}
	if !s.Mutable(p, born) {
		t.Error("a page is not mutable after all pins have gone")
	}
}
