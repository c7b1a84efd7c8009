package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	rdonly = unix.O_RDONLY
	wronly = unix.O_WRONLY
	rdwr   = unix.O_RDWR
	creat  = unix.O_CREAT
	excl   = unix.O_EXCL
	trunc  = unix.O_TRUNC
)

// name255 is the longest name.
var name255 = strings.Repeat("n", 255)

func fsOpenCases() []fsCase {
	const tree = "f f hello; f:600 secret x; d d; f d/f deep; l link f; l dirlink d; l dangling nothing; p fifo"
	cases := []fsCase{
		{name: "open/creat", run: func(t *fsT) {
			fd := t.open("new", rdwr|creat|excl, 0o640)
			t.hasMode("new", unix.S_IFREG|0o640)
			t.size("new", 0)
			t.nlink("new", 1)
			t.owner("new", 0, 0)
			t.write(fd, "abc")
			t.has("new", "abc")
			t.lists(".", "new")
		}},
		{name: "open/creat-existing", tree: tree, run: func(t *fsT) {
			t.ok(try("f", rdwr|creat, 0o600))
			t.intact()
		}},
		{name: "open/creat-through-dangling-link", tree: tree, run: func(t *fsT) {
			t.ok(try("dangling", wronly|creat))
			t.hasMode("nothing", unix.S_IFREG|0o644)
			t.hasMode("dangling", unix.S_IFLNK|0o777)
		}},
		{name: "open/creat-read-only-mode", run: func(t *fsT) {
			fd := t.open("new", rdwr|creat|excl, 0o400) // the mode is for later opens
			t.write(fd, "abc")
			t.has("new", "abc")
		}},
		{name: "open/creat-mode-bits", run: func(t *fsT) {
			t.open("new", rdwr|creat, 0o7751)
			t.hasMode("new", unix.S_IFREG|0o7751)
		}},
		{name: "open/trunc", tree: tree, run: func(t *fsT) {
			t.open("f", wronly|trunc)
			t.size("f", 0)
			t.has("f", "")
			t.hasMode("f", unix.S_IFREG|0o644)
			if t.stat("f").Mtim == fsTime {
				t.fail("mtime did not change")
			}
		}},
		{name: "open/trunc-creat", tree: tree, run: func(t *fsT) {
			fd := t.open("f", wronly|trunc|creat, 0o777)
			t.write(fd, "he")
			t.has("f", "he")
			t.hasMode("f", unix.S_IFREG|0o644)
		}},
		{name: "open/trunc-seen-by-others", tree: tree, run: func(t *fsT) {
			other := t.open("f", rdwr)
			eq(t, "before", t.pread(other, 10, 0), "hello")
			t.ok(try("f", wronly|trunc))
			eq(t, "after", t.pread(other, 10, 0), "")
			eq(t, "size", t.fstat(other).Size, int64(0))
			t.pwrite(other, "x", 2)
			t.has("f", "\x00\x00x")
		}},
		{name: "open/append", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr|unix.O_APPEND)
			t.seek(fd, 0, unix.SEEK_SET)
			t.write(fd, " one")
			eq(t, "offset", t.seek(fd, 0, unix.SEEK_CUR), int64(9))
			t.seek(fd, 1, unix.SEEK_SET)
			t.write(fd, " two")
			t.has("f", "hello one two")
			t.pwrite(fd, "!", 0) // Linux appends, contrary to POSIX
			t.has("f", "hello one two!")
		}},
		{name: "open/append-after-truncate", tree: tree, run: func(t *fsT) {
			fd := t.open("f", wronly|unix.O_APPEND)
			t.write(fd, " one")
			t.ok(unix.Truncate("f", 2))
			t.write(fd, " two")
			t.has("f", "he two")
		}},
		{name: "open/append-of-two", tree: tree, run: func(t *fsT) {
			a, b := t.open("f", wronly|unix.O_APPEND), t.open("link", wronly|unix.O_APPEND)
			want := "hello"
			for i := range 20 {
				t.write(a, fmt.Sprint("a", i))
				t.write(b, fmt.Sprint("b", i))
				want += fmt.Sprintf("a%db%d", i, i)
			}
			t.has("f", want)
		}},
		{name: "open/append-by-fcntl", tree: tree, run: func(t *fsT) {
			fd := t.open("f", wronly)
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_APPEND)
			t.ok(err)
			t.write(fd, "!")
			t.has("f", "hello!")
		}},
		{name: "open/directory", tree: tree, run: func(t *fsT) {
			fd := t.open("d", rdonly|unix.O_DIRECTORY)
			_, err := unix.Read(fd, make([]byte, 10))
			t.is(err, unix.EISDIR)
			_, err = unix.Write(fd, []byte("x"))
			t.is(err, unix.EBADF)
			t.ok(try("dirlink", rdonly|unix.O_DIRECTORY))
			t.ok(try("d/", rdonly))
			t.ok(unix.Fsync(fd))
		}},
		{name: "open/nofollow", tree: tree, run: func(t *fsT) {
			t.ok(try("f", rdonly|unix.O_NOFOLLOW))
			t.ok(try("dirlink/f", rdonly|unix.O_NOFOLLOW)) // the last component only
		}},
		{name: "open/path", tree: tree, run: func(t *fsT) {
			fd := t.open("f", unix.O_PATH)
			eq(t, "size", t.fstat(fd).Size, int64(5))
			_, err := unix.Read(fd, make([]byte, 1))
			t.is(err, unix.EBADF)
			_, err = unix.Write(fd, []byte("x"))
			t.is(err, unix.EBADF)
			t.is(unix.Fchmod(fd, 0o600), unix.EBADF)
			t.is(unix.Ftruncate(fd, 0), unix.EBADF, unix.EINVAL)
			t.has(fmt.Sprintf("/proc/self/fd/%d", fd), "hello")
			t.intact()
		}},
		{name: "open/path-of-link", tree: tree, run: func(t *fsT) {
			fd := t.open("link", unix.O_PATH|unix.O_NOFOLLOW)
			eq(t, "type", t.fstat(fd).Mode&unix.S_IFMT, uint32(unix.S_IFLNK))
			b := make([]byte, 10)
			n, err := unix.Readlinkat(fd, "", b)
			t.ok(err)
			eq(t, "target", string(b[:n]), "f")
		}},
		{name: "open/path-of-directory", tree: tree, run: func(t *fsT) {
			dir := t.open("d", unix.O_PATH|unix.O_DIRECTORY)
			fd, err := unix.Openat(dir, "f", rdonly|unix.O_CLOEXEC, 0)
			t.ok(err)
			eq(t, "contents", t.rest(fd), "deep")
			t.close(fd)
			t.ok(unix.Rename("d", "e")) // it is the directory, not its name
			t.ok(unix.Mkdirat(dir, "sub", 0o755))
			t.lists("e", "f sub")
		}},
		{name: "open/path-needs-no-permission", tree: tree, run: func(t *fsT) {
			t.user(func() {
				t.ok(try("secret", unix.O_PATH))
				t.is(try("secret", rdonly), unix.EACCES)
			})
		}},
		{name: "open/at-directory", tree: tree, run: func(t *fsT) {
			dir := t.open("d", rdonly|unix.O_DIRECTORY)
			fd, err := unix.Openat(dir, "g", wronly|creat|unix.O_CLOEXEC, 0o644)
			t.ok(err)
			t.close(fd)
			t.lists("d", "f g")
			_, err = unix.Openat(t.open("f", rdonly), "x", rdonly, 0)
			t.is(err, unix.ENOTDIR)
			_, err = unix.Openat(9999, "x", rdonly, 0)
			t.is(err, unix.EBADF)
		}},
		{name: "open/access-modes", tree: tree, run: func(t *fsT) {
			_, err := unix.Write(t.open("f", rdonly), []byte("x"))
			t.is(err, unix.EBADF)
			_, err = unix.Read(t.open("f", wronly), make([]byte, 1))
			t.is(err, unix.EBADF)
			t.is(unix.Ftruncate(t.open("f", rdonly), 0), unix.EINVAL, unix.EBADF)
			t.intact()
		}},
		{name: "open/offsets", tree: tree, run: func(t *fsT) {
			a, b := t.open("f", rdonly), t.open("f", rdonly)
			c, err := unix.Dup(a)
			t.ok(err)
			defer unix.Close(c)
			one := make([]byte, 2)
			for i, fd := range []int{a, c, b} { // a and c share theirs
				_, err := unix.Read(fd, one)
				t.ok(err)
				eq(t, "bytes", string(one), []string{"he", "ll", "he"}[i])
			}
		}},
		{name: "open/seen-at-once", tree: tree, run: func(t *fsT) {
			// One that was opened before anybody wrote must see what is written.
			early := t.open("f", rdonly)
			eq(t, "before", t.pread(early, 10, 0), "hello")
			t.pwrite(t.open("f", wronly), "J", 0)
			eq(t, "after", t.pread(early, 10, 0), "Jello")
			eq(t, "inode", t.fstat(early).Ino, t.stat("f").Ino)
			eq(t, "mtime", t.fstat(early).Mtim, t.stat("f").Mtim)
		}},
		{name: "open/inode-stays", tree: tree, run: func(t *fsT) {
			before, dir := t.stat("f"), t.stat("d")
			t.pwrite(t.open("f", wronly), "x", 0)
			t.ok(unix.Chmod("f", 0o600))
			t.put("d/new", "")
			t.ok(unix.Chmod("d", 0o700))
			eq(t, "inode of file", t.stat("f").Ino, before.Ino)
			eq(t, "inode of directory", t.stat("d").Ino, dir.Ino)
			eq(t, "device", t.stat("f").Dev, before.Dev)
			eq(t, "device of directory", t.stat("d").Dev, before.Dev)
		}},
		{name: "open/name-255", run: func(t *fsT) {
			t.put(name255, "long")
			t.has(name255, "long")
			t.lists(".", name255)
			t.ok(unix.Unlink(name255))
			t.gone(name255)
		}},
		{name: "open/link-chain-40", tree: "f c0 end", run: func(t *fsT) {
			for i := range 41 {
				t.ok(unix.Symlink(fmt.Sprint("c", i), fmt.Sprint("c", i+1)))
			}
			t.has("c40", "end")
			t.is(try("c41", rdonly), unix.ELOOP)
		}},
		{name: "open/noatime", tree: tree + "; f@1000.1001 mine x", run: func(t *fsT) {
			t.user(func() {
				t.ok(try("mine", rdonly|unix.O_NOATIME))
				t.is(try("f", rdonly|unix.O_NOATIME), unix.EPERM)
			})
		}},
	}
	cases = append(cases, fsFailures("open", tree,
		failure{"excl-existing", unix.EEXIST, func() error { return try("f", rdwr|creat|excl) }},
		failure{"excl-link", unix.EEXIST, func() error { return try("link", rdwr|creat|excl) }},
		failure{"excl-dangling-link", unix.EEXIST, func() error { return try("dangling", rdwr|creat|excl) }},
		failure{"excl-directory", unix.EEXIST, func() error { return try("d", rdonly|creat|excl) }},
		failure{"missing", unix.ENOENT, func() error { return try("nothing", rdonly) }},
		failure{"empty-path", unix.ENOENT, func() error { return try("", rdonly) }},
		failure{"through-dangling-link", unix.ENOENT, func() error { return try("dangling", rdonly) }},
		failure{"missing-parent", unix.ENOENT, func() error { return try("no/f", rdwr|creat) }},
		failure{"file-as-parent", unix.ENOTDIR, func() error { return try("f/x", rdonly) }},
		failure{"creat-file-as-parent", unix.ENOTDIR, func() error { return try("f/x", rdwr|creat) }},
		failure{"file-with-slash", unix.ENOTDIR, func() error { return try("f/", rdonly) }},
		failure{"link-to-file-with-slash", unix.ENOTDIR, func() error { return try("link/", rdonly) }},
		failure{"creat-with-slash", unix.EISDIR, func() error { return try("new/", wronly|creat) }},
		failure{"write-directory", unix.EISDIR, func() error { return try("d", wronly) }},
		failure{"read-write-directory", unix.EISDIR, func() error { return try("d", rdwr) }},
		failure{"creat-directory", unix.EISDIR, func() error { return try("d", rdonly|creat) }},
		failure{"trunc-directory", unix.EISDIR, func() error { return try("d", rdonly|trunc) }},
		failure{"write-link-to-directory", unix.EISDIR, func() error { return try("dirlink", wronly) }},
		failure{"directory-of-file", unix.ENOTDIR, func() error { return try("f", rdonly|unix.O_DIRECTORY) }},
		failure{"directory-of-link-to-file", unix.ENOTDIR, func() error { return try("link", rdonly|unix.O_DIRECTORY) }},
		failure{"directory-missing", unix.ENOENT, func() error { return try("nothing", rdonly|unix.O_DIRECTORY) }},
		failure{"nofollow-link", unix.ELOOP, func() error { return try("link", rdonly|unix.O_NOFOLLOW) }},
		failure{"nofollow-dangling-link", unix.ELOOP, func() error { return try("dangling", rdwr|unix.O_NOFOLLOW) }},
		failure{"nofollow-directory-link", unix.ENOTDIR, func() error { return try("dirlink", rdonly|unix.O_NOFOLLOW|unix.O_DIRECTORY) }},
		failure{"fifo-without-reader", unix.ENXIO, func() error { return try("fifo", wronly|unix.O_NONBLOCK) }},
		failure{"name-256", unix.ENAMETOOLONG, func() error { return try(name255+"n", rdonly) }},
		failure{"creat-name-256", unix.ENAMETOOLONG, func() error { return try(name255+"n", rdwr|creat) }},
		failure{"parent-name-256", unix.ENAMETOOLONG, func() error { return try(name255+"n/x", rdwr|creat) }},
		failure{"path-4096", unix.ENAMETOOLONG, func() error { return try(strings.Repeat("d/../", 819)+"f", rdonly) }},
	)...)
	cases = append(cases,
		fsCase{name: "open/path-4095", tree: tree, run: func(t *fsT) {
			t.ok(try(strings.Repeat("d/../", 818)+"././f", rdonly)) // 4095 bytes
		}},
		fsCase{name: "open/link-loop", tree: "l a b; l b a; l self self", run: func(t *fsT) {
			for _, name := range []string{"a", "self", "a/x", "self/"} {
				t.is(try(name, rdonly), unix.ELOOP)
			}
			t.is(try("a", rdwr|creat), unix.ELOOP)
			t.intact()
		}},
	)
	return cases
}

// seek is lseek(2).
func (t *fsT) seek(fd int, to int64, whence int) int64 {
	at, err := unix.Seek(fd, to, whence)
	t.ok(err)
	return at
}

func fsTmpfileCases() []fsCase {
	give := func(t *fsT, fd int, name string) error {
		return unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", fd), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
	}
	const tree = "d d; f f x"
	cases := []fsCase{
		{name: "tmpfile/nameless", tree: tree, run: func(t *fsT) {
			fd := t.open("d", rdwr|unix.O_TMPFILE, 0o640)
			t.write(fd, "abc")
			st := t.fstat(fd)
			eq(t, "nlink", uint64(st.Nlink), 0)
			eq(t, "mode", st.Mode, uint32(unix.S_IFREG|0o640))
			eq(t, "size", st.Size, int64(3))
			eq(t, "contents", t.pread(fd, 10, 0), "abc")
			t.lists("d", "")
		}},
		{name: "tmpfile/linked", tree: tree, run: func(t *fsT) {
			fd := t.open("d", rdwr|unix.O_TMPFILE, 0o640)
			t.write(fd, bytesOf(3*page))
			t.ok(give(t, fd, "named"))
			eq(t, "nlink", uint64(t.fstat(fd).Nlink), 1)
			t.has("named", bytesOf(3*page))
			t.hasMode("named", unix.S_IFREG|0o640)
			t.pwrite(fd, "X", 0)
			t.has("named", "X"+bytesOf(3 * page)[1:])
			t.is(give(t, fd, "f"), unix.EEXIST)
			t.ok(give(t, fd, "d/twice"))
			t.nlink("named", 2)
		}},
		{name: "tmpfile/linked-by-descriptor", tree: tree, run: func(t *fsT) {
			fd := t.open(".", wronly|unix.O_TMPFILE)
			t.write(fd, "abc")
			t.ok(unix.Linkat(fd, "", unix.AT_FDCWD, "named", unix.AT_EMPTY_PATH))
			t.has("named", "abc")
		}},
		{name: "tmpfile/excl-is-never-linked", tree: tree, run: func(t *fsT) {
			fd := t.open("d", rdwr|unix.O_TMPFILE|excl)
			t.is(give(t, fd, "named"), unix.ENOENT)
			t.gone("named")
		}},
		{name: "tmpfile/group-of-directory", tree: "d:2775@0.1002 d", run: func(t *fsT) {
			eq(t, "group", t.fstat(t.open("d", rdwr|unix.O_TMPFILE)).Gid, otherGroup)
		}},
	}
	return append(cases, append(fsFailures("tmpfile", tree,
		failure{"read-only", unix.EINVAL, func() error { return try("d", rdonly|unix.O_TMPFILE) }},
		failure{"file", unix.ENOTDIR, func() error { return try("f", rdwr|unix.O_TMPFILE) }},
		failure{"missing", unix.ENOENT, func() error { return try("nothing", rdwr|unix.O_TMPFILE) }},
	), fsUserFailures("tmpfile", tree,
		failure{"no-permission", unix.EACCES, func() error { return try("d", rdwr|unix.O_TMPFILE) }},
	)...)...)
}
