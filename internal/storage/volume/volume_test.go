package volume

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func open(t *testing.T, dir string, limit int64) *Volume {
	t.Helper()
	v, err := Open(t.Context(), dir, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	return v
}

func mustMake(t *testing.T, v *Volume, dir uint64, name string, mode uint32) *Attr {
	t.Helper()
	a, err := v.Make(t.Context(), dir, []byte(name), Node{Mode: mode, UID: 7, GID: 8})
	if err != nil {
		t.Fatalf("make %s: %v", name, err)
	}
	return a
}

func wantErr(t *testing.T, what string, err error, want unix.Errno) {
	t.Helper()
	if Errno(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func usedBy(t *testing.T, v *Volume) int64 {
	t.Helper()
	used, _, _, err := v.Usage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return used
}

func write(t *testing.T, v *Volume, ino uint64, text string) {
	t.Helper()
	if err := v.Grow(t.Context(), ino, int64(len(text))); err != nil {
		t.Fatal(err)
	}
	f, err := v.Data(t.Context(), ino, unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte(text), 0); err != nil {
		t.Fatal(err)
	}
}

// TestTree makes, links, moves and removes names, and finds all as it was after it is opened anew.
func TestTree(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	v := open(t, dir, 1<<20)
	empty := usedBy(t, v)
	d := mustMake(t, v, Root, "d", unix.S_IFDIR|0o755)
	f := mustMake(t, v, d.Ino, "f\xff", unix.S_IFREG|0o640)
	write(t, v, f.Ino, "hello")
	l, err := v.Make(ctx, Root, []byte("l"), Node{Mode: unix.S_IFLNK | 0o777, Target: []byte("d/f\xff")})
	if err != nil || l.Size != 4 {
		t.Fatalf("link: %+v, %v", l, err)
	}
	if _, err := v.Link(ctx, f.Ino, Root, []byte("g")); err != nil {
		t.Fatal(err)
	}
	if err := v.SetXattr(ctx, f.Ino, []byte("user.x"), []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	mode, uid, mtime := uint32(0o4711), uint32(5), int64(1_000_000_007)
	if _, err := v.SetAttr(ctx, f.Ino, Changes{Mode: &mode, UID: &uid, Mtime: &mtime}); err != nil {
		t.Fatal(err)
	}
	used := usedBy(t, v)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "data", "ffff") // of a file that was not recorded
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	v = open(t, dir, 1<<20)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("contents without a file are kept: %v", err)
	}
	if got := usedBy(t, v); got != used {
		t.Errorf("%d bytes are used, were %d", got, used)
	}
	a, err := v.Lookup(ctx, Root, []byte("g"))
	if err != nil || a.Ino != f.Ino || a.Mode != unix.S_IFREG|0o4711 || a.UID != 5 || a.GID != 8 || a.Nlink != 2 || a.Size != 5 || a.Mtime != mtime {
		t.Errorf("the file is %+v, %v", a, err)
	}
	if text, err := v.Readlink(ctx, l.Ino); string(text) != "d/f\xff" || err != nil {
		t.Errorf("the link leads to %q, %v", text, err)
	}
	if value, err := v.Xattr(ctx, f.Ino, []byte("user.x")); string(value) != "y" || err != nil {
		t.Errorf("the attribute is %q, %v", value, err)
	}
	list, err := v.List(ctx, Root, nil, 2)
	if err != nil || len(list) != 2 || string(list[0].Name) != "d" || string(list[1].Name) != "g" {
		t.Errorf("the list is %v, %v", list, err)
	}
	if list, err = v.List(ctx, Root, []byte("g"), 2); err != nil || len(list) != 1 || string(list[0].Name) != "l" {
		t.Errorf("the rest is %v, %v", list, err)
	}
	open, err := v.Data(ctx, f.Ino, unix.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for dir, name := range map[uint64]string{Root: "g", d.Ino: "f\xff"} {
		if err := errOf(v.Remove(ctx, dir, []byte(name), Removal{})); err != nil {
			t.Fatal(err)
		}
	}
	_, err = v.Stat(ctx, f.Ino)
	wantErr(t, "a file without names", err, unix.ESTALE)
	text := make([]byte, 5)
	if _, err := open.ReadAt(text, 0); err != nil || string(text) != "hello" {
		t.Errorf("an open file without names has %q, %v", text, err)
	}
	if err := errors.Join(errOf(v.Remove(ctx, Root, []byte("l"), Removal{})), errOf(v.Remove(ctx, Root, []byte("d"), Removal{Dir: true}))); err != nil {
		t.Fatal(err)
	}
	if got := usedBy(t, v); got != empty {
		t.Errorf("%d bytes are used in the end, were %d", got, empty)
	}
	if root, err := v.Stat(ctx, Root); err != nil || root.Nlink != 2 {
		t.Errorf("the root is %+v, %v", root, err)
	}
}

// TestRefused says what cannot be done as Linux does.
func TestRefused(t *testing.T) {
	ctx := t.Context()
	v := open(t, t.TempDir(), 1<<20)
	d := mustMake(t, v, Root, "d", unix.S_IFDIR|0o755)
	below := mustMake(t, v, d.Ino, "below", unix.S_IFDIR|0o755)
	f := mustMake(t, v, Root, "f", unix.S_IFREG|0o644)
	name := func(s string) []byte { return []byte(s) }
	for _, c := range []struct {
		what string
		err  error
		want unix.Errno
	}{
		{"remove a directory with children", errOf(v.Remove(ctx, Root, name("d"), Removal{Dir: true})), unix.ENOTEMPTY},
		{"unlink a directory", errOf(v.Remove(ctx, Root, name("d"), Removal{})), unix.EISDIR},
		{"rmdir a file", errOf(v.Remove(ctx, Root, name("f"), Removal{Dir: true})), unix.ENOTDIR},
		{"remove nothing", errOf(v.Remove(ctx, Root, name("x"), Removal{Dir: true})), unix.ENOENT},
		{"a directory into itself", errOf(v.Rename(ctx, Root, name("d"), below.Ino, name("d"), false, false)), unix.EINVAL},
		{"a file onto a directory", errOf(v.Rename(ctx, Root, name("f"), Root, name("d"), false, false)), unix.EISDIR},
		{"a directory onto a file", errOf(v.Rename(ctx, Root, name("d"), Root, name("f"), false, false)), unix.ENOTDIR},
		{"onto a full directory", errOf(v.Rename(ctx, d.Ino, name("below"), Root, name("d"), false, false)), unix.ENOTEMPTY},
		{"onto what is to stay", errOf(v.Rename(ctx, Root, name("f"), Root, name("d"), true, false)), unix.EEXIST},
		{"to a name with a slash", errOf(v.Rename(ctx, Root, name("f"), Root, name("a/b"), false, false)), unix.EINVAL},
		{"into a file", errOf(v.Rename(ctx, Root, name("d"), f.Ino, name("d"), false, false)), unix.ENOTDIR},
		{"a missing attribute", v.RemoveXattr(ctx, f.Ino, name("user.x")), unix.ENODATA},
		{"replace a missing attribute", v.SetXattr(ctx, f.Ino, name("user.x"), nil, unix.XATTR_REPLACE), unix.ENODATA},
		{"an attribute of nothing", v.SetXattr(ctx, 999, name("user.x"), nil, 0), unix.ESTALE},
	} {
		wantErr(t, c.what, c.err, c.want)
	}
	for text, want := range map[string]unix.Errno{"": unix.EINVAL, ".": unix.EINVAL, "..": unix.EINVAL, "a/b": unix.EINVAL, "a\x00": unix.EINVAL, strings.Repeat("n", 256): unix.ENAMETOOLONG, "f": unix.EEXIST} {
		_, err := v.Make(ctx, Root, name(text), Node{Mode: unix.S_IFREG | 0o644})
		wantErr(t, fmt.Sprintf("make %q", text), err, want)
	}
	_, err := v.Make(ctx, Root, name("odd"), Node{Mode: 0o644})
	wantErr(t, "a file of no type", err, unix.EINVAL)
	_, err = v.Make(ctx, 999, name("x"), Node{Mode: unix.S_IFREG})
	wantErr(t, "in a directory that is gone", err, unix.ESTALE)
	_, err = v.Link(ctx, d.Ino, Root, name("e"))
	wantErr(t, "link a directory", err, unix.EPERM)
	_, err = v.Data(ctx, d.Ino, unix.O_RDONLY)
	wantErr(t, "contents of a directory", err, unix.EINVAL)
	size := int64(5)
	_, err = v.SetAttr(ctx, d.Ino, Changes{Size: &size})
	wantErr(t, "cut a directory", err, unix.EISDIR)
	_, err = v.List(ctx, f.Ino, nil, 1)
	wantErr(t, "list a file", err, unix.ENOTDIR)
	if err := errOf(v.Link(ctx, f.Ino, Root, name("same"))); err != nil {
		t.Fatal(err)
	}
	if err := errOf(v.Rename(ctx, Root, name("f"), Root, name("same"), false, false)); err != nil {
		t.Errorf("rename onto the same file: %v", err)
	}
	if a, err := v.Lookup(ctx, Root, name("f")); err != nil || a.Nlink != 2 {
		t.Errorf("then it is %+v, %v: both names stay", a, err)
	}
}

func errOf[T any](_ T, err error) error { return err }

// TestLimit refuses what a volume has no room for, and takes it when there is room again.
func TestLimit(t *testing.T) {
	ctx := t.Context()
	v := open(t, t.TempDir(), 64<<10)
	f := mustMake(t, v, Root, "f", unix.S_IFREG|0o644)
	if err := v.Grow(ctx, f.Ino, 40<<10); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "grow beyond the limit", v.Grow(ctx, f.Ino, 80<<10), unix.ENOSPC)
	size := int64(80 << 10)
	_, err := v.SetAttr(ctx, f.Ino, Changes{Size: &size})
	wantErr(t, "extend beyond the limit", err, unix.ENOSPC)
	if a, err := v.Stat(ctx, f.Ino); err != nil || a.Size != 0 {
		t.Errorf("the file is %+v, %v", a, err)
	}
	wantErr(t, "an attribute beyond the limit", v.SetXattr(ctx, f.Ino, []byte("user.x"), bytes.Repeat([]byte("x"), 30<<10), 0), unix.ENOSPC)
	made := 0
	for {
		_, err := v.Make(ctx, Root, fmt.Appendf(nil, "n%d", made), Node{Mode: unix.S_IFDIR | 0o755})
		if err != nil {
			wantErr(t, "one more directory", err, unix.ENOSPC)
			break
		}
		made++
	}
	if made < 10 || made > 30 {
		t.Errorf("%d directories fit", made)
	}
	size = 0
	if _, err := v.SetAttr(ctx, f.Ino, Changes{Size: &size}); err != nil {
		t.Fatal(err)
	}
	mustMake(t, v, Root, "now", unix.S_IFDIR|0o755)
}

// TestNamesCost what they take of the disk, and nothing once they are gone.
func TestNamesCost(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	v := open(t, dir, 64<<10)
	f := mustMake(t, v, Root, "f", unix.S_IFREG|0o644)
	empty := usedBy(t, v)
	name := func(i int) []byte { return fmt.Appendf(nil, "%0240d", i) }
	links := 0
	for ; ; links++ {
		if _, err := v.Link(ctx, f.Ino, Root, name(links)); err != nil {
			wantErr(t, "one more link", err, unix.ENOSPC)
			break
		}
	}
	if links < 100 || links > 64<<10/240 {
		t.Errorf("%d links with names of 240 bytes fit into 64 KiB", links)
	}
	wantErr(t, "a longer name", errOf(v.Rename(ctx, Root, []byte("f"), Root, bytes.Repeat([]byte("n"), 255), false, false)), unix.ENOSPC)
	for i := range links {
		if _, err := v.Remove(ctx, Root, name(i), Removal{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := usedBy(t, v); got != empty {
		t.Errorf("%d bytes are used without the links, were %d", got, empty)
	}
	// A target, a name and an attribute count, also when the volume is opened again.
	if _, err := v.Make(ctx, Root, []byte("l"), Node{Mode: unix.S_IFLNK | 0o777, Target: bytes.Repeat([]byte("t"), 4000)}); err != nil {
		t.Fatal(err)
	}
	if got := usedBy(t, v) - empty; got < 5000 {
		t.Errorf("a link with a long target takes %d bytes", got)
	}
	if err := v.SetXattr(ctx, f.Ino, []byte("user.x"), []byte("v"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Rename(ctx, Root, []byte("f"), Root, []byte("longer"), false, false); err != nil {
		t.Fatal(err)
	}
	full := usedBy(t, v)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	v = open(t, dir, 64<<10)
	if got := usedBy(t, v); got != full {
		t.Errorf("%d bytes are used when it is opened again, were %d", got, full)
	}
	for _, n := range []string{"l", "longer"} {
		if _, err := v.Remove(ctx, Root, []byte(n), Removal{}); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := usedBy(t, v), int64(nodeCost); got != want {
		t.Errorf("%d bytes are used in the end, want %d", got, want)
	}
}

// TestRandom compares a volume with a directory of the host under random operations.
func TestRandom(t *testing.T) {
	ctx, host := t.Context(), t.TempDir()
	dir := t.TempDir()
	v := open(t, dir, 1<<30)
	r := rand.New(rand.NewPCG(1, 1))
	// resolve returns the number of a directory at a path.
	resolve := func(path string) uint64 {
		ino := uint64(Root)
		for _, part := range strings.Split(path, "/") {
			if part == "" {
				continue
			}
			a, err := v.Lookup(ctx, ino, []byte(part))
			if err != nil || a.Mode&unix.S_IFMT != unix.S_IFDIR {
				return 0
			}
			ino = a.Ino
		}
		return ino
	}
	pick := func() (parent, name string) {
		parts := []string{"a", "b", "c"}
		for range r.IntN(3) {
			parent += "/" + parts[r.IntN(3)]
		}
		return parent, parts[r.IntN(3)]
	}
	for i := range 3000 {
		parent, name := pick()
		at := filepath.Join(host, parent, name)
		p := resolve(parent)
		if fi, err := os.Stat(filepath.Join(host, parent)); (err == nil && fi.IsDir()) != (p != 0) {
			t.Fatalf("step %d: %q is in one of both only: %v, %d", i, parent, err, p)
		}
		if p == 0 {
			continue
		}
		var got, want error
		var what string
		switch r.IntN(5) {
		case 0:
			what = "mkdir"
			want = unix.Mkdir(at, 0o755)
			_, got = v.Make(ctx, p, []byte(name), Node{Mode: unix.S_IFDIR | 0o755})
		case 1:
			what = "create"
			want = unix.Mknod(at, unix.S_IFREG|0o644, 0)
			_, got = v.Make(ctx, p, []byte(name), Node{Mode: unix.S_IFREG | 0o644})
		case 2:
			what = "unlink"
			want = unix.Unlink(at)
			_, got = v.Remove(ctx, p, []byte(name), Removal{})
		case 3:
			what = "rmdir"
			want = unix.Rmdir(at)
			_, got = v.Remove(ctx, p, []byte(name), Removal{Dir: true})
		case 4:
			to, as := pick()
			q := resolve(to)
			if q == 0 {
				continue
			}
			what = "rename to " + to + "/" + as
			want = unix.Rename(at, filepath.Join(host, to, as))
			got = errOf(v.Rename(ctx, p, []byte(name), q, []byte(as), false, false))
			if want != nil && got != nil && strings.HasPrefix(parent+"/"+name+"/", to+"/"+as+"/") {
				continue // of a directory above, Linux says first that it is not empty
			}
		}
		if Errno(got) != Errno(want) {
			t.Fatalf("step %d: %s %s/%s: %v, the host says %v", i, what, parent, name, got, want)
		}
	}
	var compare func(path string, ino uint64)
	compare = func(path string, ino uint64) {
		names, err := os.ReadDir(filepath.Join(host, path))
		if err != nil {
			t.Fatal(err)
		}
		list, err := v.List(ctx, ino, nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		var ours, theirs []string
		for _, e := range list {
			ours = append(ours, string(e.Name))
		}
		dirs := uint32(2)
		for _, e := range names {
			theirs = append(theirs, e.Name())
			if e.IsDir() {
				dirs++
			}
		}
		if !slices.Equal(ours, theirs) {
			t.Errorf("%s has %v, the host %v", path, ours, theirs)
		}
		if a, err := v.Stat(ctx, ino); err != nil || a.Nlink != dirs {
			t.Errorf("%s has %d links, %v: %d are right", path, a.Nlink, err, dirs)
		}
		for _, e := range list {
			if e.Mode&unix.S_IFMT == unix.S_IFDIR {
				compare(path+"/"+string(e.Name), e.Ino)
			}
		}
	}
	compare("", Root)
	used := usedBy(t, v)
	v.Close()
	if got := usedBy(t, open(t, dir, 1<<30)); got != used {
		t.Errorf("%d bytes are used, counted anew %d", used, got)
	}
}
