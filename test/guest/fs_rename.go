package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

const fsRenameTree = "f f hello; f g *9000; d d; f d/f deep; d d/sub; f d/sub/x x; d e; d empty; l link f; l dirlink d; l dangling nothing; h f2 f; p fifo"

func rename2(from, to string, flags uint) error {
	return unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flags)
}

func fsRenameCases() []fsCase {
	return []fsCase{
		{name: "rename/plain", tree: fsRenameTree, run: func(t *fsT) {
			before := t.stat("g")
			t.ok(unix.Rename("g", "new"))
			t.gone("g")
			t.has("new", bytesOf(9000))
			eq(t, "inode", t.stat("new").Ino, before.Ino)
			eq(t, "mtime", t.stat("new").Mtim, before.Mtim)
			t.lists(".", "d dangling dirlink e empty f f2 fifo link new")
		}},
		{name: "rename/to-other-directory", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Rename("g", "d/sub/g"))
			t.lists("d/sub", "g x")
			t.has("d/sub/g", bytesOf(9000))
			t.ok(unix.Rename("d/sub/g", "e/g"))
			t.ok(unix.Rename("e/g", "g"))
			t.lists("d/sub", "x")
			t.lists("e", "")
			t.has("g", bytesOf(9000))
		}},
		{name: "rename/parents-change", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Rename("d/f", "e/f"))
			for _, dir := range []string{"d", "e"} {
				if t.stat(dir).Mtim == fsTime {
					t.fail("mtime of %s did not change", dir)
				}
			}
			eq(t, "mtime of the file", t.stat("e/f").Mtim, fsTime)
		}},
		{name: "rename/over-file", tree: fsRenameTree, run: func(t *fsT) {
			old := t.open("g", rdwr)
			moved := t.stat("d/f")
			t.ok(unix.Rename("d/f", "g"))
			t.has("g", "deep")
			eq(t, "inode", t.stat("g").Ino, moved.Ino)
			eq(t, "nlink of the replaced file", uint64(t.fstat(old).Nlink), 0)
			eq(t, "the replaced file", t.pread(old, 9000, 0), bytesOf(9000))
			t.pwrite(old, "X", 0)
			t.has("g", "deep")
			t.lists("d", "sub")
		}},
		{name: "rename/over-file-again-and-again", tree: fsRenameTree, run: func(t *fsT) {
			for i := range 30 { // how editors and package managers save
				t.put("tmp", fmt.Sprint(i))
				t.ok(unix.Rename("tmp", "g"))
				t.has("g", fmt.Sprint(i))
			}
			t.gone("tmp")
			t.nlink("g", 1)
		}},
		{name: "rename/over-one-name-of-two", tree: fsRenameTree, run: func(t *fsT) {
			t.nlink("f2", 2)
			t.ok(unix.Rename("g", "f"))
			t.nlink("f2", 1)
			t.has("f2", "hello")
			t.nlink("f", 1)
		}},
		{name: "rename/same-inode", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Rename("f", "f2"))
			t.intact()
			t.nlink("f", 2)
			t.ok(unix.Rename("f", "f"))
			t.ok(unix.Rename("d", "d"))
			t.ok(unix.Rename("d/", "./d"))
			t.intact()
		}},
		{name: "rename/over-link", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Rename("g", "link"))
			t.hasMode("link", unix.S_IFREG|0o644)
			t.has("f", "hello")
			t.ok(unix.Rename("link", "dirlink"))
			t.has("dirlink", bytesOf(9000))
			t.has("d/f", "deep")
			t.ok(unix.Rename("dangling", "dirlink"))
			t.gone("dangling", "nothing")
		}},
		{name: "rename/fifo", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Rename("fifo", "e/fifo"))
			t.hasMode("e/fifo", unix.S_IFIFO|0o644)
			t.ok(unix.Rename("e/fifo", "g"))
			t.hasMode("g", unix.S_IFIFO|0o644)
		}},
		{name: "rename/directory", tree: fsRenameTree, run: func(t *fsT) {
			before := t.stat("d")
			t.ok(unix.Rename("d", "new"))
			t.gone("d", "d/f")
			t.lists("new", "f sub")
			t.has("new/f", "deep")
			t.has("new/sub/x", "x")
			eq(t, "inode", t.stat("new").Ino, before.Ino)
			eq(t, "mtime", t.stat("new").Mtim, fsTime)
			t.is(try("dirlink/f", rdonly), unix.ENOENT)
			t.put("new/sub/y", "y")
			t.lists("new/sub", "x y")
		}},
		{name: "rename/directory-with-slash", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Rename("d/", "new/"))
			t.has("new/f", "deep")
			t.gone("d")
		}},
		{name: "rename/directory-to-other", tree: fsRenameTree, run: func(t *fsT) {
			from, to := uint64(t.stat("d").Nlink), uint64(t.stat("e").Nlink)
			sub := t.open("d/sub", rdonly|unix.O_DIRECTORY)
			t.ok(unix.Rename("d/sub", "e/sub"))
			t.nlink("d", from-1)
			t.nlink("e", to+1)
			eq(t, "parent", t.stat("e/sub/..").Ino, t.stat("e").Ino)
			var st unix.Stat_t
			t.ok(unix.Fstatat(sub, "..", &st, 0))
			eq(t, "parent of the open directory", st.Ino, t.stat("e").Ino)
			for _, e := range t.entries(sub, 1024) {
				if e.name == ".." {
					eq(t, "inode of entry ..", e.ino, t.stat("e").Ino)
				}
			}
			t.lists("e/sub", "x")
			t.lists("d", "f")
		}},
		{name: "rename/directory-while-inside", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Chdir("d/sub"))
			t.ok(unix.Rename("../../d", "../../e/d"))
			t.has("x", "x")
			t.has("../f", "deep")
			t.has("../../../g", bytesOf(9000))
			b := make([]byte, 4096)
			n, err := unix.Getcwd(b)
			t.ok(err)
			if got := cstring(b[:n]); !strings.HasSuffix(got, "/e/d/sub") {
				t.fail("working directory is %q", got)
			}
			t.ok(unix.Chdir(t.dir))
		}},
		{name: "rename/directory-with-open-file", tree: fsRenameTree, run: func(t *fsT) {
			fd := t.open("d/sub/x", rdwr)
			t.ok(unix.Rename("d", "new"))
			t.pwrite(fd, "Y", 0)
			t.has("new/sub/x", "Y")
			eq(t, "inode", t.fstat(fd).Ino, t.stat("new/sub/x").Ino)
		}},
		{name: "rename/directory-over-empty", tree: fsRenameTree, run: func(t *fsT) {
			old := t.open("empty", rdonly|unix.O_DIRECTORY)
			before := uint64(t.stat(".").Nlink)
			t.ok(unix.Rename("d", "empty"))
			t.lists("empty", "f sub")
			t.has("empty/sub/x", "x")
			t.gone("d")
			t.nlink(".", before-1)
			_, err := unix.Openat(old, "f", rdonly, 0)
			t.is(err, unix.ENOENT)
			t.is(unix.Mkdirat(old, "x", 0o755), unix.ENOENT)
		}},
		{name: "rename/directory-over-emptied", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Unlink("d/f"))
			t.ok(unix.Unlink("d/sub/x"))
			t.ok(unix.Rmdir("d/sub"))
			t.put("e/new", "1")
			t.ok(unix.Rename("e", "d"))
			t.lists("d", "new")
			t.gone("e")
		}},
		{name: "rename/and-make-again", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Rename("d", "new"))
			t.ok(unix.Mkdir("d", 0o700))
			t.lists("d", "")
			t.put("d/f", "other")
			t.has("new/f", "deep")
			t.ok(unix.Rename("g", "g2"))
			t.put("g", "other")
			t.has("g2", bytesOf(9000))
			t.ok(unix.Rename("d", "e/d"))
			t.ok(unix.Rename("new", "d"))
			t.has("d/f", "deep")
			t.has("e/d/f", "other")
		}},
		{name: "rename/there-and-back", tree: fsRenameTree, run: func(t *fsT) {
			for i := range 10 {
				t.ok(unix.Rename("d", fmt.Sprint("n", i)))
				t.ok(unix.Rename(fmt.Sprint("n", i), "d"))
				t.ok(unix.Rename("d/sub/x", "e/x"))
				t.ok(unix.Rename("e/x", "d/sub/x"))
			}
			t.has("d/sub/x", "x")
			t.has("d/f", "deep")
			t.lists(".", "d dangling dirlink e empty f f2 fifo g link")
			t.lists("e", "")
		}},
		{name: "rename/nested-moves", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Rename("d/sub", "e/s"))
			t.ok(unix.Rename("e", "d/e"))
			t.ok(unix.Rename("d", "empty/d"))
			t.has("empty/d/e/s/x", "x")
			t.has("empty/d/f", "deep")
			t.ok(unix.Rename("empty/d/e/s", "s"))
			t.has("s/x", "x")
			t.lists("empty/d/e", "")
			t.lists("empty/d", "e f")
		}},
		{name: "rename/onto-deleted-name", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Unlink("f"))
			t.ok(unix.Rename("g", "f"))
			t.has("f", bytesOf(9000))
			t.ok(unix.Rmdir("empty"))
			t.ok(unix.Rename("d", "empty"))
			t.lists("empty", "f sub")
			t.gone("g", "d")
		}},
		{name: "rename/changed-then-moved", tree: fsRenameTree, run: func(t *fsT) {
			t.pwrite(t.open("g", wronly), "XYZ", 5000)
			want := bytesOf(5000) + "XYZ" + bytesOf(9000)[5003:]
			t.ok(unix.Rename("g", "d/g"))
			t.has("d/g", want)
			t.ok(unix.Rename("d", "n"))
			t.has("n/g", want)
			t.pwrite(t.open("n/g", wronly), "A", 0)
			t.has("n/g", "A"+want[1:])
		}},
		{name: "rename/ctime", tree: fsRenameTree, run: func(t *fsT) {
			before := t.stat("g").Ctim
			t.tick()
			t.ok(unix.Rename("g", "new"))
			if t.stat("new").Ctim == before { // POSIX leaves it open, Linux does
				t.fail("ctime did not change")
			}
		}},
		{name: "rename/noreplace", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(rename2("g", "new", unix.RENAME_NOREPLACE))
			t.has("new", bytesOf(9000))
			t.ok(rename2("d", "e/d", unix.RENAME_NOREPLACE))
			t.has("e/d/f", "deep")
			t.gone("g", "d")
		}},
		{name: "rename/name-255", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(unix.Rename("g", name255))
			t.ok(unix.Rename(name255, "d/"+name255))
			t.has("d/"+name255, bytesOf(9000))
		}},
		{name: "rename/by-descriptors", tree: fsRenameTree, run: func(t *fsT) {
			d, e := t.open("d", rdonly|unix.O_DIRECTORY), t.open("e", unix.O_PATH)
			t.ok(unix.Renameat(d, "f", e, "f"))
			t.lists("d", "sub")
			t.has("e/f", "deep")
		}},
	}
}

func fsExchangeCases() []fsCase {
	exchange := func(a, b string) error { return rename2(a, b, unix.RENAME_EXCHANGE) }
	cases := []fsCase{
		{name: "exchange/files", tree: fsRenameTree, run: func(t *fsT) {
			f, g := t.stat("d/f"), t.stat("g")
			t.ok(exchange("d/f", "g"))
			t.has("g", "deep")
			t.has("d/f", bytesOf(9000))
			eq(t, "inode of the one", t.stat("g").Ino, f.Ino)
			eq(t, "inode of the other", t.stat("d/f").Ino, g.Ino)
			t.ok(exchange("g", "d/f"))
			t.has("d/f", "deep")
			t.has("g", bytesOf(9000))
		}},
		{name: "exchange/directories", tree: fsRenameTree, run: func(t *fsT) {
			t.put("e/in-e", "")
			t.ok(exchange("d", "e"))
			t.lists("e", "f sub")
			t.lists("d", "in-e")
			t.has("e/sub/x", "x")
			t.ok(exchange("e/sub", "d"))
			t.lists("d", "x")
			t.lists("e/sub", "in-e")
			eq(t, "parent of the one", t.stat("d/..").Ino, t.stat(".").Ino)
			eq(t, "parent of the other", t.stat("e/sub/..").Ino, t.stat("e").Ino)
		}},
		{name: "exchange/file-and-directory", tree: fsRenameTree, run: func(t *fsT) {
			top, d := uint64(t.stat(".").Nlink), uint64(t.stat("d").Nlink)
			t.ok(exchange("d/f", "e"))
			t.has("e", "deep")
			t.lists("d/f", "")
			t.nlink(".", top-1)
			t.nlink("d", d+1)
			eq(t, "parent", t.stat("d/f/..").Ino, t.stat("d").Ino)
		}},
		{name: "exchange/with-link", tree: fsRenameTree, run: func(t *fsT) {
			t.ok(exchange("dirlink", "g"))
			t.has("dirlink", bytesOf(9000))
			t.has("g/f", "deep")
		}},
		{name: "exchange/same-inode", tree: fsRenameTree, run: func(t *fsT) {
			before := t.stat(".")
			t.tick()
			t.ok(exchange("f", "f2"))
			after := t.stat(".")
			eq(t, "mtime of the directory", after.Mtim, before.Mtim)
			t.ok(exchange("d", "d"))
			t.has("f", "hello")
			t.nlink("f2", 2)
			t.lists("d", "f sub")
		}},
		{name: "exchange/open", tree: fsRenameTree, run: func(t *fsT) {
			f, g := t.open("d/f", rdwr), t.open("g", rdwr)
			t.ok(exchange("d/f", "g"))
			t.pwrite(f, "D", 0)
			t.pwrite(g, "G", 0)
			t.has("g", "Deep")
			t.has("d/f", "G"+bytesOf(9000)[1:])
			eq(t, "nlink", uint64(t.fstat(f).Nlink), 1)
		}},
		{name: "exchange/new-and-old", tree: fsRenameTree, run: func(t *fsT) {
			t.put("new", "new")
			t.ok(exchange("new", "g"))
			t.has("g", "new")
			t.has("new", bytesOf(9000))
			t.ok(unix.Mkdir("newdir", 0o755))
			t.put("newdir/n", "n")
			t.ok(exchange("newdir", "d"))
			t.lists("d", "n")
			t.lists("newdir", "f sub")
			t.ok(unix.Unlink("d/n"))
			t.ok(unix.Rmdir("d"))
			t.has("newdir/sub/x", "x")
		}},
	}
	return append(cases, fsFailures("exchange", fsRenameTree,
		failure{"missing-target", unix.ENOENT, func() error { return exchange("f", "nothing") }},
		failure{"missing-source", unix.ENOENT, func() error { return exchange("nothing", "f") }},
		failure{"with-child", unix.EINVAL, func() error { return exchange("d", "d/sub") }},
		failure{"with-parent", unix.EINVAL, func() error { return exchange("d/sub", "d") }},
		failure{"with-grandchild-file", unix.EINVAL, func() error { return exchange("d", "d/sub/x") }},
		failure{"and-noreplace", unix.EINVAL, func() error { return rename2("f", "g", unix.RENAME_EXCHANGE|unix.RENAME_NOREPLACE) }},
	)...)
}

func fsRenameErrorCases() []fsCase {
	rename := func(from, to string) func() error { return func() error { return unix.Rename(from, to) } }
	return fsFailures("rename", fsRenameTree+"; l loop loop",
		failure{"missing", unix.ENOENT, rename("nothing", "new")},
		failure{"empty-source", unix.ENOENT, rename("", "new")},
		failure{"empty-target", unix.ENOENT, rename("f", "")},
		failure{"missing-parent", unix.ENOENT, rename("f", "no/new")},
		failure{"over-full-directory", unix.ENOTEMPTY, rename("e", "d")},
		failure{"directory-over-file", unix.ENOTDIR, rename("e", "f")},
		failure{"directory-over-link", unix.ENOTDIR, rename("e", "dirlink")},
		failure{"file-over-directory", unix.EISDIR, rename("f", "e")},
		failure{"link-over-directory", unix.EISDIR, rename("dirlink", "e")},
		failure{"file-over-full-directory", unix.EISDIR, rename("f", "d")},
		failure{"into-itself", unix.EINVAL, rename("d", "d/new")},
		failure{"into-own-child", unix.EINVAL, rename("d", "d/sub/new")},
		failure{"over-own-child", unix.EINVAL, rename("d", "d/sub")},
		failure{"over-own-parent", unix.ENOTEMPTY, rename("d/sub", "d")},
		failure{"file-over-own-parent", unix.ENOTEMPTY, rename("d/f", "d")},
		failure{"dot", unix.EBUSY, rename("d/.", "new")},
		failure{"dot-dot", unix.EBUSY, rename("d/..", "new")},
		failure{"to-dot", unix.EBUSY, rename("e", "d/.")},
		failure{"to-dot-dot", unix.EBUSY, rename("e", "d/..")},
		failure{"file-with-slash", unix.ENOTDIR, rename("f/", "new")},
		failure{"file-to-slash", unix.ENOTDIR, rename("f", "new/")},
		failure{"link-with-slash", unix.ENOTDIR, rename("dirlink/", "new")},
		failure{"file-as-parent", unix.ENOTDIR, rename("f/x", "new")},
		failure{"to-file-as-parent", unix.ENOTDIR, rename("e", "f/new")},
		failure{"loop-as-parent", unix.ELOOP, rename("loop/x", "new")},
		failure{"name-256", unix.ENAMETOOLONG, rename("f", name255+"n")},
		failure{"from-name-256", unix.ENAMETOOLONG, rename(name255+"n", "new")},
		failure{"to-other-file-system", unix.EXDEV, rename("f", "/dev/no-such-name")},
		failure{"from-other-file-system", unix.EXDEV, rename("/dev/null", "new")},
		failure{"noreplace-file", unix.EEXIST, func() error { return rename2("f", "g", unix.RENAME_NOREPLACE) }},
		failure{"noreplace-directory", unix.EEXIST, func() error { return rename2("d", "empty", unix.RENAME_NOREPLACE) }},
		failure{"noreplace-link", unix.EEXIST, func() error { return rename2("f", "dangling", unix.RENAME_NOREPLACE) }},
		failure{"noreplace-same-inode", unix.EEXIST, func() error { return rename2("f", "f2", unix.RENAME_NOREPLACE) }},
		failure{"invalid-flag", unix.EINVAL, func() error { return rename2("f", "new", 1<<7) }},
	)
}
