package erofs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	gverofs "gvisor.dev/gvisor/pkg/erofs"

	"ramet.dev/ramet/internal/erofs"
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

// readImage walks the image with gVisor's reader, the one that sandboxes use.
// It fails the test unless every name can be looked up and every regular file
// can be mapped.
func readImage(tb fataler, path string) map[string]file {
	tb.Helper()
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
	out := map[string]file{}
	walkImage(tb, img, out, "", img.RootNid(), img.RootNid())
	return out
}

func walkImage(tb fataler, img *gverofs.Image, out map[string]file, path string, nid, parent uint64) {
	tb.Helper()
	ino, err := img.Inode(nid)
	if err != nil {
		tb.Fatalf("%q: inode %d: %v", path, nid, err)
	}
	got := file{
		Mode: ino.Mode() & 0o7777, UID: ino.UID(), GID: ino.GID(),
		Mtime: ino.Mtime(), Nsec: ino.MtimeNsec(), Nlink: ino.Nlink(), Nid: nid,
	}
	switch {
	case ino.IsRegular():
		got.Kind, got.Content = erofs.Regular, mapFile(tb, img, path, &ino)
	case ino.IsSymlink():
		got.Kind = erofs.Symlink
		if got.Content, err = ino.Readlink(); err != nil {
			tb.Fatalf("%q: Readlink: %v", path, err)
		}
	case ino.IsDir():
		got.Kind = erofs.Directory
	case ino.IsCharDev():
		got.Kind = erofs.CharDevice
	case ino.IsBlockDev():
		got.Kind = erofs.BlockDevice
	case ino.IsFIFO():
		got.Kind = erofs.Fifo
	case ino.IsSocket():
		got.Kind = erofs.Socket
	}
	out[path] = got
	if !ino.IsDir() {
		return
	}
	last := ""
	err = ino.IterDirents(func(name string, kind uint8, child uint64) error {
		if name <= last {
			return fmt.Errorf("%q follows %q", name, last)
		}
		last = name
		if found, err := ino.Lookup(name); err != nil || found != child {
			return fmt.Errorf("lookup %q: %d, %v; listed as %d", name, found, err, child)
		}
		switch {
		case name == "." && child != nid, name == ".." && child != parent:
			return fmt.Errorf("%q is inode %d", name, child)
		case name == "." || name == "..":
			return nil
		}
		sub := filepath.Join(path, name)
		walkImage(tb, img, out, sub, child, nid)
		if kind != uint8(out[sub].Kind) {
			return fmt.Errorf("%q: entry has kind %d, inode %d", sub, kind, out[sub].Kind)
		}
		return nil
	})
	if err != nil {
		tb.Fatalf("list %q: %v", path, err)
	}
	if _, err := ino.Lookup("no such\x01file"); err == nil {
		tb.Fatalf("%q: lookup finds what is not there", path)
	}
}

// mapFile returns the contents of a regular file, read twice: by the reader and
// by mapping the image as gVisor does for mmap.
func mapFile(tb fataler, img *gverofs.Image, path string, ino *gverofs.Inode) string {
	tb.Helper()
	ranges, err := ino.DataRanges()
	if err != nil {
		tb.Fatalf("%q: DataRanges: %v", path, err)
	}
	content := string(ranges[0].Bytes) + string(ranges[1].Bytes)
	off, err := ino.DataOffset()
	if err != nil {
		tb.Fatalf("%q cannot be mapped: %v", path, err)
	}
	if ino.Size() == 0 {
		return content
	}
	if off%erofs.BlockSize != 0 {
		tb.Fatalf("%q cannot be mapped: it is at offset %d", path, off)
	}
	length := (int(ino.Size()) + erofs.BlockSize - 1) &^ (erofs.BlockSize - 1)
	m, err := unix.Mmap(img.FD(), int64(off), length, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		tb.Fatalf("%q: mmap: %v", path, err)
	}
	defer unix.Munmap(m)
	if string(m[:ino.Size()]) != content {
		tb.Fatalf("%q: mapping and reading differ", path)
	}
	if rest := m[ino.Size():]; !bytes.Equal(rest, make([]byte, len(rest))) {
		tb.Fatalf("%q: bytes after the end of the file are not zero", path)
	}
	return content
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
