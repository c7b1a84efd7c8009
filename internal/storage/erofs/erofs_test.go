package erofs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"ramet.dev/ramet/internal/storage/erofs"
)

func put(tb fataler, tree *erofs.Tree, path string, n erofs.Node) {
	tb.Helper()
	if err := tree.Put(path, &n); err != nil {
		tb.Fatalf("Put(%q): %v", path, err)
	}
}

func putFile(tb fataler, w *erofs.Writer, tree *erofs.Tree, path, content string) {
	tb.Helper()
	data, err := w.Store(strings.NewReader(content))
	if err != nil {
		tb.Fatalf("Store(%q): %v", path, err)
	}
	put(tb, tree, path, erofs.Node{Kind: erofs.Regular, Mode: 0o644, Data: data})
}

func link(tb fataler, tree *erofs.Tree, path, target string) {
	tb.Helper()
	if err := tree.Link(path, target); err != nil {
		tb.Fatalf("Link(%q, %q): %v", path, target, err)
	}
}

func TestAttributesSurvive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	sum := writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
		put(t, tree, "/", erofs.Node{Kind: erofs.Directory, Mode: 0o1777, UID: 1, GID: 2, MtimeSec: 3, MtimeNsec: 4})
		put(t, tree, "bin/su", erofs.Node{Kind: erofs.Regular, Mode: 0o4755, UID: 1 << 31, GID: 70000, MtimeSec: 1 << 40})
		put(t, tree, "bin", erofs.Node{Kind: erofs.Directory, Mode: 0o700, UID: 9})
		put(t, tree, "l", erofs.Node{Kind: erofs.Symlink, Mode: 0o777, Target: "/bin/su"})
		put(t, tree, "long", erofs.Node{Kind: erofs.Symlink, Mode: 0o777, Target: strings.Repeat("x/", 2047) + "y"})
		put(t, tree, "fifo", erofs.Node{Kind: erofs.Fifo, Mode: 0o600})
		put(t, tree, "sock", erofs.Node{Kind: erofs.Socket, Mode: 0o600})
		put(t, tree, "null", erofs.Node{Kind: erofs.CharDevice, Mode: 0o666, Major: 1, Minor: 3})
		put(t, tree, "disk", erofs.Node{Kind: erofs.BlockDevice, Mode: 0o660, Major: 4095, Minor: 1<<20 - 1})
		put(t, tree, "implied/deep/dir", erofs.Node{Kind: erofs.Directory, Mode: 0o750})
	})
	got := readImage(t, path)
	for p, want := range map[string]file{
		"":                 {Kind: erofs.Directory, Mode: 0o1777, UID: 1, GID: 2, Mtime: 3, Nsec: 4, Nlink: 4},
		"bin/su":           {Kind: erofs.Regular, Mode: 0o4755, UID: 1 << 31, GID: 70000, Mtime: 1 << 40, Nlink: 1},
		"bin":              {Kind: erofs.Directory, Mode: 0o700, UID: 9, Nlink: 2},
		"l":                {Kind: erofs.Symlink, Mode: 0o777, Nlink: 1, Content: "/bin/su"},
		"long":             {Kind: erofs.Symlink, Mode: 0o777, Nlink: 1, Content: strings.Repeat("x/", 2047) + "y"},
		"fifo":             {Kind: erofs.Fifo, Mode: 0o600, Nlink: 1},
		"sock":             {Kind: erofs.Socket, Mode: 0o600, Nlink: 1},
		"null":             {Kind: erofs.CharDevice, Mode: 0o666, Nlink: 1, Major: 1, Minor: 3},
		"disk":             {Kind: erofs.BlockDevice, Mode: 0o660, Nlink: 1, Major: 4095, Minor: 1<<20 - 1},
		"implied":          {Kind: erofs.Directory, Mode: 0o755, Nlink: 3},
		"implied/deep":     {Kind: erofs.Directory, Mode: 0o755, Nlink: 3},
		"implied/deep/dir": {Kind: erofs.Directory, Mode: 0o750, Nlink: 2},
	} {
		have := got[p]
		if have.Nid == 0 {
			t.Errorf("%q has inode number 0 or is missing", p)
		}
		have.Nid = 0
		if have != want {
			t.Errorf("%q: got %+v, want %+v", p, have, want)
		}
	}
	if len(got) != 12 || sum.Inodes != 12 {
		t.Errorf("got %d paths and %d inodes, want 12", len(got), sum.Inodes)
	}
	fsck(t, path)
}

// TestContentSizes writes files around the sizes where the writer changes what
// it does: blocks and its buffer of 512 KiB.
func TestContentSizes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	sizes := []int{0, 1, 4095, 4096, 4097, 8192, 512<<10 - 4096, 512<<10 - 1, 512 << 10, 512<<10 + 1, 3<<20 + 17}
	want := map[string]string{}
	writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
		for i, size := range sizes {
			name := fmt.Sprintf("f%d", size)
			want[name] = strings.Repeat(string(rune('a'+i)), size)
			putFile(t, w, tree, name, want[name])
		}
	})
	got := readImage(t, path)
	for name, content := range want {
		if got[name].Content != content {
			t.Errorf("%s: content differs", name)
		}
	}
	fsck(t, path)
}

// TestDirectorySizes fills directories so that their lists end before, at and
// after block boundaries and the room behind an inode.
func TestDirectorySizes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	want := 1
	writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
		for _, n := range []int{1, 2, 30, 186, 187, 188, 190, 191, 192, 193, 400, 5000} {
			want += n + 1
			for i := range n {
				put(t, tree, fmt.Sprintf("d%d/name%05d", n, i), erofs.Node{Kind: erofs.Regular})
			}
		}
		// Names that sort before "." and between "." and "..".
		for _, name := range []string{"!", "-x", ".-", "...", strings.Repeat("é", 127), strings.Repeat("z", 255)} {
			put(t, tree, "odd/"+name, erofs.Node{Kind: erofs.Fifo})
		}
		want += 7
	})
	if got := readImage(t, path); len(got) != want {
		t.Errorf("got %d paths, want %d", len(got), want)
	}
	fsck(t, path)
}

func TestHardLinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
		link(t, tree, "early", "later/target")
		link(t, tree, "chain", "early")
		link(t, tree, "self", "later/target")
		link(t, tree, "self", "self") // the link that is there already
		link(t, tree, "dropped", "never arrives")
		put(t, tree, "dropped", erofs.Node{Kind: erofs.Fifo})
		putFile(t, w, tree, "later/target", "content")
		link(t, tree, "after", "./later//target")
		put(t, tree, "sl", erofs.Node{Kind: erofs.Symlink, Target: "later"})
		link(t, tree, "through", "sl/target")
		link(t, tree, "sl2", "sl")
		putFile(t, w, tree, "kept", "old")
		link(t, tree, "kept2", "kept")
		putFile(t, w, tree, "kept", "new")
	})
	got := readImage(t, path)
	target := got["later/target"]
	if target.Nlink != 6 || target.Content != "content" {
		t.Errorf("target: %+v, want 6 links", target)
	}
	for _, name := range []string{"early", "chain", "self", "after", "through"} {
		if got[name] != target {
			t.Errorf("%s: %+v is not the target", name, got[name])
		}
	}
	if got["sl2"] != got["sl"] || got["sl"].Kind != erofs.Symlink || got["sl"].Nlink != 2 {
		t.Errorf("link to a symbolic link: %+v, %+v", got["sl"], got["sl2"])
	}
	if got["dropped"].Kind != erofs.Fifo {
		t.Errorf("dropped: %+v", got["dropped"])
	}
	if got["kept"].Content != "new" || got["kept2"].Content != "old" || got["kept2"].Nlink != 1 {
		t.Errorf("kept: %+v, %+v", got["kept"], got["kept2"])
	}
	fsck(t, path)
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
		putFile(t, w, tree, "a/b/c", strings.Repeat("secret", 1000))
		putFile(t, w, tree, "keep", "kept")
		putFile(t, w, tree, "a/b", "now a file")
		putFile(t, w, tree, "f", "file")
		put(t, tree, "f", erofs.Node{Kind: erofs.Directory, Mode: 0o711})
		putFile(t, w, tree, "f/g", "below")
		put(t, tree, "f", erofs.Node{Kind: erofs.Directory, Mode: 0o700})
	})
	got := readImage(t, path)
	for p, content := range map[string]string{"a/b": "now a file", "keep": "kept", "f/g": "below"} {
		if got[p].Content != content {
			t.Errorf("%s: %q, want %q", p, got[p].Content, content)
		}
	}
	if _, ok := got["a/b/c"]; ok || got["f"].Mode != 0o700 {
		t.Errorf("replacement left a/b/c (%v) or the old mode %o", ok, got["f"].Mode)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, []byte("secret")) {
		t.Error("contents of a replaced file are still in the image")
	}
	fsck(t, path)
}

// TestReplaceBeforeZeros has the last content be moved, and it is a hole: the file ends
// before it.
func TestReplaceBeforeZeros(t *testing.T) {
	for _, size := range []int{1, erofs.BlockSize, 512 << 10, 1<<20 + 17} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "img")
			hole := strings.Repeat("\x00", size)
			writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
				putFile(t, w, tree, "first", strings.Repeat("replaced", 70_000))
				putFile(t, w, tree, "zeros", hole)
				putFile(t, w, tree, "first", "now")
				putFile(t, w, tree, "more", hole+"x")
				putFile(t, w, tree, "more", hole+hole)
			})
			got := readImage(t, path)
			if got["first"].Content != "now" || got["zeros"].Content != hole || got["more"].Content != hole+hole {
				t.Error("contents differ")
			}
			fsck(t, path)
		})
	}
}

func TestSymlinksLeadInsideTheTree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
		put(t, tree, "lib", erofs.Node{Kind: erofs.Symlink, Target: "usr/lib"})
		put(t, tree, "abs", erofs.Node{Kind: erofs.Symlink, Target: "/usr/./lib/"})
		put(t, tree, "d/out", erofs.Node{Kind: erofs.Symlink, Target: "../../../../usr"})
		putFile(t, w, tree, "lib/one", "1")
		putFile(t, w, tree, "abs/two", "2")
		putFile(t, w, tree, "d/out/lib/three", "3")
	})
	got := readImage(t, path)
	for p, content := range map[string]string{"usr/lib/one": "1", "usr/lib/two": "2", "usr/lib/three": "3"} {
		if got[p].Content != content {
			t.Errorf("%s: %+v", p, got[p])
		}
	}
	if got["lib"].Kind != erofs.Symlink {
		t.Errorf("lib: %+v", got["lib"])
	}
	fsck(t, path)
}

func TestLayers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
		putFile(t, w, tree, "gone", "1")
		putFile(t, w, tree, "dir/a", "1")
		putFile(t, w, tree, "dir/sub/b", "1")
		putFile(t, w, tree, "opaque/old", "1")
		putFile(t, w, tree, "opaque/sub/old", "1")
		putFile(t, w, tree, "linked", "old")
		link(t, tree, "late", "opaque/old")
		putFile(t, w, tree, "was-file", "1")
		step(tree.NextLayer())
		step(tree.Hide("gone"))
		step(tree.Hide("dir"))
		step(tree.Hide("no/such/path"))
		// The marker hides lower layers only, wherever it stands.
		putFile(t, w, tree, "opaque/before", "2")
		putFile(t, w, tree, "opaque/sub/new", "2")
		step(tree.HideChildren("opaque"))
		step(tree.HideChildren("opaque"))
		putFile(t, w, tree, "opaque/after", "2")
		link(t, tree, "linked2", "linked")
		putFile(t, w, tree, "linked", "new")
		putFile(t, w, tree, "was-file/below", "2")
	})
	got := readImage(t, path)
	want := map[string]string{
		"opaque/before": "2", "opaque/after": "2", "opaque/sub/new": "2",
		"linked": "new", "linked2": "old", "late": "1", "was-file/below": "2",
	}
	for p, f := range got {
		if f.Kind != erofs.Directory && want[p] != f.Content {
			t.Errorf("%s: %q, want %q", p, f.Content, want[p])
		}
		delete(want, p)
	}
	if _, ok := got["dir"]; ok || len(want) > 0 {
		t.Errorf("dir is there: %v; missing: %v", ok, want)
	}
	fsck(t, path)
}

func TestRefused(t *testing.T) {
	dir := erofs.Node{Kind: erofs.Directory}
	reg := erofs.Node{Kind: erofs.Regular}
	for name, try := range map[string]func(tree *erofs.Tree) error{
		"escape":         func(tree *erofs.Tree) error { return tree.Put("../x", &reg) },
		"inner escape":   func(tree *erofs.Tree) error { return tree.Put("a/../../x", &reg) },
		"link escape":    func(tree *erofs.Tree) error { return tree.Link("a", "b/../../x") },
		"hide escape":    func(tree *erofs.Tree) error { return tree.Hide("..") },
		"hide root":      func(tree *erofs.Tree) error { return tree.Hide("/") },
		"NUL":            func(tree *erofs.Tree) error { return tree.Put("a\x00b", &reg) },
		"long name":      func(tree *erofs.Tree) error { return tree.Put(strings.Repeat("n", 256), &reg) },
		"long path":      func(tree *erofs.Tree) error { return tree.Put(strings.Repeat("n/", 2048), &reg) },
		"root not a dir": func(tree *erofs.Tree) error { return tree.Put("/", &reg) },
		"root as link":   func(tree *erofs.Tree) error { return tree.Link(".", "a") },
		"bad mode":       func(tree *erofs.Tree) error { return tree.Put("a", &erofs.Node{Kind: erofs.Regular, Mode: 0o10000}) },
		"bad nsec":       func(tree *erofs.Tree) error { return tree.Put("a", &erofs.Node{Kind: erofs.Regular, MtimeNsec: 1e9}) },
		"bad kind":       func(tree *erofs.Tree) error { return tree.Put("a", &erofs.Node{}) },
		"bad device":     func(tree *erofs.Tree) error { return tree.Put("a", &erofs.Node{Kind: erofs.CharDevice, Major: 4096}) },
		"empty target":   func(tree *erofs.Tree) error { return tree.Put("a", &erofs.Node{Kind: erofs.Symlink}) },
		"long target": func(tree *erofs.Tree) error {
			return tree.Put("a", &erofs.Node{Kind: erofs.Symlink, Target: strings.Repeat("t", 4096)})
		},
		"file as parent": func(tree *erofs.Tree) error {
			return errors.Join(tree.Put("f", &reg), tree.Put("f/x", &reg))
		},
		"loop of symlinks": func(tree *erofs.Tree) error {
			return errors.Join(tree.Put("l", &erofs.Node{Kind: erofs.Symlink, Target: "l"}), tree.Put("l/x", &reg))
		},
		"long name by symlink": func(tree *erofs.Tree) error {
			return errors.Join(tree.Put("l", &erofs.Node{Kind: erofs.Symlink, Target: strings.Repeat("n", 256)}), tree.Put("l/x", &reg))
		},
		"depth by symlinks": func(tree *erofs.Tree) error {
			deep := strings.Repeat("d/", 2000)
			return errors.Join(
				tree.Put("one", &erofs.Node{Kind: erofs.Symlink, Target: deep}),
				tree.Put("one/two", &erofs.Node{Kind: erofs.Symlink, Target: deep}),
				tree.Put("one/two/x", &reg))
		},
		"link to a directory": func(tree *erofs.Tree) error {
			return errors.Join(tree.Put("d", &dir), tree.Link("l", "d"))
		},
		"early link to a directory": func(tree *erofs.Tree) error {
			return errors.Join(tree.Link("l", "d"), tree.Put("d", &dir), tree.NextLayer())
		},
		"missing target": func(tree *erofs.Tree) error { return errors.Join(tree.Link("l", "nothing"), tree.NextLayer()) },
		"circle of links": func(tree *erofs.Tree) error {
			return errors.Join(tree.Link("a", "b"), tree.Link("b", "a"), tree.NextLayer())
		},
		"link to itself": func(tree *erofs.Tree) error { return errors.Join(tree.Link("a", "a"), tree.NextLayer()) },
	} {
		t.Run(name, func(t *testing.T) {
			var refused *erofs.EntryError
			if err := try(erofs.NewTree()); !errors.As(err, &refused) {
				t.Fatalf("got %v, want an EntryError", err)
			}
		})
	}
}

func TestTwinsShareBlocks(t *testing.T) {
	dir := t.TempDir()
	content := strings.Repeat("twin", 300<<10) // beyond the buffer
	one := writeImage(t, filepath.Join(dir, "one"), func(w *erofs.Writer, tree *erofs.Tree) {
		putFile(t, w, tree, "a", content)
	})
	path := filepath.Join(dir, "two")
	two := writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
		putFile(t, w, tree, "a", content)
		putFile(t, w, tree, "b", content)
		putFile(t, w, tree, "zeros", strings.Repeat("\x00", 1<<20)) // over what b left behind
		putFile(t, w, tree, "c", "tail")
	})
	got := readImage(t, path)
	if got["b"].Content != content || got["a"].Content != content || got["a"].Nid == got["b"].Nid || got["c"].Content != "tail" {
		t.Error("twins are not two files of the same content")
	}
	if got["zeros"].Content != strings.Repeat("\x00", 1<<20) {
		t.Error("a hole shows what was there before")
	}
	if grown := two.Size - one.Size; grown != 1<<20+erofs.BlockSize {
		t.Errorf("image grew by %d", grown)
	}
	fsck(t, path)
}

func TestHolesStayHoles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
		data, err := w.Store(io.MultiReader(strings.NewReader("start"), io.LimitReader(zeroReader{}, 64<<20), strings.NewReader("end")))
		if err != nil {
			t.Fatal(err)
		}
		put(t, tree, "sparse", erofs.Node{Kind: erofs.Regular, Data: data})
	})
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if used := diskUsage(st); used > 8<<20 {
		t.Errorf("image of a 64 MiB hole occupies %d bytes", used)
	}
	if got := readImage(t, path)["sparse"].Content; len(got) != 64<<20+8 || !strings.HasSuffix(got, "\x00end") {
		t.Errorf("content has %d bytes", len(got))
	}
}

func TestSameInputSameBytes(t *testing.T) {
	dir := t.TempDir()
	var images [2][]byte
	for i := range images {
		path := filepath.Join(dir, fmt.Sprint(i))
		writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
			for j := range 2000 {
				putFile(t, w, tree, fmt.Sprintf("d%d/%d", j%7, j), fmt.Sprint(j))
			}
		})
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		images[i] = b
	}
	if !bytes.Equal(images[0], images[1]) {
		t.Error("two runs differ")
	}
}

func TestFailedStoreLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "img")
	broken := errors.New("broken")
	writeImage(t, path, func(w *erofs.Writer, tree *erofs.Tree) {
		putFile(t, w, tree, "a", "good")
		bad := io.MultiReader(strings.NewReader(strings.Repeat("partial", 200<<10)), iotest.ErrReader(broken))
		if _, err := w.Store(bad); !errors.Is(err, broken) {
			t.Fatalf("Store: %v", err)
		}
		putFile(t, w, tree, "b", "also good")
	})
	got := readImage(t, path)
	if got["a"].Content != "good" || got["b"].Content != "also good" {
		t.Errorf("got %+v", got)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(raw, []byte("partial")) {
		t.Error("the image holds what failed")
	}
}

// TestWriteErrorsAreReported fails each write in turn: no image may be called
// finished with a part of it missing.
func TestWriteErrorsAreReported(t *testing.T) {
	for n := 0; ; n++ {
		f, err := os.Create(filepath.Join(t.TempDir(), "img"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		faulty := &faultyFile{File: f, left: n}
		w, tree := erofs.NewWriter(faulty), erofs.NewTree()
		err = func() error {
			for _, name := range []string{"a", "b", "c"} {
				data, err := w.Store(strings.NewReader(strings.Repeat(name, 300<<10)))
				if err != nil {
					return err
				}
				if err := tree.Put(name, &erofs.Node{Kind: erofs.Regular, Data: data}); err != nil {
					return err
				}
			}
			if err := tree.Put("b", &erofs.Node{Kind: erofs.Fifo}); err != nil { // makes c move
				return err
			}
			_, err := w.Finish(tree, erofs.Options{})
			return err
		}()
		if faulty.failed != errors.Is(err, errDisk) {
			t.Fatalf("after %d calls: injected %v, got %v", n, faulty.failed, err)
		}
		if !faulty.failed {
			if err != nil || n < 8 {
				t.Fatalf("ended after %d calls: %v", n, err)
			}
			return
		}
	}
}

// TestEnsureDirectory makes directories below others, through links, and over nothing.
func TestEnsureDirectory(t *testing.T) {
	tree := erofs.NewTree()
	for path, n := range map[string]*erofs.Node{
		"file": {Kind: erofs.Regular}, "dir": {Kind: erofs.Directory, Mode: 0o700},
		"link": {Kind: erofs.Symlink, Target: "dir"}, "broken": {Kind: erofs.Symlink, Target: "file/x"},
	} {
		if err := tree.Put(path, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := tree.NextLayer(); err != nil {
		t.Fatal(err)
	}
	for path, made := range map[string]string{"/": "", "/dir": "dir", "/a/b": "a/b", "/link/c": "dir/c", "/dir/d/e/": "dir/d/e"} {
		if err := tree.EnsureDirectory(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if n := tree.Lookup(made); n == nil || n.Kind != erofs.Directory || made != "dir" && n.Mode != 0o755 {
			t.Errorf("%s is %+v", path, n)
		}
	}
	if n := tree.Lookup("dir"); n.Mode != 0o700 {
		t.Errorf("a directory that existed has mode %o", n.Mode)
	}
	for _, path := range []string{"/file", "/file/x", "/broken", "/broken/x", "/../x"} {
		if err := tree.EnsureDirectory(path); err == nil {
			t.Errorf("%s was made", path)
		}
	}
	if n := tree.Lookup("file"); n == nil || n.Kind != erofs.Regular {
		t.Errorf("the file is %+v", n)
	}
}
