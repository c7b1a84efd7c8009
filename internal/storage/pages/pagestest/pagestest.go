// Package pagestest makes stores for the tests of packages that keep files in them. It must
// never be linked into the product.
package pagestest

import (
	"bytes"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	"ramet.dev/ramet/internal/storage/pages"
)

// File returns an empty file. It is in memory: a test makes thousands
// of holes, and disks are slow at that.
func File(t testing.TB) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("pages", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "pages")
	t.Cleanup(func() { f.Close() })
	return f
}

// Store returns a store with an own file that is empty.
func Store(t testing.TB, base pages.Page, inherited []pages.Segment) *pages.Store {
	t.Helper()
	s, err := pages.NewStore(File(t), base, inherited)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// FileWith returns a file with contents.
func FileWith(t testing.TB, content []byte) *os.File {
	t.Helper()
	f := File(t)
	if _, err := f.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	return f
}

// Check fails if pages are lost or free twice.
func Check(t testing.TB, s *pages.Store) {
	t.Helper()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// BlocksOf returns how many bytes of the disk a file takes up.
func BlocksOf(t testing.TB, f *os.File) int64 {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// OwnFile returns the file that a store has its own pages in. It has some.
func OwnFile(s *pages.Store) *os.File {
	segs := s.Segments()
	return segs[len(segs)-1].File
}

// Alloc returns between 1 and want pages, which are zero.
func Alloc(t testing.TB, s *pages.Store, want int) (pages.Page, int) {
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

// Fill makes all bytes of pages one.
func Fill(t testing.TB, s *pages.Store, p pages.Page, n int, with byte) {
	t.Helper()
	b, err := s.Bytes(p, n)
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		b[i] = with
	}
}
