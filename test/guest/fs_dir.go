package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

const fsDirTree = "d d; f d/f x; d empty; f f hello; l link f; l dirlink d; l emptylink empty; l dangling nothing; l loop loop"

func fsDirCases() []fsCase {
	mkdir := func(name string) func() error { return func() error { return unix.Mkdir(name, 0o755) } }
	rmdir := func(name string) func() error { return func() error { return unix.Rmdir(name) } }
	cases := []fsCase{
		{name: "mkdir/plain", run: func(t *fsT) {
			before := uint64(t.stat(".").Nlink)
			t.ok(unix.Mkdir("new", 0o751))
			t.hasMode("new", unix.S_IFDIR|0o751)
			t.owner("new", 0, 0)
			t.nlink("new", 2)
			t.nlink(".", before+1)
			fd := t.open("new", rdonly|unix.O_DIRECTORY)
			var names []string
			for _, e := range t.entries(fd, 1024) {
				names = append(names, e.name)
			}
			eq(t, "entries", strings.Join(names, " "), ". ..")
			eq(t, "parent", t.stat("new/..").Ino, t.stat(".").Ino)
		}},
		{name: "mkdir/with-slash", run: func(t *fsT) {
			t.ok(unix.Mkdir("new/", 0o755))
			t.hasMode("new", unix.S_IFDIR|0o755)
			t.ok(unix.Mkdir("./new//sub//", 0o755))
		}},
		{name: "mkdir/mode-bits", run: func(t *fsT) {
			t.ok(unix.Mkdir("new", 0o7777)) // set-id bits are for chmod
			t.hasMode("new", unix.S_IFDIR|0o1777)
		}},
		{name: "mkdir/umask", run: func(t *fsT) {
			unix.Umask(0o027)
			defer unix.Umask(0)
			t.ok(unix.Mkdir("new", 0o777))
			t.hasMode("new", unix.S_IFDIR|0o750)
			t.ok(try("file", wronly|creat, 0o666))
			t.hasMode("file", unix.S_IFREG|0o640)
			t.ok(unix.Mkfifo("fifo", 0o666))
			t.hasMode("fifo", unix.S_IFIFO|0o640)
		}},
		{name: "mkdir/name-255", run: func(t *fsT) {
			t.ok(unix.Mkdir(name255, 0o755))
			t.put(name255+"/f", "x")
			t.lists(".", name255)
		}},
		{name: "mkdir/nlink-of-parent", tree: "d d; d d/a; d d/b; f d/f x; l d/l a", run: func(t *fsT) {
			t.nlink("d", 4)
			t.ok(unix.Mkdir("d/c", 0o755))
			t.nlink("d", 5)
			t.ok(unix.Rmdir("d/a"))
			t.nlink("d", 4)
			t.put("d/g", "")
			t.nlink("d", 4)
		}},
		{name: "mkdir/many-subdirectories", run: func(t *fsT) {
			before := uint64(t.stat(".").Nlink)
			for i := range 300 {
				t.ok(unix.Mkdir(fmt.Sprintf("d%03d", i), 0o755))
			}
			t.nlink(".", before+300)
			for i := range 300 {
				t.ok(unix.Rmdir(fmt.Sprintf("d%03d", i)))
			}
			t.nlink(".", before)
			t.lists(".", "")
		}},
		{name: "rmdir/plain", tree: fsDirTree, run: func(t *fsT) {
			before := uint64(t.stat(".").Nlink)
			t.ok(unix.Rmdir("empty"))
			t.gone("empty")
			t.nlink(".", before-1)
			t.lists(".", "d dangling dirlink emptylink f link loop")
		}},
		{name: "rmdir/with-slash", tree: fsDirTree, run: func(t *fsT) {
			t.ok(unix.Rmdir("empty//"))
			t.gone("empty")
		}},
		{name: "rmdir/by-unlinkat", tree: fsDirTree, run: func(t *fsT) {
			t.ok(unix.Unlinkat(unix.AT_FDCWD, "empty", unix.AT_REMOVEDIR))
			t.gone("empty")
			t.is(unix.Unlinkat(unix.AT_FDCWD, "f", unix.AT_REMOVEDIR), unix.ENOTDIR)
		}},
		{name: "rmdir/emptied", tree: fsDirTree, run: func(t *fsT) {
			t.ok(unix.Unlink("d/f"))
			t.lists("d", "")
			t.ok(unix.Rmdir("d"))
			t.gone("d", "d/f")
			t.is(try("dirlink/f", rdonly), unix.ENOENT)
		}},
		{name: "rmdir/while-open", tree: fsDirTree, run: func(t *fsT) {
			fd := t.open("empty", rdonly|unix.O_DIRECTORY)
			t.ok(unix.Rmdir("empty"))
			st := t.fstat(fd)
			eq(t, "nlink", uint64(st.Nlink), 0)
			eq(t, "type", st.Mode&unix.S_IFMT, uint32(unix.S_IFDIR))
			_, err := unix.Openat(fd, "x", rdwr|creat, 0o644)
			t.is(err, unix.ENOENT)
			t.is(unix.Mkdirat(fd, "x", 0o755), unix.ENOENT)
			t.is(unix.Symlinkat("f", fd, "x"), unix.ENOENT)
			t.is(unix.Linkat(unix.AT_FDCWD, "f", fd, "x", 0), unix.ENOENT)
			t.is(unix.Renameat(unix.AT_FDCWD, "f", fd, "x"), unix.ENOENT)
			for _, e := range t.entriesOfRemoved(fd) {
				if e.name != "." && e.name != ".." {
					t.fail("a removed directory has the entry %q", e.name)
				}
			}
		}},
		{name: "rmdir/working-directory", tree: fsDirTree, run: func(t *fsT) {
			t.ok(unix.Chdir("empty"))
			t.ok(unix.Rmdir("../empty"))
			t.is(try("x", rdwr|creat), unix.ENOENT)
			t.is(unix.Mkdir("x", 0o755), unix.ENOENT)
			_, err := unix.Getcwd(make([]byte, 4096))
			t.is(err, unix.ENOENT)
			t.ok(unix.Chdir(t.dir))
		}},
		{name: "rmdir/made-again", tree: fsDirTree, run: func(t *fsT) {
			fd := t.open("empty", rdonly|unix.O_DIRECTORY)
			t.ok(unix.Rmdir("empty"))
			t.ok(unix.Mkdir("empty", 0o700))
			t.hasMode("empty", unix.S_IFDIR|0o700)
			t.put("empty/new", "x")
			t.lists("empty", "new")
			_, err := unix.Openat(fd, "new", rdonly, 0) // the old one is still gone
			t.is(err, unix.ENOENT)
		}},
		{name: "rmdir/nlink-0-after-made-again", tree: fsDirTree, run: func(t *fsT) {
			fd := t.open("empty", rdonly|unix.O_DIRECTORY)
			t.ok(unix.Rmdir("empty"))
			t.ok(unix.Mkdir("empty", 0o755))
			eq(t, "nlink", uint64(t.fstat(fd).Nlink), 0)
		}},
	}
	cases = append(cases, fsFailures("mkdir", fsDirTree,
		failure{"over-file", unix.EEXIST, mkdir("f")},
		failure{"over-directory", unix.EEXIST, mkdir("d")},
		failure{"over-directory-with-slash", unix.EEXIST, mkdir("d/")},
		failure{"over-link", unix.EEXIST, mkdir("dirlink")},
		failure{"over-dangling-link", unix.EEXIST, mkdir("dangling")},
		failure{"dot", unix.EEXIST, mkdir(".")},
		failure{"dot-dot", unix.EEXIST, mkdir("d/..")},
		failure{"root", unix.EEXIST, mkdir("/")},
		failure{"empty-path", unix.ENOENT, mkdir("")},
		failure{"missing-parent", unix.ENOENT, mkdir("no/d")},
		failure{"dangling-parent", unix.ENOENT, mkdir("dangling/d")},
		failure{"file-as-parent", unix.ENOTDIR, mkdir("f/d")},
		failure{"loop-as-parent", unix.ELOOP, mkdir("loop/d")},
		failure{"name-256", unix.ENAMETOOLONG, mkdir(name255 + "n")},
		failure{"path-too-long", unix.ENAMETOOLONG, mkdir(strings.Repeat("d/../", 820) + "new")},
	)...)
	return append(cases, fsFailures("rmdir", fsDirTree,
		failure{"not-empty", unix.ENOTEMPTY, rmdir("d")},
		failure{"file", unix.ENOTDIR, rmdir("f")},
		failure{"link", unix.ENOTDIR, rmdir("emptylink")},
		failure{"link-with-slash", unix.ENOTDIR, rmdir("emptylink/")},
		failure{"missing", unix.ENOENT, rmdir("nothing")},
		failure{"empty-path", unix.ENOENT, rmdir("")},
		failure{"dot", unix.EINVAL, rmdir("empty/.")},
		failure{"dot-dot", unix.ENOTEMPTY, rmdir("d/..")},
		failure{"root", unix.EBUSY, rmdir("/")},
		failure{"file-as-parent", unix.ENOTDIR, rmdir("f/d")},
		failure{"missing-parent", unix.ENOENT, rmdir("no/d")},
		failure{"loop-as-parent", unix.ELOOP, rmdir("loop/d")},
		failure{"name-256", unix.ENAMETOOLONG, rmdir(name255 + "n")},
	)...)
}

// entriesOfRemoved reads a removed directory, for which Linux reports ENOENT.
func (t *fsT) entriesOfRemoved(fd int) []fsEntry {
	if _, err := unix.Getdents(fd, make([]byte, 1024)); err == unix.ENOENT {
		return nil
	}
	t.seek(fd, 0, unix.SEEK_SET)
	return t.entries(fd, 1024)
}

func fsUnlinkCases() []fsCase {
	unlink := func(name string) func() error { return func() error { return unix.Unlink(name) } }
	cases := []fsCase{
		{name: "unlink/plain", tree: fsDirTree, run: func(t *fsT) {
			t.ok(unix.Unlink("f"))
			t.gone("f")
			t.lists(".", "d dangling dirlink empty emptylink link loop")
			t.is(try("link", rdonly), unix.ENOENT)
			t.is(unix.Unlink("f"), unix.ENOENT)
		}},
		{name: "unlink/link-not-target", tree: fsDirTree, run: func(t *fsT) {
			t.ok(unix.Unlink("link"))
			t.ok(unix.Unlink("dirlink"))
			t.ok(unix.Unlink("dangling"))
			t.gone("link", "dirlink", "dangling")
			t.has("f", "hello")
			t.has("d/f", "x")
		}},
		{name: "unlink/while-open", tree: "f f *10000", run: func(t *fsT) {
			fd, other := t.open("f", rdwr), t.open("f", rdonly)
			t.ok(unix.Unlink("f"))
			t.gone("f")
			st := t.fstat(fd)
			eq(t, "nlink", uint64(st.Nlink), 0)
			eq(t, "size", st.Size, int64(10000))
			eq(t, "contents", t.pread(fd, 10000, 0), bytesOf(10000))
			t.pwrite(fd, "after", 9998)
			eq(t, "what was written", t.pread(other, 100, 9998), "after")
			t.ok(unix.Ftruncate(fd, 3))
			eq(t, "after truncation", t.pread(other, 100, 0), bytesOf(3))
			t.ok(unix.Fchmod(fd, 0o600))
			eq(t, "mode", t.fstat(other).Mode, uint32(unix.S_IFREG|0o600))
			t.ok(unix.Fsync(fd))
		}},
		{name: "unlink/never-read-while-open", tree: "f f *10000", run: func(t *fsT) {
			fd := t.open("f", rdonly)
			t.ok(unix.Unlink("f"))
			eq(t, "contents", t.rest(fd), bytesOf(10000))
		}},
		{name: "unlink/made-again-while-open", tree: "f f old", run: func(t *fsT) {
			fd := t.open("f", rdwr)
			t.ok(unix.Unlink("f"))
			t.put("f", "new one")
			t.pwrite(fd, "O", 0)
			t.has("f", "new one")
			eq(t, "old one", t.pread(fd, 10, 0), "Old")
			if t.fstat(fd).Ino == t.stat("f").Ino {
				t.fail("both are one inode")
			}
		}},
		{name: "unlink/open-by-proc", tree: "f f old", run: func(t *fsT) {
			fd := t.open("f", rdonly)
			t.ok(unix.Unlink("f"))
			t.has(fmt.Sprintf("/proc/self/fd/%d", fd), "old")
		}},
		{name: "unlink/one-name-of-two", tree: "f a data; h b a", run: func(t *fsT) {
			t.nlink("a", 2)
			before := t.stat("b").Ctim
			t.tick()
			t.ok(unix.Unlink("a"))
			t.gone("a")
			t.nlink("b", 1)
			t.has("b", "data")
			if t.stat("b").Ctim == before {
				t.fail("ctime did not change")
			}
		}},
		{name: "unlink/and-make-again", tree: "f f old; d d; f d/g x", run: func(t *fsT) {
			for i := range 5 {
				t.ok(unix.Unlink("f"))
				t.gone("f")
				t.put("f", fmt.Sprint(i))
				t.has("f", fmt.Sprint(i))
			}
			t.lists(".", "d f")
			t.hasMode("f", unix.S_IFREG|0o644)
			t.nlink("f", 1)
		}},
		{name: "unlink/as-other-type", tree: "f f old; d d; f d/g x", run: func(t *fsT) {
			t.ok(unix.Unlink("f"))
			t.ok(unix.Mkdir("f", 0o755))
			t.lists("f", "")
			t.put("f/in", "x")
			t.ok(unix.Unlink("d/g"))
			t.ok(unix.Rmdir("d"))
			t.ok(unix.Symlink("f/in", "d"))
			t.has("d", "x")
			t.ok(unix.Unlink("d"))
			t.put("d", "file")
			t.has("d", "file")
			t.lists(".", "d f")
		}},
		{name: "unlink/fifo-and-link", tree: "p p; l l p", run: func(t *fsT) {
			t.ok(unix.Unlink("p"))
			t.ok(unix.Unlink("l"))
			t.lists(".", "")
		}},
	}
	return append(cases, fsFailures("unlink", fsDirTree,
		failure{"directory", unix.EISDIR, unlink("empty")},
		failure{"directory-with-slash", unix.EISDIR, unlink("empty/")},
		failure{"missing", unix.ENOENT, unlink("nothing")},
		failure{"empty-path", unix.ENOENT, unlink("")},
		failure{"file-with-slash", unix.ENOTDIR, unlink("f/")},
		failure{"link-with-slash", unix.ENOTDIR, unlink("dirlink/")},
		failure{"file-as-parent", unix.ENOTDIR, unlink("f/x")},
		failure{"missing-parent", unix.ENOENT, unlink("no/x")},
		failure{"loop-as-parent", unix.ELOOP, unlink("loop/x")},
		failure{"dot", unix.EISDIR, unlink("d/.")},
		failure{"dot-dot", unix.EISDIR, unlink("d/..")},
		failure{"name-256", unix.ENAMETOOLONG, unlink(name255 + "n")},
		failure{"invalid-flag", unix.EINVAL, func() error { return unix.Unlinkat(unix.AT_FDCWD, "f", 0x8000) }},
	)...)
}
