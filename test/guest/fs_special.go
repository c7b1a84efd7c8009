package main

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func fsFifoCases() []fsCase {
	const tree = "p p; p:600 secret; d d; f f x"
	return []fsCase{
		{name: "fifo/data", tree: tree, run: func(t *fsT) {
			t.ok(unix.Mkfifo("new", 0o640))
			t.hasMode("new", unix.S_IFIFO|0o640)
			for _, name := range []string{"new", "p"} {
				r := t.open(name, rdonly|unix.O_NONBLOCK)
				w := t.open(name, wronly)
				t.write(w, "through "+name)
				b := make([]byte, 100)
				n, err := unix.Read(r, b)
				t.ok(err)
				eq(t, "data", string(b[:n]), "through "+name)
				_, err = unix.Read(r, b)
				t.is(err, unix.EAGAIN)
				t.size(name, 0)
			}
		}},
		{name: "fifo/no-reader", tree: tree, run: func(t *fsT) {
			t.is(try("p", wronly|unix.O_NONBLOCK), unix.ENXIO)
			fd := t.open("p", rdwr)
			_, err := unix.Seek(fd, 0, unix.SEEK_SET)
			t.is(err, unix.ESPIPE)
			t.ok(try("p", wronly|unix.O_NONBLOCK))
			t.is(unix.Ftruncate(fd, 0), unix.EINVAL)
		}},
		{name: "fifo/other-name", tree: tree, run: func(t *fsT) {
			r := t.open("p", rdonly|unix.O_NONBLOCK)
			t.ok(unix.Link("p", "d/two"))
			t.ok(unix.Rename("p", "d/one"))
			t.write(t.open("d/two", wronly), "x")
			b := make([]byte, 10)
			n, err := unix.Read(r, b)
			t.ok(err)
			eq(t, "bytes", n, 1)
			t.ok(unix.Unlink("d/one"))
			t.ok(unix.Unlink("d/two"))
			t.ok(unix.Mkfifo("p", 0o644)) // another one
			t.is(try("p", wronly|unix.O_NONBLOCK), unix.ENXIO)
		}},
		{name: "fifo/permissions", tree: tree, run: func(t *fsT) {
			t.user(func() { t.is(try("secret", rdonly|unix.O_NONBLOCK), unix.EACCES) })
			t.ok(unix.Chmod("secret", 0o604))
			t.user(func() { t.ok(try("secret", rdonly|unix.O_NONBLOCK)) })
		}},
		{name: "fifo/exists", tree: tree, run: func(t *fsT) {
			for _, name := range []string{"p", "f", "d"} {
				t.is(unix.Mkfifo(name, 0o644), unix.EEXIST)
			}
			t.is(unix.Mkfifo("no/p", 0o644), unix.ENOENT)
			t.is(unix.Mkfifo("f/p", 0o644), unix.ENOTDIR)
			t.is(unix.Mkfifo(name255+"n", 0o644), unix.ENAMETOOLONG)
			t.intact()
		}},
	}
}

func fsSocketCases() []fsCase {
	listen := func(t *fsT, name string) int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		t.ok(err)
		t.later(func() { unix.Close(fd) })
		t.ok(unix.Bind(fd, &unix.SockaddrUnix{Name: name}))
		t.ok(unix.Listen(fd, 5))
		return fd
	}
	connect := func(t *fsT, name string) error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		t.ok(err)
		defer unix.Close(fd)
		return unix.Connect(fd, &unix.SockaddrUnix{Name: name})
	}
	const tree = "d d; f f x"
	return []fsCase{
		{name: "socket/bound", tree: tree, run: func(t *fsT) {
			listen(t, "s")
			t.hasMode("s", unix.S_IFSOCK|0o777)
			t.ok(connect(t, "s"))
			t.ok(connect(t, t.dir+"/s"))
			t.is(try("s", rdwr), unix.ENXIO)
			t.lists(".", "d f s")
			for _, e := range t.entries(t.open(".", rdonly), 4096) {
				if e.name == "s" {
					eq(t, "type of entry", e.kind, unix.DT_SOCK)
				}
			}
		}},
		{name: "socket/data", tree: tree, run: func(t *fsT) {
			l := listen(t, "d/s")
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			t.ok(err)
			defer unix.Close(fd)
			t.ok(unix.Connect(fd, &unix.SockaddrUnix{Name: "d/s"}))
			a, _, err := unix.Accept4(l, unix.SOCK_CLOEXEC)
			t.ok(err)
			defer unix.Close(a)
			t.write(fd, "hello")
			b := make([]byte, 10)
			n, err := unix.Read(a, b)
			t.ok(err)
			eq(t, "data", string(b[:n]), "hello")
		}},
		{name: "socket/address-in-use", tree: tree, run: func(t *fsT) {
			listen(t, "s")
			for _, name := range []string{"s", "f", "d"} {
				fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				t.ok(err)
				t.is(unix.Bind(fd, &unix.SockaddrUnix{Name: name}), unix.EADDRINUSE)
				unix.Close(fd)
			}
		}},
		{name: "socket/moved-linked-removed", tree: tree, run: func(t *fsT) {
			listen(t, "s")
			t.ok(unix.Rename("s", "d/moved"))
			t.is(connect(t, "s"), unix.ENOENT)
			t.ok(connect(t, "d/moved"))
			t.ok(unix.Link("d/moved", "linked"))
			t.ok(connect(t, "linked"))
			t.ok(unix.Symlink("d/moved", "sym"))
			t.ok(connect(t, "sym"))
			t.ok(unix.Unlink("linked"))
			t.ok(unix.Unlink("d/moved"))
			t.is(connect(t, "d/moved"), unix.ENOENT)
			listen(t, "s") // the name can be taken again
			t.ok(connect(t, "s"))
		}},
		{name: "socket/nobody-listens", tree: tree, run: func(t *fsT) {
			fd := listen(t, "s")
			t.close(fd)
			t.hasMode("s", unix.S_IFSOCK|0o777)
			t.is(connect(t, "s"), unix.ECONNREFUSED)
			t.is(connect(t, "f"), unix.ECONNREFUSED)
		}},
		{name: "socket/permissions", tree: tree, run: func(t *fsT) {
			listen(t, "s")
			t.ok(unix.Chmod("s", 0o700))
			t.user(func() { t.is(connect(t, "s"), unix.EACCES) })
			t.ok(unix.Chmod("s", 0o702))
			t.user(func() { t.ok(connect(t, "s")) })
		}},
	}
}

func fsDeviceCases() []fsCase {
	const tree = "d d; f f x"
	// make makes a device. The file system may refuse it to everybody.
	make := func(t *fsT, name string, mode uint32, major, minor uint32) {
		err := unix.Mknod(name, mode, int(unix.Mkdev(major, minor)))
		if errors.Is(err, unix.EPERM) {
			t.skip("devices cannot be made")
		}
		t.ok(err)
	}
	return []fsCase{
		{name: "mknod/null", tree: tree, run: func(t *fsT) {
			make(t, "null", unix.S_IFCHR|0o666, 1, 3)
			t.hasMode("null", unix.S_IFCHR|0o666)
			eq(t, "device", t.stat("null").Rdev, unix.Mkdev(1, 3))
			fd := t.open("null", rdwr)
			t.write(fd, "x")
			eq(t, "contents", t.rest(fd), "")
			t.ok(unix.Rename("null", "d/null"))
			t.ok(try("d/null", rdwr))
			t.ok(unix.Link("d/null", "null"))
			eq(t, "device", t.stat("null").Rdev, unix.Mkdev(1, 3))
		}},
		{name: "mknod/zero", tree: tree, run: func(t *fsT) {
			make(t, "zero", unix.S_IFCHR|0o666, 1, 5)
			b := []byte("12345")
			n, err := unix.Read(t.open("zero", rdonly), b)
			t.ok(err)
			eq(t, "contents", string(b[:n]), "\x00\x00\x00\x00\x00")
		}},
		{name: "mknod/block", tree: tree, run: func(t *fsT) {
			make(t, "b", unix.S_IFBLK|0o600, 240, 70000)
			t.hasMode("b", unix.S_IFBLK|0o600)
			eq(t, "device", t.stat("b").Rdev, unix.Mkdev(240, 70000))
		}},
		{name: "mknod/no-such-device", tree: tree, run: func(t *fsT) {
			make(t, "c", unix.S_IFCHR|0o666, 239, 1)
			t.is(try("c", rdonly), unix.ENXIO)
		}},
		{name: "mknod/device-0-0", tree: tree, run: func(t *fsT) {
			// It is how overlays mark a deleted file. As the guest made it, it
			// is a file like any other.
			if err := unix.Mknod("w", unix.S_IFCHR|0o644, 0); err != nil {
				t.is(err, unix.EPERM)
				t.intact()
				return
			}
			t.hasMode("w", unix.S_IFCHR|0o644)
			t.lists(".", "d f w")
			t.is(unix.Mkdir("w", 0o755), unix.EEXIST)
			t.ok(unix.Unlink("w"))
			t.gone("w")
		}},
		{name: "mknod/regular", tree: tree, run: func(t *fsT) {
			t.ok(unix.Mknod("r", unix.S_IFREG|0o640, 0))
			t.hasMode("r", unix.S_IFREG|0o640)
			t.put("r", "x")
			t.ok(unix.Mknod("untyped", 0o600, 0))
			t.hasMode("untyped", unix.S_IFREG|0o600)
			t.is(unix.Mknod("r", unix.S_IFREG|0o640, 0), unix.EEXIST)
			t.is(unix.Mknod("x", unix.S_IFDIR|0o755, 0), unix.EPERM, unix.EINVAL)
			t.is(unix.Mknod("x", unix.S_IFLNK|0o755, 0), unix.EINVAL)
		}},
		{name: "mknod/socket", tree: tree, run: func(t *fsT) {
			t.ok(unix.Mknod("s", unix.S_IFSOCK|0o640, 0))
			t.hasMode("s", unix.S_IFSOCK|0o640)
		}},
		{name: "mknod/by-user", tree: "d:777 d", run: func(t *fsT) {
			t.user(func() {
				t.is(unix.Mknod("d/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))), unix.EPERM)
				t.is(unix.Mknod("d/b", unix.S_IFBLK|0o666, int(unix.Mkdev(1, 3))), unix.EPERM)
				t.ok(unix.Mknod("d/p", unix.S_IFIFO|0o600, 0))
				t.ok(unix.Mknod("d/r", unix.S_IFREG|0o600, 0))
			})
			t.lists("d", "p r")
			t.owner("d/p", userID, userGroup)
		}},
	}
}

func fsWhiteoutCases() []fsCase {
	const tree = "d d; f d/a a; f d/b b; d d/sub; f d/sub/c c; d d/sub/deep; f d/sub/deep/e e; f f x; d other; f other/o o"
	// empty removes all that is in d.
	empty := func(t *fsT) {
		for _, name := range []string{"d/a", "d/b", "d/sub/c", "d/sub/deep/e"} {
			t.ok(unix.Unlink(name))
		}
		for _, name := range []string{"d/sub/deep", "d/sub"} {
			t.ok(unix.Rmdir(name))
		}
	}
	return []fsCase{
		{name: "deleted/stays-deleted", tree: tree, run: func(t *fsT) {
			t.ok(unix.Unlink("d/a"))
			t.gone("d/a")
			t.lists("d", "b sub")
			t.is(try("d/a", rdonly), unix.ENOENT)
			t.is(unix.Unlink("d/a"), unix.ENOENT)
			t.is(unix.Rename("d/a", "x"), unix.ENOENT)
			t.is(unix.Link("d/a", "x"), unix.ENOENT)
			t.ok(unix.Chmod("d", 0o700))
			t.ok(unix.Rename("d", "e"))
			t.lists("e", "b sub")
			t.gone("e/a")
		}},
		{name: "deleted/directory-made-again", tree: tree, run: func(t *fsT) {
			empty(t)
			t.ok(unix.Rmdir("d"))
			t.gone("d", "d/a", "d/sub")
			t.ok(unix.Mkdir("d", 0o755))
			t.lists("d", "")
			t.gone("d/a", "d/sub/c")
			t.put("d/b", "new")
			t.lists("d", "b")
			t.has("d/b", "new")
			t.ok(unix.Mkdir("d/sub", 0o755))
			t.lists("d/sub", "")
			t.ok(unix.Mkdir("d/sub/deep", 0o755))
			t.lists("d/sub/deep", "")
			t.nlink("d", 3)
			t.ok(unix.Rename("d", "e"))
			t.lists("e", "b sub")
			t.lists("e/sub", "deep")
		}},
		{name: "deleted/and-again", tree: tree, run: func(t *fsT) {
			empty(t)
			for range 3 {
				t.ok(unix.Rmdir("d"))
				t.gone("d")
				t.ok(unix.Mkdir("d", 0o755))
				t.put("d/a", "x")
				t.lists("d", "a")
				t.ok(unix.Unlink("d/a"))
			}
			t.lists("d", "")
			t.nlink("d", 2)
		}},
		{name: "deleted/emptied-can-be-removed", tree: tree, run: func(t *fsT) {
			t.ok(unix.Unlink("d/sub/deep/e"))
			t.is(unix.Rmdir("d/sub"), unix.ENOTEMPTY)
			t.ok(unix.Rmdir("d/sub/deep"))
			t.ok(unix.Unlink("d/sub/c"))
			t.ok(unix.Rmdir("d/sub"))
			t.lists("d", "a b")
			t.nlink("d", 2)
		}},
		{name: "deleted/replaced-by-rename", tree: tree, run: func(t *fsT) {
			empty(t)
			t.ok(unix.Rename("other", "d")) // onto the emptied directory
			t.lists("d", "o")
			t.gone("d/a", "other")
			t.ok(unix.Unlink("d/o"))
			t.ok(unix.Rmdir("d"))
			t.gone("d")
		}},
		{name: "deleted/moved-away-and-made-again", tree: tree, run: func(t *fsT) {
			t.ok(unix.Rename("d/sub", "moved"))
			t.ok(unix.Mkdir("d/sub", 0o755))
			t.lists("d/sub", "")
			t.has("moved/deep/e", "e")
			t.ok(unix.Rename("moved", "d/sub/moved"))
			t.has("d/sub/moved/c", "c")
			t.lists("d/sub", "moved")
		}},
		{name: "deleted/moved-into-place", tree: tree, run: func(t *fsT) {
			t.ok(unix.Unlink("f"))
			t.ok(unix.Rename("d/sub", "f")) // a directory where a file was
			t.lists("f", "c deep")
			t.ok(unix.Unlink("d/a"))
			t.ok(unix.Rename("f/deep", "d/a"))
			t.has("d/a/e", "e")
			t.lists("d", "a b")
		}},
		{name: "deleted/names-of-marks", run: func(t *fsT) {
			// What whiteouts are called in layers of images are ordinary names.
			for _, name := range []string{".wh.x", ".wh..wh..opq", ".wh.", ".fuse_hidden1", "#1"} {
				t.put(name, name)
				t.has(name, name)
			}
			t.put("x", "x")
			t.has("x", "x")
			t.lists(".", "#1 .fuse_hidden1 .wh. .wh..wh..opq .wh.x x")
			t.ok(unix.Unlink(".wh.x"))
			t.has("x", "x")
		}},
		{name: "deleted/many", tree: "d d; n d 500", run: func(t *fsT) {
			for i := range 500 {
				if i%5 != 0 {
					t.ok(unix.Unlink(fmt.Sprintf("d/e%05d", i)))
				}
			}
			eq(t, "entries", len(t.names("d")), 100)
			for i := range 500 {
				if i%5 == 1 {
					t.put(fmt.Sprintf("d/e%05d", i), "back")
				}
			}
			eq(t, "entries", len(t.names("d")), 200)
			t.gone("d/e00002")
			t.has("d/e00001", "back")
			t.has("d/e00000", "")
		}},
	}
}
