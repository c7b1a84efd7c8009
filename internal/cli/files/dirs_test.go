package files

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// TestDeepDirectories packs and unpacks directories whose path is longer than a system call
// takes, with as few descriptors as for others.
func TestDeepDirectories(t *testing.T) {
	const depth = 300
	name := strings.Repeat("d", 30)
	src, dst := t.TempDir(), t.TempDir()
	root, err := os.OpenRoot(src)
	if err != nil {
		t.Fatal(err)
	}
	deep := &dirs{root: root}
	defer deep.close()
	path := "."
	for range depth {
		in, err := deep.at(path)
		if err == nil {
			err = errors.Join(in.Mkdir(name, 0o750), in.WriteFile("f", []byte("x"), 0o640))
		}
		if err != nil {
			t.Fatal(err)
		}
		path = strings.TrimPrefix(path+"/"+name, "./")
	}
	in, err := deep.at(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(in.WriteFile("leaf", []byte("found"), 0o600), in.Link("leaf", "same"), in.Symlink("leaf", "link")); err != nil {
		t.Fatal(err)
	}
	if open := openOf(deep); open > keptOpen+depth/keptOpen+1 {
		t.Errorf("%d directories are open", open)
	}

	u, err := newUnpacker(dst, "out")
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	p := newPacker(src, "top", false)
	if err := errors.Join(u.all(p), p.Close()); err != nil {
		t.Fatal(err)
	}
	p.wait()
	if u.directories != depth+1 || u.files != depth+3 {
		t.Errorf("unpacked %d directories and %d files", u.directories, u.files)
	}
	if err := u.enter(path); err != nil {
		t.Fatal(err)
	}
	if got, err := u.in.ReadFile("link"); err != nil || string(got) != "found" {
		t.Errorf("the file has %q, %v", got, err)
	}
	if st, err := u.in.Stat("leaf"); err != nil || st.Mode() != 0o600 {
		t.Errorf("the file is %v, %v", st, err)
	}
	if err := u.enter(name + "/" + name); err != nil {
		t.Fatal(err)
	}
	if st, err := u.in.Stat(name); err != nil || st.Mode() != fs.ModeDir|0o750 {
		t.Errorf("the directory is %v, %v", st, err)
	}
}

func openOf(d *dirs) (n int) {
	for _, r := range d.open {
		if r != nil {
			n++
		}
	}
	return n
}

// TestDirsLeadThroughNoLinks refuses a path that leads through a symbolic link or a file.
func TestDirsLeadThroughNoLinks(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	d := &dirs{root: root}
	defer d.close()
	if err := errors.Join(root.MkdirAll("a/b", 0o755), root.Symlink("b", "a/link"), root.WriteFile("a/file", nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"a/link", "a/file", "a/link/x"} {
		if _, err := d.at("a/b"); err != nil {
			t.Fatal(err)
		}
		var no *errNotDir
		if _, err := d.at(path); !errors.As(err, &no) || no.path != strings.TrimSuffix(path, "/x") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := d.at("a/c"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a/c: %v", err)
	}
}
