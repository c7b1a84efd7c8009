package image

import (
	"archive/tar"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
)

func mkfile(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestImportDir(t *testing.T) {
	root := t.TempDir()
	mkfile(t, root+"/bin/tool", "tool", 0o755|os.ModeSetuid)
	mkfile(t, root+"/empty", "", 0o600)
	check(t, os.Link(root+"/bin/tool", root+"/bin/same"))
	check(t, os.Symlink("/outside", root+"/absolute"))
	check(t, os.Symlink("bin", root+"/sbin"))
	check(t, unix.Mkfifo(root+"/fifo", 0o600))
	l, err := net.Listen("unix", root+"/sock")
	check(t, err)
	defer l.Close()
	f, err := os.Create(root + "/sparse")
	check(t, err)
	check(t, f.Truncate(8<<20))
	_, err = f.WriteAt([]byte("end"), 8<<20)
	check(t, err)
	check(t, f.Close())
	// The store itself lies in the directory.
	s, err := Open(root + "/var/images")
	check(t, err)

	img, err := s.ImportDir(context.Background(), root, Options{})
	check(t, err)
	got := readStored(t, s, img.ID)
	wantFiles(t, got, map[string]string{
		"bin/tool": "tool", "bin/same": "tool", "empty": "", "absolute": "/outside", "sbin": "bin",
		"fifo": "", "sock": "", "sparse": string(make([]byte, 8<<20)) + "end",
	})
	tool := got["bin/tool"]
	if tool.mode != 0o104755 || int(tool.uid) != os.Getuid() || got["bin/same"] != tool {
		t.Errorf("tool: %+v, same: %+v", tool, got["bin/same"])
	}
	if _, ok := got["var/images"]; ok {
		t.Error("the image holds the store")
	}
	if img.Source != root {
		t.Errorf("source %q", img.Source)
	}
	path, err := s.Path(img.ID)
	check(t, err)
	var st unix.Stat_t
	check(t, unix.Stat(path, &st))
	if used := st.Blocks * 512; used > 2<<20 {
		t.Errorf("the image of a hole occupies %d bytes", used)
	}

	squashed, err := s.ImportDir(context.Background(), root, Options{SquashOwners: true})
	check(t, err)
	for p, f := range readStored(t, s, squashed.ID) {
		if f.uid != 0 || f.gid != 0 {
			t.Errorf("%s belongs to %d:%d", p, f.uid, f.gid)
		}
	}
}

func TestImportDirDevices(t *testing.T) {
	root := t.TempDir()
	mkfile(t, root+"/file", "x", 0o644)
	check(t, os.Mkdir(root+"/dev", 0o755))
	if err := unix.Mknod(root+"/dev/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Skipf("skip: device nodes cannot be made here: %v", err)
	}
	s := openStore(t)
	img, err := s.ImportDir(context.Background(), root, Options{})
	check(t, err)
	wantFiles(t, readStored(t, s, img.ID), map[string]string{"file": "x"})

	check(t, unix.Mknod(root+"/device", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	s = openStore(t)
	_, err = s.ImportDir(context.Background(), root, Options{})
	wantCode(t, err, api.CodeHostile)
	wantNothingLeft(t, s)
}

func TestImportDirErrors(t *testing.T) {
	s := openStore(t)
	_, err := s.ImportDir(context.Background(), t.TempDir()+"/nothing", Options{})
	wantCode(t, err, api.CodeNotFound)
	file := t.TempDir() + "/file"
	mkfile(t, file, "x", 0o644)
	_, err = s.ImportDir(context.Background(), file, Options{})
	wantCode(t, err, api.CodeInvalid)
	_, err = s.ImportDir(context.Background(), t.TempDir(), Options{})
	wantCode(t, err, api.CodeInvalid)
	_, err = s.ImportDir(context.Background(), filepath.Dir(file), Options{Name: "Bad"})
	wantCode(t, err, api.CodeInvalid)
	_, err = s.ImportDir(context.Background(), filepath.Dir(file), Options{Limits: Limits{Entries: 1, TotalBytes: 1}})
	if err != nil {
		t.Errorf("one file of one byte is within limits: %v", err)
	}
	mkfile(t, filepath.Dir(file)+"/second", "y", 0o644)
	s = openStore(t)
	_, err = s.ImportDir(context.Background(), filepath.Dir(file), Options{Limits: Limits{TotalBytes: 1}})
	wantCode(t, err, api.CodeHostile)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = s.ImportDir(ctx, filepath.Dir(file), Options{})
	wantCode(t, err, api.CodeCanceled)
	wantNothingLeft(t, s)
}

func TestImportDirIsReproducible(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"b", "a", "c/d", "c/a"} {
		mkfile(t, root+"/"+name, name, 0o644)
	}
	var digests []string
	for range 2 {
		s := openStore(t)
		img, err := s.ImportDir(context.Background(), root, Options{})
		check(t, err)
		digests = append(digests, img.Digest)
	}
	if digests[0] != digests[1] {
		t.Errorf("two imports gave %v", digests)
	}
}

func TestImportDirXattrs(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"file", "plain", "sub/inner"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range map[string]string{"user.a": "file", "user.empty": "file", "user.dir": "sub"} {
		if err := unix.Setxattr(filepath.Join(dir, path), name, []byte(strings.TrimPrefix(name, "user.empty")), 0); err != nil {
			t.Skipf("the file system of %s takes no attributes: %v", dir, err)
		}
	}
	s := openStore(t)
	img, err := s.ImportDir(t.Context(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := readStored(t, s, img.ID)
	for path, want := range map[string]string{"file": `user.a="user.a" user.empty="" `, "sub": `user.dir="user.dir" `, "plain": "", "sub/inner": ""} {
		if got[path].xattrs != want {
			t.Errorf("%s has %s, want %s", path, got[path].xattrs, want)
		}
	}
}

// TestXattrsAreBounded tells that an archive cannot fill the memory with attributes.
func TestXattrsAreBounded(t *testing.T) {
	big := map[string]string{"SCHILY.xattr.user.a": strings.Repeat("x", 60_000)}
	var entries []entry
	for i := range 20 {
		entries = append(entries, entry{name: fmt.Sprint(i), Header: tar.Header{PAXRecords: big}})
	}
	s := openStore(t)
	_, err := importTar(t, s, makeTar(t, entries...), Options{Limits: Limits{XattrBytes: 1 << 20}})
	wantCode(t, err, api.CodeHostile)
	wantNothingLeft(t, s)
	for name, records := range map[string]map[string]string{
		"a name too long": {"SCHILY.xattr.user." + strings.Repeat("n", 300): ""}, "no name": {"SCHILY.xattr.user.": ""}, "a value too long": {"SCHILY.xattr.user.a": strings.Repeat("x", 1<<16)},
	} {
		_, err := importTar(t, s, makeTar(t, entry{name: "f", Header: tar.Header{PAXRecords: records}}), Options{})
		if api.CodeOf(err) != api.CodeHostile {
			t.Errorf("%s: %v", name, err)
		}
	}
}
