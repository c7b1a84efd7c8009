package erofs_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	gverofs "gvisor.dev/gvisor/pkg/erofs"
	"pgregory.net/rapid"

	"ramet.dev/ramet/internal/storage/erofs"
)

// readXattrs returns the attributes of all files that have some.
func readXattrs(tb fataler, data []byte) map[string]map[string]string {
	tb.Helper()
	r, err := erofs.NewReader(data)
	if err != nil {
		tb.Fatalf("NewReader: %v", err)
	}
	all := map[string]map[string]string{}
	var visit func(path string, nid uint64)
	visit = func(path string, nid uint64) {
		i, err := r.Inode(nid)
		if err != nil {
			tb.Fatalf("%q: %v", path, err)
		}
		got := map[string]string{}
		if err := r.Xattrs(&i, func(name string, value []byte) bool {
			got[name] = string(value)
			return true
		}); err != nil {
			tb.Fatalf("%q: %v", path, err)
		}
		if len(got) > 0 {
			all[path] = got
		}
		for name, value := range got {
			if v, ok, err := r.Xattr(&i, name); !ok || err != nil || string(v) != value {
				tb.Fatalf("%q: attribute %q: %q, %v, %v", path, name, v, ok, err)
			}
		}
		if _, ok, err := r.Xattr(&i, "user.not-there"); ok || err != nil {
			tb.Fatalf("%q: an attribute that is not there: %v, %v", path, ok, err)
		}
		if kindOf(i.Mode) == erofs.Directory {
			if err := r.Entries(&i, "", func(name string, _ uint8, nid uint64) bool {
				visit(filepath.Join(path, name), nid)
				return true
			}); err != nil {
				tb.Fatalf("%q: %v", path, err)
			}
		}
	}
	visit("", r.Root())
	return all
}

func xattrsOf(m map[string]string) []erofs.Xattr {
	var all []erofs.Xattr
	for name, value := range m { // in any order
		all = append(all, erofs.Xattr{Name: name, Value: []byte(value)})
	}
	return all
}

// TestXattrs puts attributes of all sizes on files whose inodes have data behind
// them, and files without around them.
func TestXattrs(t *testing.T) {
	want := map[string]map[string]string{}
	path := filepath.Join(t.TempDir(), "img")
	long := strings.Repeat("x", erofs.MaxXattrName-len("user."))
	sizes := []int{0, 1, 2, 3, 4, 100, 3900, 3960, 3968, 3976, 4000, 4032, 4096, 5000, 20_000, erofs.MaxXattrValue}
	fill := func(w *erofs.Writer, tree *erofs.Tree) {
		add := func(name string, n erofs.Node, xattrs map[string]string) {
			want[name] = xattrs
			n.Xattrs = xattrsOf(xattrs)
			put(t, tree, name, n)
		}
		add("", erofs.Node{Kind: erofs.Directory, Mode: 0o755}, map[string]string{"user.root": "yes"})
		for _, size := range sizes {
			v := strings.Repeat("v", size)
			data, err := w.Store(strings.NewReader(v))
			if err != nil {
				t.Fatal(err)
			}
			add(fmt.Sprintf("file%d", size), erofs.Node{Kind: erofs.Regular, Data: data}, map[string]string{"user." + long: v, "security.capability": "c"})
			add(fmt.Sprintf("dir%d", size), erofs.Node{Kind: erofs.Directory}, map[string]string{"user.a": v, "trusted.b": ""})
			put(t, tree, fmt.Sprintf("dir%d/inside", size), erofs.Node{Kind: erofs.Regular})
			add(fmt.Sprintf("link%d", size), erofs.Node{Kind: erofs.Symlink, Target: strings.Repeat("t", min(size+1, 4095))}, map[string]string{"trusted.a": v})
			add(fmt.Sprintf("fifo%d", size), erofs.Node{Kind: erofs.Fifo}, map[string]string{"system.posix_acl_access": v})
			put(t, tree, fmt.Sprintf("plain%d", size), erofs.Node{Kind: erofs.Regular, Data: data})
		}
		put(t, tree, "full", erofs.Node{Kind: erofs.Regular, Xattrs: fullXattrs()})
	}
	writeImage(t, path, fill)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := readXattrs(t, data)
	if len(got["full"]) != 4 {
		t.Errorf("the file with as many bytes as fit has %d attributes", len(got["full"]))
	}
	delete(got, "full")
	if !reflect.DeepEqual(got, want) {
		t.Error("attributes differ")
	}
	again := filepath.Join(t.TempDir(), "again")
	writeImage(t, again, fill)
	if other, err := os.ReadFile(again); err != nil || !bytes.Equal(data, other) {
		t.Errorf("the same tree gives other bytes (%v)", err)
	}
	gvisorSeesRest(t, path)
	fsck(t, path)
}

// fullXattrs takes all the room that one file has.
func fullXattrs() []erofs.Xattr {
	var all []erofs.Xattr
	left := erofs.MaxXattrs - 12
	for i := range 4 {
		v := min(left-4-2, erofs.MaxXattrValue-1)
		all = append(all, erofs.Xattr{Name: fmt.Sprintf("user.%c%c", 'a'+i, 'a'), Value: make([]byte, v)})
		left -= (4 + 2 + v + 3) &^ 3
	}
	return all
}

// gvisorSeesRest tells that gVisor's reader takes the image, refuses the inodes
// with attributes and reads those without.
func gvisorSeesRest(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	img, err := gverofs.OpenImage(f)
	if err != nil {
		f.Close()
		t.Fatalf("gVisor's reader refuses the image: %v", err)
	}
	defer img.Close()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, readable := range map[string]bool{"plain5000": true, "plain65535": true, "dir4/inside": true, "file1": false, "dir0": false} {
		i, _ := inodeAt(t, data, name)
		if _, err := img.Inode(i.Nid); (err == nil) != readable {
			t.Errorf("gVisor's reader about %s: %v; if it knows attributes now, compare them", name, err)
		}
	}
}

func TestRefusesXattrs(t *testing.T) {
	big := make([]byte, erofs.MaxXattrValue)
	for name, all := range map[string][]erofs.Xattr{
		"no prefix":     {{Name: "foo"}},
		"bare prefix":   {{Name: "user."}},
		"other system":  {{Name: "system.foo"}},
		"longer acl":    {{Name: "system.posix_acl_access2"}},
		"NUL":           {{Name: "user.a\x00b"}},
		"long name":     {{Name: "user." + strings.Repeat("x", erofs.MaxXattrName-4)}},
		"long value":    {{Name: "user.a", Value: make([]byte, erofs.MaxXattrValue+1)}},
		"twice":         {{Name: "user.a"}, {Name: "user.a"}},
		"too many":      append(fullXattrs(), erofs.Xattr{Name: "user.z"}),
		"too much":      {{Name: "user.a", Value: big}, {Name: "user.b", Value: big}, {Name: "user.c", Value: big}, {Name: "user.d", Value: big}},
		"empty":         {{Name: ""}},
		"lustre prefix": {{Name: "lustre.x"}},
	} {
		err := erofs.NewTree().Put("f", &erofs.Node{Kind: erofs.Regular, Xattrs: all})
		var entry *erofs.EntryError
		if !errors.As(err, &entry) || !strings.Contains(entry.Reason, "extended attribute") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDirectoriesTakeXattrs tells that a directory put on one takes its attributes.
func TestDirectoriesTakeXattrs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	writeImage(t, path, func(_ *erofs.Writer, tree *erofs.Tree) {
		put(t, tree, "d", erofs.Node{Kind: erofs.Directory, Xattrs: []erofs.Xattr{{Name: "user.old"}}})
		put(t, tree, "d/x", erofs.Node{Kind: erofs.Regular})
		put(t, tree, "d", erofs.Node{Kind: erofs.Directory, Xattrs: []erofs.Xattr{{Name: "user.new"}}})
	})
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]string{"d": {"user.new": ""}}
	if got := readXattrs(t, data); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAnyXattrsComeBack(t *testing.T) {
	dir := t.TempDir()
	name := rapid.Custom(func(rt *rapid.T) string {
		prefix := rapid.SampledFrom([]string{"user.", "trusted.", "security."}).Draw(rt, "prefix")
		return prefix + rapid.StringMatching(`[a-zÿ.]{1,60}`).Draw(rt, "rest")
	})
	value := rapid.Custom(func(rt *rapid.T) string {
		return strings.Repeat("\x00v", rapid.IntRange(0, 3000).Draw(rt, "size")/2)
	})
	rapid.Check(t, func(rt *rapid.T) {
		path := filepath.Join(dir, "img")
		want := map[string]map[string]string{}
		writeImage(rt, path, func(w *erofs.Writer, tree *erofs.Tree) {
			for i := range rapid.IntRange(1, 12).Draw(rt, "files") {
				n, f := drawNode(rt, w)
				p := fmt.Sprint("f", i)
				if m := rapid.MapOfN(name, value, 0, 5).Draw(rt, "xattrs"); len(m) > 0 {
					want[p] = maps.Clone(m)
					n.Xattrs = xattrsOf(m)
				}
				if err := tree.Put(p, &n); err != nil {
					rt.Fatalf("put %v: %v", f, err)
				}
			}
		})
		data, err := os.ReadFile(path)
		if err != nil {
			rt.Fatalf("%v", err)
		}
		if got := readXattrs(rt, data); !reflect.DeepEqual(got, want) {
			rt.Fatalf("got %v, want %v", got, want)
		}
	})
}

func TestReadsXattrsOfMkfs(t *testing.T) {
	tool, err := exec.LookPath("mkfs.erofs")
	if err != nil {
		t.Skip("erofs-utils is not installed")
	}
	src, img := t.TempDir(), filepath.Join(t.TempDir(), "img")
	want := map[string]map[string]string{}
	for i, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(src, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
		want[name] = map[string]string{}
		for _, x := range []string{"user.one", "user.two"} {
			value := strings.Repeat(name, 10*i*i)
			if err := unix.Setxattr(filepath.Join(src, name), x, []byte(value), 0); err != nil {
				t.Skipf("the file system of %s takes no attributes: %v", src, err)
			}
			want[name][x] = value
		}
	}
	// With a lower number it shares what several files have.
	if out, err := exec.Command(tool, "-Enoinline_data", "-x1000", img, src).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(img)
	if err != nil {
		t.Fatal(err)
	}
	if got := readXattrs(t, data); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestHostileXattrs breaks the attributes of a good image, one field at a time.
func TestHostileXattrs(t *testing.T) {
	good := smallImage(t)
	for name, c := range map[string]struct {
		field int
		value []byte
		want  error
	}{
		"shared":         {64 + 4, []byte{1}, erofs.ErrUnsupported},
		"long name":      {64 + 12, []byte{255}, erofs.ErrCorrupt},
		"no name":        {64 + 12, []byte{0}, erofs.ErrCorrupt},
		"no prefix":      {64 + 13, []byte{0}, erofs.ErrCorrupt},
		"unknown prefix": {64 + 13, []byte{200}, erofs.ErrCorrupt},
		"long value":     {64 + 14, []byte{255, 255}, erofs.ErrCorrupt},
		"NUL in a name":  {64 + 16, []byte{0}, erofs.ErrCorrupt},
		"cut off":        {2, []byte{255, 255}, erofs.ErrCorrupt},
	} {
		data := bytes.Clone(good)
		_, off := inodeAt(t, data, "labelled")
		copy(data[off+c.field:], c.value)
		if err := visitAll(openImage(t, data), 1000); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
