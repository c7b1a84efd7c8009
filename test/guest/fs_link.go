package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

func fsLinkCases() []fsCase {
	const tree = "f f hello; d d; d e; l link f; l dangling nothing; p fifo; f two data; h d/two two; l loop loop"
	link := func(from, to string) func() error { return func() error { return unix.Link(from, to) } }
	cases := []fsCase{
		{name: "link/plain", tree: tree, run: func(t *fsT) {
			before := t.stat("f")
			t.tick()
			t.ok(unix.Link("f", "d/g"))
			a, b := t.stat("f"), t.stat("d/g")
			eq(t, "inode", a.Ino, b.Ino)
			eq(t, "inode before", before.Ino, a.Ino)
			eq(t, "nlink", uint64(a.Nlink), 2)
			eq(t, "nlink of the other", uint64(b.Nlink), 2)
			eq(t, "mtime", a.Mtim, before.Mtim)
			if a.Ctim == before.Ctim {
				t.fail("ctime did not change")
			}
			t.has("d/g", "hello")
		}},
		{name: "link/shared-data", tree: tree, run: func(t *fsT) {
			t.ok(unix.Link("f", "g"))
			t.pwrite(t.open("g", wronly), "J", 0)
			t.has("f", "Jello")
			t.ok(unix.Chmod("f", 0o600))
			t.hasMode("g", unix.S_IFREG|0o600)
			t.ok(unix.Truncate("f", 2))
			t.has("g", "Je")
			t.ok(unix.Unlink("f"))
			t.has("g", "Je")
			t.nlink("g", 1)
		}},
		{name: "link/of-others", tree: "d:0777 d; f:0666 plain; f:0644 closed; f:04777 setuid; f:02777 setgid; f:02767 group", run: func(t *fsT) {
			if setting, err := os.ReadFile("/proc/sys/fs/protected_hardlinks"); err == nil && strings.TrimSpace(string(setting)) == "0" {
				t.skip("this kernel lets everybody link everything")
			}
			t.user(func() {
				t.ok(unix.Link("plain", "d/plain"))
				t.ok(unix.Link("group", "d/group")) // its group may not execute it: no program
				for _, name := range []string{"closed", "setuid", "setgid"} {
					t.is(unix.Link(name, "d/"+name), unix.EPERM)
				}
			})
		}},
		{name: "link/of-before", tree: tree, run: func(t *fsT) {
			a, b := t.stat("two"), t.stat("d/two")
			eq(t, "inode", a.Ino, b.Ino)
			eq(t, "nlink", uint64(a.Nlink), 2)
			t.pwrite(t.open("two", wronly), "D", 0)
			t.has("d/two", "Data")
			eq(t, "inode after", t.stat("two").Ino, t.stat("d/two").Ino)
			t.ok(unix.Chmod("d/two", 0o640))
			t.hasMode("two", unix.S_IFREG|0o640)
			t.ok(unix.Link("d/two", "three"))
			t.nlink("two", 3)
			t.ok(unix.Unlink("d/two"))
			t.nlink("two", 2)
			t.nlink("three", 2)
			t.ok(unix.Unlink("three"))
			t.nlink("two", 1)
			t.has("two", "Data")
		}},
		{name: "link/of-before-unlinked", tree: tree, run: func(t *fsT) {
			t.ok(unix.Unlink("two")) // before anything was written
			t.nlink("d/two", 1)
			t.has("d/two", "data")
			t.put("two", "other")
			t.has("d/two", "data")
		}},
		{name: "link/of-before-renamed", tree: tree, run: func(t *fsT) {
			t.ok(unix.Rename("d/two", "e/two"))
			t.nlink("two", 2)
			t.pwrite(t.open("e/two", wronly), "D", 0)
			t.has("two", "Data")
			t.ok(unix.Rename("two", "e/two")) // the same inode: nothing happens
			t.has("two", "Data")
			t.nlink("e/two", 2)
		}},
		{name: "link/of-before-open", tree: tree, run: func(t *fsT) {
			fd := t.open("two", rdonly)
			t.pwrite(t.open("d/two", wronly), "D", 0)
			eq(t, "contents", t.pread(fd, 10, 0), "Data")
		}},
		{name: "link/many", tree: tree, run: func(t *fsT) {
			for i := range 200 {
				t.ok(unix.Link("f", fmt.Sprintf("d/n%03d", i)))
			}
			t.nlink("f", 201)
			for i := range 200 {
				t.ok(unix.Unlink(fmt.Sprintf("d/n%03d", i)))
			}
			t.nlink("f", 1)
			t.lists("d", "two")
		}},
		{name: "link/of-link", tree: tree, run: func(t *fsT) {
			t.ok(unix.Link("link", "again")) // the link itself
			t.hasMode("again", unix.S_IFLNK|0o777)
			eq(t, "inode", t.stat("again").Ino, t.stat("link").Ino)
			t.nlink("link", 2)
			t.ok(unix.Link("dangling", "dangling2"))
			t.ok(unix.Linkat(unix.AT_FDCWD, "link", unix.AT_FDCWD, "followed", unix.AT_SYMLINK_FOLLOW))
			eq(t, "inode of target", t.stat("followed").Ino, t.stat("f").Ino)
		}},
		{name: "link/of-fifo", tree: tree, run: func(t *fsT) {
			t.ok(unix.Link("fifo", "d/fifo"))
			t.nlink("fifo", 2)
			eq(t, "inode", t.stat("fifo").Ino, t.stat("d/fifo").Ino)
		}},
		{name: "link/of-unlinked", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdonly)
			t.ok(unix.Unlink("f"))
			err := unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, "back", unix.AT_SYMLINK_FOLLOW)
			t.is(err, unix.ENOENT)
			t.gone("back")
		}},
		{name: "link/over-unlinked-name", tree: tree, run: func(t *fsT) {
			t.ok(unix.Unlink("f"))
			t.ok(unix.Link("two", "f"))
			t.has("f", "data")
			t.nlink("f", 3)
		}},
	}
	return append(cases, fsFailures("link", tree,
		failure{"directory", unix.EPERM, link("d", "g")},
		failure{"existing", unix.EEXIST, link("f", "two")},
		failure{"existing-link", unix.EEXIST, link("f", "dangling")},
		failure{"existing-directory", unix.EEXIST, link("f", "d")},
		failure{"to-itself", unix.EEXIST, link("f", "f")},
		failure{"missing", unix.ENOENT, link("nothing", "g")},
		failure{"missing-parent", unix.ENOENT, link("f", "no/g")},
		failure{"file-as-parent", unix.ENOTDIR, link("f", "two/g")},
		failure{"with-slash", unix.ENOENT, link("f", "g/")},
		failure{"loop-as-parent", unix.ELOOP, link("loop/f", "g")},
		failure{"name-256", unix.ENAMETOOLONG, link("f", name255+"n")},
		failure{"to-other-file-system", unix.EXDEV, link("f", "/dev/no-such-name")},
		failure{"from-other-file-system", unix.EXDEV, link("/dev/null", "g")},
	)...)
}

func fsSymlinkCases() []fsCase {
	const tree = "f f hello; d d; f d/f deep; l link f; l dirlink d; l up d/..; l dot .; l slashed d/; l dangling nothing; l abs /proc/self"
	symlink := func(to, name string) func() error { return func() error { return unix.Symlink(to, name) } }
	readlink := func(name string) func() error {
		return func() error { _, err := unix.Readlink(name, make([]byte, 100)); return err }
	}
	target := func(t *fsT, name string) string {
		b := make([]byte, 5000)
		n, err := unix.Readlink(name, b)
		t.ok(err)
		return string(b[:n])
	}
	cases := []fsCase{
		{name: "symlink/plain", tree: tree, run: func(t *fsT) {
			t.ok(unix.Symlink("d/../f", "new"))
			eq(t, "target", target(t, "new"), "d/../f")
			t.hasMode("new", unix.S_IFLNK|0o777)
			t.size("new", 6)
			t.nlink("new", 1)
			t.has("new", "hello")
		}},
		{name: "symlink/of-before", tree: tree, run: func(t *fsT) {
			for name, want := range map[string]string{"link": "f", "slashed": "d/", "abs": "/proc/self", "dangling": "nothing"} {
				eq(t, "target of "+name, target(t, name), want)
				t.size(name, int64(len(want)))
			}
			t.has("dirlink/f", "deep")
			t.has("up/f", "hello")
			t.has("dot/dot/dirlink/../link", "hello")
			t.has("slashed/f", "deep")
		}},
		{name: "symlink/short-buffer", tree: tree, run: func(t *fsT) {
			b := make([]byte, 3)
			n, err := unix.Readlink("dangling", b)
			t.ok(err)
			eq(t, "target", string(b[:n]), "not")
		}},
		{name: "symlink/target-4095", run: func(t *fsT) {
			for _, n := range []int{1, 59, 60, 255, 1000, 4000, 4095} {
				name, want := fmt.Sprint("l", n), strings.Repeat("t", n)
				t.ok(unix.Symlink(want, name))
				eq(t, "target", target(t, name), want)
				t.size(name, int64(n))
			}
		}},
		{name: "symlink/target-bytes", run: func(t *fsT) {
			for _, want := range []string{" ", "a b\n", "\xff\xfe", "//", "../..", "\x01"} {
				t.ok(unix.Symlink(want, "l"))
				eq(t, "target", target(t, "l"), want)
				t.ok(unix.Unlink("l"))
			}
		}},
		{name: "symlink/trailing-slash", tree: tree, run: func(t *fsT) {
			eq(t, "type", t.stat("dirlink").Mode&unix.S_IFMT, uint32(unix.S_IFLNK))
			eq(t, "type with slash", t.stat("dirlink/").Mode&unix.S_IFMT, uint32(unix.S_IFDIR))
			var st unix.Stat_t
			t.is(unix.Lstat("link/", &st), unix.ENOTDIR)
			t.is(unix.Lstat("dangling/", &st), unix.ENOENT)
			t.ok(unix.Mkdir("dirlink/new", 0o755))
			t.lists("d", "f new")
		}},
		{name: "symlink/attributes", tree: tree, run: func(t *fsT) {
			t.ok(unix.Chmod("link", 0o600))
			t.hasMode("f", unix.S_IFREG|0o600)
			t.hasMode("link", unix.S_IFLNK|0o777)
			t.ok(unix.Lchown("link", 7, 8))
			t.owner("link", 7, 8)
			t.owner("f", 0, 0)
			t.ok(unix.Chown("link", 9, 10))
			t.owner("f", 9, 10)
			t.owner("link", 7, 8)
			eq(t, "target", target(t, "link"), "f")
		}},
		{name: "symlink/retargeted", tree: tree, run: func(t *fsT) {
			t.has("link", "hello")
			t.ok(unix.Unlink("link"))
			t.ok(unix.Symlink("d/f", "link"))
			t.has("link", "deep")
			t.ok(unix.Symlink("f", "tmp"))
			t.ok(unix.Rename("tmp", "link"))
			t.has("link", "hello")
			t.gone("tmp")
		}},
		{name: "symlink/moved", tree: tree, run: func(t *fsT) {
			t.ok(unix.Rename("link", "d/link")) // relative to where it is
			t.has("d/link", "deep")
			t.gone("link")
			t.ok(unix.Rename("dirlink", "dl2"))
			t.has("dl2/f", "deep")
			t.has("f", "hello")
		}},
	}
	return append(cases, fsFailures("symlink", tree+"; l loop loop2; l loop2 loop",
		failure{"existing", unix.EEXIST, symlink("x", "f")},
		failure{"existing-directory", unix.EEXIST, symlink("x", "d")},
		failure{"existing-link", unix.EEXIST, symlink("x", "dangling")},
		failure{"empty-target", unix.ENOENT, symlink("", "new")},
		failure{"empty-path", unix.ENOENT, symlink("x", "")},
		failure{"missing-parent", unix.ENOENT, symlink("x", "no/new")},
		failure{"file-as-parent", unix.ENOTDIR, symlink("x", "f/new")},
		failure{"with-slash", unix.ENOENT, symlink("x", "new/")},
		failure{"name-256", unix.ENAMETOOLONG, symlink("x", name255+"n")},
		failure{"target-4096", unix.ENAMETOOLONG, symlink(strings.Repeat("t", 4096), "new")},
		failure{"loop", unix.ELOOP, func() error { return try("loop", rdonly) }},
		failure{"loop-as-parent", unix.ELOOP, func() error { return try("loop/x", rdwr|creat) }},
		failure{"read-file", unix.EINVAL, readlink("f")},
		failure{"read-directory", unix.EINVAL, readlink("d")},
		failure{"read-missing", unix.ENOENT, readlink("nothing")},
		failure{"read-with-slash", unix.EINVAL, readlink("dirlink/")},
		failure{"read-name-256", unix.ENAMETOOLONG, readlink(name255 + "n")},
	)...)
}
