package launch

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

func TestSeal(t *testing.T) {
	f, err := NewFile("test")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("content"), 0); err != nil {
		t.Fatal(err)
	}
	kept, err := unix.Dup(int(f.Fd())) // as who wrote it may
	if err != nil {
		t.Fatal(err)
	}
	other := os.NewFile(uintptr(kept), "kept")
	defer other.Close()
	mapped, err := unix.Mmap(kept, 0, 7, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Seal(f); err == nil {
		t.Fatal("a file was sealed that can be changed through a mapping")
	}
	if err := unix.Munmap(mapped); err != nil {
		t.Fatal(err)
	}
	sealed, err := Seal(f)
	if err != nil {
		t.Fatal(err)
	}
	defer sealed.Close()
	for _, f := range []*os.File{sealed, other} {
		for _, size := range []int64{0, 100} {
			if err := f.Truncate(size); err == nil {
				t.Errorf("the file was truncated to %d bytes", size)
			}
		}
		if _, err := f.WriteAt([]byte("x"), 0); err == nil {
			t.Error("the file was written to")
		}
	}
	if data, err := unix.Mmap(int(sealed.Fd()), 0, 7, unix.PROT_READ, unix.MAP_SHARED); err != nil || string(data) != "content" {
		t.Errorf("it reads %q, %v", data, err)
	}
}

func TestReadEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if _, err := readEnd(path, 4); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
	for content, want := range map[string]string{"": "", "abc": "abc", "abcd": "abcd", "abcdefg": "defg"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readEnd(path, 4); err != nil || string(got) != want {
			t.Errorf("the end of %q is %q, %v, not %q", content, got, err, want)
		}
	}
}

func TestIDOf(t *testing.T) {
	var ids []FileID
	for range 2 {
		f, ro, err := memoryFile("test")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		defer ro.Close()
		a, err := IDOf(f)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := IDOf(ro); err != nil || a != b {
			t.Errorf("one file is %v and %v (%v)", a, b, err)
		}
		ids = append(ids, a)
	}
	if ids[0] == ids[1] {
		t.Errorf("two files are both %v", ids[0])
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	_, err = ReadOnly(r) // must not wait for a writer
	wantCode(t, err, api.CodeCorrupt)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	_, err = ReadOnly(dir)
	wantCode(t, err, api.CodeCorrupt)
}

func TestPageFile(t *testing.T) {
	for name, make := range map[string]func(string) (*os.File, error){"O_TMPFILE": NewPageFile, "unlinked": unlinkedFile} {
		dir := t.TempDir()
		f, err := make(dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer f.Close()
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
			t.Errorf("%s: the directory has %v (%v)", name, entries, err)
		}
		if _, err := f.WriteAt([]byte("x"), 1<<20); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ro, err := ReadOnly(f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if st, err := ro.Stat(); err != nil || st.Size() != 1<<20+1 {
			t.Errorf("%s: read-only it is %v (%v)", name, st, err)
		}
		ro.Close()
	}
	if _, err := NewPageFile("/nonexistent"); err == nil {
		t.Error("a file was made nowhere")
	}
}
