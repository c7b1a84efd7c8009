package erofs_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	gverofs "gvisor.dev/gvisor/pkg/erofs"

	"ramet.dev/ramet/internal/storage/erofs"
)

// file is what the reader sees of one path.
type file struct {
	Kind     erofs.Kind
	Mode     uint16
	UID, GID uint32
	Mtime    uint64
	Nsec     uint32
	Nlink    uint32
	Nid      uint64
	Major    uint32
	Minor    uint32
	Content  string // of a regular file; target of a symbolic link
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// writeImage finishes w's tree and returns the path of the image.
func writeImage(tb fataler, path string, fill func(w *erofs.Writer, tree *erofs.Tree)) erofs.Summary {
	tb.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		tb.Fatalf("create image: %v", err)
	}
	defer f.Close()
	w, tree := erofs.NewWriter(f), erofs.NewTree()
	fill(w, tree)
	sum, err := w.Finish(tree, erofs.Options{})
	if err != nil {
		tb.Fatalf("Finish: %v", err)
	}
	if st, err := f.Stat(); err != nil || st.Size() != sum.Size {
		tb.Fatalf("image has %v bytes (%v), Summary says %d", st.Size(), err, sum.Size)
	}
	return sum
}

// readImage walks the image with Reader, and beside it with gVisor's reader. It
// fails the test unless both see the same, every name can be looked up and every
// regular file can be mapped.
func readImage(tb fataler, path string) map[string]file {
	tb.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		tb.Fatalf("read image: %v", err)
	}
	r, err := erofs.NewReader(data)
	if err != nil {
		tb.Fatalf("NewReader: %v", err)
	}
	f, err := os.Open(path)
	if err != nil {
		tb.Fatalf("open image: %v", err)
	}
	img, err := gverofs.OpenImage(f)
	if err != nil {
		f.Close()
		tb.Fatalf("OpenImage: %v", err)
	}
	defer img.Close()
	w := walk{tb, r, data, img, map[string]file{}}
	w.visit("", r.Root(), img.RootNid())
	return w.seen
}

type walk struct {
	fataler
	r    *erofs.Reader
	data []byte
	img  *gverofs.Image
	seen map[string]file
}

func (w *walk) visit(path string, nid, parent uint64) {
	w.Helper()
	ino, err := w.r.Inode(nid)
	if err != nil {
		w.Fatalf("%q: inode %d: %v", path, nid, err)
	}
	other, err := w.img.Inode(nid)
	if err != nil {
		w.Fatalf("%q: inode %d by gVisor: %v", path, nid, err)
	}
	if ino.Mode != uint32(other.Mode()) || ino.UID != other.UID() || ino.GID != other.GID() || ino.Nlink != other.Nlink() ||
		ino.Size != other.Size() || uint64(ino.MtimeSec) != other.Mtime() || ino.MtimeNsec != other.MtimeNsec() || ino.Nid != nid {
		w.Fatalf("%q: %+v, gVisor sees %+v", path, ino, other)
	}
	got := file{
		Kind: kindOf(ino.Mode), Mode: uint16(ino.Mode & 0o7777), UID: ino.UID, GID: ino.GID,
		Mtime: uint64(ino.MtimeSec), Nsec: ino.MtimeNsec, Nlink: ino.Nlink, Nid: nid, Major: ino.Major, Minor: ino.Minor,
	}
	switch got.Kind {
	case erofs.Regular:
		got.Content = w.content(path, &ino, &other)
	case erofs.Symlink:
		if got.Content, err = w.r.Readlink(&ino); err != nil {
			w.Fatalf("%q: Readlink: %v", path, err)
		}
		if target, err := other.Readlink(); err != nil || target != got.Content {
			w.Fatalf("%q: Readlink by gVisor: %q, %v", path, target, err)
		}
	}
	w.seen[path] = got
	if got.Kind == erofs.Directory {
		w.list(path, &ino, &other, parent)
	}
}

type entry struct {
	name string
	nid  uint64
}

func (w *walk) list(path string, dir *erofs.Inode, other *gverofs.Inode, parent uint64) {
	w.Helper()
	entries := []entry{}
	err := w.r.Entries(dir, "", func(name string, typ uint8, nid uint64) bool {
		sub := filepath.Join(path, name)
		w.visit(sub, nid, dir.Nid)
		if typ != direntType[w.seen[sub].Kind] {
			w.Fatalf("%q: entry has type %d, inode %d", sub, typ, w.seen[sub].Kind)
		}
		w.find(dir, name, nid, typ)
		entries = append(entries, entry{name, nid})
		return true
	})
	if err != nil {
		w.Fatalf("list %q: %v", path, err)
	}
	expected := []entry{}
	err = other.IterDirents(func(name string, _ uint8, nid uint64) error {
		if name != "." && name != ".." {
			expected = append(expected, entry{name, nid})
		}
		return nil
	})
	if err != nil || !slices.Equal(entries, expected) {
		w.Fatalf("list %q: %v, by gVisor %v (%v)", path, entries, expected, err)
	}
	w.find(dir, ".", dir.Nid, direntType[erofs.Directory])
	w.find(dir, "..", parent, direntType[erofs.Directory])
	for _, name := range []string{"", "\x01", "no such\x01file", strings.Repeat("\xff", 300)} {
		if _, _, ok, err := w.r.Lookup(dir, name); ok || err != nil {
			w.Fatalf("%q: lookup of %q, which is not there: %v, %v", path, name, ok, err)
		}
	}
	w.resume(dir, entries)
}

// find looks name up and checks what it finds.
func (w *walk) find(dir *erofs.Inode, name string, nid uint64, typ uint8) {
	w.Helper()
	gotNid, gotTyp, ok, err := w.r.Lookup(dir, name)
	if !ok || err != nil || gotNid != nid || gotTyp != typ {
		w.Fatalf("directory %d: lookup of %q: %d, %d, %v, %v; listed as %d, %d", dir.Nid, name, gotNid, gotTyp, ok, err, nid, typ)
	}
}

// resume lists dir from every entry, and from right behind it.
func (w *walk) resume(dir *erofs.Inode, entries []entry) {
	w.Helper()
	for n, e := range entries {
		for from, want := range map[string][]entry{e.name: entries[n:], e.name + "\x00": entries[n+1:]} {
			want = want[:min(len(want), 2)]
			got := []entry{}
			err := w.r.Entries(dir, from, func(name string, _ uint8, nid uint64) bool {
				got = append(got, entry{name, nid})
				return len(got) < 2
			})
			if err != nil || !slices.Equal(got, want) {
				w.Fatalf("directory %d from %q: %v, %v; want %v", dir.Nid, from, got, err, want)
			}
		}
	}
}

// content returns the contents of a regular file, which must be a part of the
// image that can be mapped.
func (w *walk) content(path string, ino *erofs.Inode, other *gverofs.Inode) string {
	w.Helper()
	off, err := w.r.DataOffset(ino)
	if err != nil {
		w.Fatalf("%q: DataOffset: %v", path, err)
	}
	if ino.Size == 0 {
		return ""
	}
	if at, err := other.DataOffset(); err != nil || at != off {
		w.Fatalf("%q: data at %d, by gVisor at %d (%v)", path, off, at, err)
	}
	end := (off + ino.Size + erofs.BlockSize - 1) &^ (erofs.BlockSize - 1)
	if off%erofs.BlockSize != 0 || end > uint64(len(w.data)) {
		w.Fatalf("%q cannot be mapped: it is at offset %d to %d", path, off, end)
	}
	if rest := w.data[off+ino.Size : end]; !bytes.Equal(rest, make([]byte, len(rest))) {
		w.Fatalf("%q: bytes after the end of the file are not zero", path)
	}
	return string(w.data[off : off+ino.Size])
}

var direntType = map[erofs.Kind]uint8{
	erofs.Regular: unix.DT_REG, erofs.Directory: unix.DT_DIR, erofs.Symlink: unix.DT_LNK, erofs.Fifo: unix.DT_FIFO,
	erofs.Socket: unix.DT_SOCK, erofs.CharDevice: unix.DT_CHR, erofs.BlockDevice: unix.DT_BLK,
}

// kindOf uses that DT_* values are the type bits of a mode.
func kindOf(mode uint32) erofs.Kind {
	for kind, typ := range direntType {
		if uint32(typ) == mode>>12 {
			return kind
		}
	}
	return 0
}

// fsck runs fsck.erofs on the image. Without the tool the test is skipped from
// here on, so callers make it their last step.
func fsck(t *testing.T, path string) {
	t.Helper()
	tool, err := exec.LookPath("fsck.erofs")
	if err != nil {
		t.Skip("skip the fsck.erofs oracle: erofs-utils is not installed; gVisor's reader has checked the image")
	}
	out, err := exec.Command(tool, "-d3", "--extract", path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "No errors found") {
		t.Fatalf("fsck.erofs: %v\n%s", err, out)
	}
}
