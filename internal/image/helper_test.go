package image

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	gverofs "gvisor.dev/gvisor/pkg/erofs"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/erofs"
)

func openStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantCode fails the test unless err has the code. Only typed errors do: a
// defect would have CodeInternal.
func wantCode(t *testing.T, err error, code api.Code) {
	t.Helper()
	if got := api.CodeOf(err); got != code {
		t.Fatalf("got %q (%v), want %q", got, err, code)
	}
}

// wantNothingLeft fails the test unless the store is as it was made.
// pathIn returns the path of a file of the store.
func pathIn(s *Store, elem ...string) string {
	return filepath.Join(append([]string{s.files.Dir()}, elem...)...)
}

func wantNothingLeft(t *testing.T, s *Store) {
	t.Helper()
	for _, dir := range []string{"blobs", "records"} {
		entries, err := os.ReadDir(pathIn(s, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			t.Errorf("%s/%s was left behind", dir, e.Name())
		}
	}
	if n, err := s.files.Names(); err != nil || len(n.Names) > 0 {
		t.Errorf("names were left behind: %v, %v", n.Names, err)
	}
}

var epoch = time.Unix(1700000000, 0)

// entry is a tar entry; the zero type is a regular file.
type entry struct {
	name    string
	content string
	tar.Header
}

func dirEntry(name string) entry { return entry{name: name, Header: tar.Header{Typeflag: tar.TypeDir}} }

func linkEntry(kind byte, name, target string) entry {
	return entry{name: name, Header: tar.Header{Typeflag: kind, Linkname: target}}
}

func makeTar(tb testing.TB, entries ...entry) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		h := e.Header
		h.Name, h.Size = e.name, int64(len(e.content))
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if h.ModTime.IsZero() {
			h.ModTime = epoch
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			h = tar.Header{Typeflag: h.Typeflag, PAXRecords: h.PAXRecords} // it takes nothing else
		}
		if err := w.WriteHeader(&h); err != nil {
			tb.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func compress(tb testing.TB, how string, data []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	var w io.WriteCloser
	var err error
	switch how {
	case "plain":
		return data
	case "gzip":
		w = gzip.NewWriter(&buf)
	case "zstd":
		w, err = zstd.NewWriter(&buf)
	case "xz":
		w, err = xz.NewWriter(&buf)
	}
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func importTar(t *testing.T, s *Store, data []byte, opt Options) (api.Image, error) {
	t.Helper()
	return s.ImportTar(context.Background(), bytes.NewReader(data), opt)
}

// seen is what is found under one path.
type seen struct {
	mode     uint16
	uid, gid uint32
	nid      uint64
	content  string // target of a symbolic link
	xattrs   string // as a list of name=value, in order
}

// readStored verifies an image and reads it as a sandbox does.
func readStored(tb testing.TB, s *Store, id string) map[string]seen {
	tb.Helper()
	if err := s.Verify(context.Background(), id); err != nil {
		tb.Fatal(err)
	}
	path, err := s.Path(id)
	if err != nil {
		tb.Fatal(err)
	}
	return readErofs(tb, path)
}

// readErofs reads an image with our reader, as a sandbox does. gVisor's has to take
// it too, but for inodes with extended attributes, which it does not know.
func readErofs(tb testing.TB, path string) map[string]seen {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := erofs.NewReader(data)
	if err != nil {
		tb.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	img, err := gverofs.OpenImage(f)
	if err != nil {
		f.Close()
		tb.Fatal(err)
	}
	defer img.Close()
	out := map[string]seen{}
	var walk func(path string, nid uint64)
	walk = func(path string, nid uint64) {
		ino, err := r.Inode(nid)
		if err != nil {
			tb.Fatalf("%q: %v", path, err)
		}
		if !ino.HasXattrs() {
			if _, err := img.Inode(nid); err != nil {
				tb.Fatalf("%q by gVisor: %v", path, err)
			}
		}
		got := seen{mode: uint16(ino.Mode), uid: ino.UID, gid: ino.GID, nid: nid}
		if err := r.Xattrs(&ino, func(name string, value []byte) bool {
			got.xattrs += fmt.Sprintf("%s=%q ", name, value)
			return true
		}); err != nil {
			tb.Fatalf("%q: %v", path, err)
		}
		switch ino.Mode & syscall.S_IFMT {
		case syscall.S_IFLNK:
			got.content, err = r.Readlink(&ino)
		case syscall.S_IFREG:
			var off uint64
			if off, err = r.DataOffset(&ino); err == nil { // else it cannot be mapped
				got.content = string(data[off : off+ino.Size])
			}
		case syscall.S_IFDIR:
			err = r.Entries(&ino, "", func(name string, _ uint8, child uint64) bool {
				walk(strings.TrimPrefix(path+"/"+name, "/"), child)
				return true
			})
		}
		if err != nil {
			tb.Fatalf("%q: %v", path, err)
		}
		out[path] = got
	}
	walk("", r.Root())
	return out
}

// wantFiles compares the regular files and symbolic links of an image.
func wantFiles(t *testing.T, got map[string]seen, want map[string]string) {
	t.Helper()
	for path, content := range want {
		if f, ok := got[path]; !ok || f.content != content {
			t.Errorf("%q: got %q (there: %v), want %q", path, f.content, ok, content)
		}
	}
	for path, f := range got {
		const typeDir = 0o040000
		if _, ok := want[path]; !ok && f.mode&0o170000 != typeDir {
			t.Errorf("%q should not be there", path)
		}
	}
}
