package erofs_test

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"ramet.dev/ramet/internal/storage/erofs"
)

// FuzzReader reads hostile images: whatever is in them, the answers are within
// the image and agree with each other, and errors are those of the package. The
// input is a list of changes to a good image, since the fuzzer does little with
// inputs as long as an image: offset and new value, 16 bits each. The checksum is
// made right, as a hostile author would.
func FuzzReader(f *testing.F) {
	good := smallImage(f)
	f.Add([]byte{})
	_, labelled := inodeAt(f, good, "labelled")
	for _, field := range []int{2, 64 + 4, 64 + 12, 64 + 14, 64 + 17} { // count, shared, name, value, text
		f.Add(change(labelled+field, 0))
		f.Add(change(labelled+field, 1<<16-1))
	}
	for _, path := range []string{"file", "link", "longlink", "fifo", "dir", "big"} {
		_, off := inodeAt(f, good, path)
		for _, field := range []int{0, 4, 8, 16, 64 + 8, 64 + 20} { // of the inode and of what follows it
			f.Add(change(off+field, 1))
			f.Add(change(off+field, 1<<16-1))
		}
	}
	data := make([]byte, len(good))
	f.Fuzz(func(t *testing.T, changes []byte) {
		copy(data, good)
		for ; len(changes) >= 4; changes = changes[4:] {
			at := int(le.Uint16(changes)) % (len(data) - 1)
			copy(data[at:], changes[2:4])
		}
		seal(data)
		r, err := erofs.NewReader(data)
		if !known(err) {
			t.Fatalf("NewReader: %v", err)
		}
		if err != nil {
			return
		}
		seen := map[uint64]bool{}
		for todo := []uint64{r.Root()}; len(todo) > 0 && len(seen) < 200; todo = todo[1:] {
			if !seen[todo[0]] {
				seen[todo[0]] = true
				todo = append(todo, fuzzInode(t, r, data, todo[0])...)
			}
		}
	})
}

func change(off, value int) []byte {
	return le.AppendUint16(le.AppendUint16(nil, uint16(off)), uint16(value))
}

func known(err error) bool {
	return err == nil || errors.Is(err, erofs.ErrCorrupt) || errors.Is(err, erofs.ErrUnsupported)
}

// fuzzInode makes every call on an inode and returns the inodes it lists.
func fuzzInode(t *testing.T, r *erofs.Reader, data []byte, nid uint64) (children []uint64) {
	i, err := r.Inode(nid)
	if err != nil {
		if !known(err) {
			t.Fatalf("Inode: %v", err)
		}
		return nil
	}
	off, err := r.DataOffset(&i)
	if regular := i.Mode&syscall.S_IFMT == syscall.S_IFREG; regular && !known(err) || regular == errors.Is(err, syscall.EINVAL) {
		t.Fatalf("DataOffset: %v", err)
	}
	if end := off + i.Size; err == nil && (off%erofs.BlockSize != 0 || end < off || end > uint64(len(data))) {
		t.Fatalf("data at %d to %d of %d", off, end, len(data))
	}
	target, err := r.Readlink(&i)
	if link := i.Mode&syscall.S_IFMT == syscall.S_IFLNK; link && !known(err) || link == errors.Is(err, syscall.EINVAL) {
		t.Fatalf("Readlink: %v", err)
	}
	if err == nil && (target == "" || len(target) > erofs.MaxTargetLen || strings.IndexByte(target, 0) >= 0) {
		t.Fatalf("target %q", target)
	}
	fuzzXattrs(t, r, &i)
	if i.Mode&syscall.S_IFMT == syscall.S_IFDIR {
		return fuzzDirectory(t, r, &i)
	}
	return nil
}

func fuzzXattrs(t *testing.T, r *erofs.Reader, i *erofs.Inode) {
	values, total := map[string]string{}, 0
	err := r.Xattrs(i, func(name string, value []byte) bool {
		if len(name) > erofs.MaxXattrName || !strings.Contains(name, ".") || strings.IndexByte(name, 0) >= 0 {
			t.Fatalf("extended attribute %q", name)
		}
		if _, ok := values[name]; !ok {
			values[name] = string(value)
		}
		total += len(name) + len(value)
		return true
	})
	if !known(err) || total > 8*erofs.MaxXattrs || total > 0 && !i.HasXattrs() {
		t.Fatalf("Xattrs: %v after %d bytes", err, total)
	}
	for name, want := range values {
		if got, ok, err := r.Xattr(i, name); !ok || err != nil || string(got) != want {
			t.Fatalf("Xattr %q: %q, %v, %v; listed as %q", name, got, ok, err, want)
		}
	}
}

func fuzzDirectory(t *testing.T, r *erofs.Reader, dir *erofs.Inode) (children []uint64) {
	type found struct {
		typ uint8
		nid uint64
	}
	all := map[string]found{}
	last := ""
	err := r.Entries(dir, "", func(name string, typ uint8, nid uint64) bool {
		if name <= last || len(name) > erofs.MaxNameLen || strings.ContainsAny(name, "/\x00") || name == "." || name == ".." {
			t.Fatalf("%q follows %q", name, last)
		}
		last = name
		all[name] = found{typ, nid}
		if children = append(children, nid); len(children) > 1000 {
			return false
		}
		return true
	})
	if !known(err) {
		t.Fatalf("Entries: %v", err)
	}
	sound := err == nil && len(children) <= 1000
	for name, want := range all {
		nid, typ, ok, err := r.Lookup(dir, name)
		if !known(err) || ok && err != nil || sound && (!ok || nid != want.nid || typ != want.typ) {
			t.Fatalf("Lookup of %q: %d, %d, %v, %v; listed as %+v", name, nid, typ, ok, err, want)
		}
	}
	for _, from := range []string{last + "\x00", "m", "\xff"} {
		_, present := all[from]
		first := ""
		err := r.Entries(dir, from, func(name string, _ uint8, _ uint64) bool {
			first = name
			return false
		})
		if !known(err) || first != "" && first < from || sound && (err != nil || present != (first == from)) {
			t.Fatalf("Entries from %q: %q, %v", from, first, err)
		}
		if _, _, ok, err := r.Lookup(dir, from); !known(err) || sound && ok && !present && from != "." && from != ".." {
			t.Fatalf("Lookup of %q: %v, %v", from, ok, err)
		}
	}
	return children
}
