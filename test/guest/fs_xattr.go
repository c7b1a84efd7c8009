package main

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func (t *fsT) setxattr(file, name, value string, flags int) {
	if err := unix.Lsetxattr(file, name, []byte(value), flags); err != nil {
		t.fail("set %s of %s to %d bytes: %v", name, file, len(value), fsErrno(err))
	}
}

func (t *fsT) xattr(file, name, want string) {
	b := make([]byte, 1<<16)
	n, err := unix.Lgetxattr(file, name, b)
	if err != nil {
		t.fail("get %s of %s: %v", name, file, fsErrno(err))
	}
	eq(t, name+" of "+file, string(b[:n]), want)
}

func (t *fsT) noXattr(file, name string) {
	_, err := unix.Lgetxattr(file, name, make([]byte, 100))
	t.is(err, unix.ENODATA)
}

// xattrs returns the sorted names of the attributes, without those of security
// modules, which the host may add.
func (t *fsT) xattrs(file string) string {
	b := make([]byte, 1<<16)
	n, err := unix.Llistxattr(file, b)
	t.ok(err)
	var names []string
	for name := range strings.SplitSeq(string(b[:n]), "\x00") {
		if name != "" && !strings.HasPrefix(name, "security.") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

const fsXattrTree = "f f hello; d d; f d/f deep; l link f; p fifo; f:600@1000.1001 mine m; h hard f; d:1777 sticky; f:644 readable r; f:666 writable w; f:600 secret s"

func fsXattrCases() []fsCase {
	get := func(file, name string) func() error {
		return func() error { _, err := unix.Lgetxattr(file, name, make([]byte, 100)); return err }
	}
	set := func(file, name string, size, flags int) func() error {
		return func() error { return unix.Lsetxattr(file, name, make([]byte, size), flags) }
	}
	cases := []fsCase{
		{name: "xattr/set-get-list-remove", tree: fsXattrTree, run: func(t *fsT) {
			for _, file := range []string{"f", "d"} {
				eq(t, "list", t.xattrs(file), "")
				t.setxattr(file, "user.b", "two", 0)
				t.setxattr(file, "user.a", "one", 0)
				t.setxattr(file, "user.empty", "", 0)
				eq(t, "list", t.xattrs(file), "user.a user.b user.empty")
				t.xattr(file, "user.a", "one")
				t.xattr(file, "user.empty", "")
				t.setxattr(file, "user.a", "a longer value", 0)
				t.xattr(file, "user.a", "a longer value")
				t.setxattr(file, "user.a", "1", 0)
				t.xattr(file, "user.a", "1")
				t.ok(unix.Lremovexattr(file, "user.b"))
				t.noXattr(file, "user.b")
				eq(t, "list", t.xattrs(file), "user.a user.empty")
				t.is(unix.Lremovexattr(file, "user.b"), unix.ENODATA)
			}
			t.has("f", "hello")
			t.lists("d", "f")
		}},
		{name: "xattr/create-and-replace", tree: fsXattrTree, run: func(t *fsT) {
			t.setxattr("f", "user.a", "one", unix.XATTR_CREATE)
			t.is(unix.Lsetxattr("f", "user.a", []byte("x"), unix.XATTR_CREATE), unix.EEXIST)
			t.setxattr("f", "user.a", "two", unix.XATTR_REPLACE)
			t.xattr("f", "user.a", "two")
		}},
		{name: "xattr/prefix-alone", tree: fsXattrTree, run: func(t *fsT) {
			for _, name := range []string{"user.", "trusted."} {
				t.is(unix.Lsetxattr("f", name, []byte("x"), 0), unix.EINVAL)
				t.is(get("f", name)(), unix.EINVAL)
				t.is(unix.Lremovexattr("f", name), unix.EINVAL)
			}
			eq(t, "list", t.xattrs("f"), "")
		}},
		{name: "xattr/sizes", tree: fsXattrTree, run: func(t *fsT) {
			for _, n := range []int{1, 100, 255, 256, 4000, 4096, 5000, 30000, 60 << 10} {
				t.setxattr("f", "user.size", bytesOf(n), 0)
				t.xattr("f", "user.size", bytesOf(n))
				size, err := unix.Lgetxattr("f", "user.size", nil)
				t.ok(err)
				eq(t, "size", size, n)
			}
			t.setxattr("f", "user.size", "small", 0)
			t.xattr("f", "user.size", "small")
		}},
		{name: "xattr/size-65536", tree: fsXattrTree, run: func(t *fsT) {
			t.setxattr("f", "user.size", bytesOf(65536), 0)
			t.xattr("f", "user.size", bytesOf(65536))
		}},
		{name: "xattr/short-buffers", tree: fsXattrTree, run: func(t *fsT) {
			t.setxattr("f", "user.a", "hello", 0)
			_, err := unix.Lgetxattr("f", "user.a", make([]byte, 4))
			t.is(err, unix.ERANGE)
			n, err := unix.Llistxattr("f", nil)
			t.ok(err)
			if n < len("user.a\x00") {
				t.fail("the list takes %d bytes", n)
			}
			_, err = unix.Llistxattr("f", make([]byte, 3))
			t.is(err, unix.ERANGE)
		}},
		{name: "xattr/names-and-bytes", tree: fsXattrTree, run: func(t *fsT) {
			long := "user." + strings.Repeat("n", 250)
			t.setxattr("f", long, "x", 0)
			t.setxattr("f", "user. \n\xff=", "\x00\x01\xff\x00", 0)
			t.setxattr("f", "user.A", "upper", 0)
			t.setxattr("f", "user.a", "lower", 0)
			t.xattr("f", long, "x")
			t.xattr("f", "user. \n\xff=", "\x00\x01\xff\x00")
			t.xattr("f", "user.A", "upper")
			t.xattr("f", "user.a", "lower")
			t.is(unix.Lsetxattr("f", long+"n", nil, 0), unix.ERANGE)
		}},
		{name: "xattr/many", tree: fsXattrTree, run: func(t *fsT) {
			for i := range 100 {
				t.setxattr("f", fmt.Sprintf("user.n%02d", i), fmt.Sprint("value ", i), 0)
			}
			eq(t, "count", len(strings.Fields(t.xattrs("f"))), 100)
			for i := range 100 {
				t.xattr("f", fmt.Sprintf("user.n%02d", i), fmt.Sprint("value ", i))
				t.ok(unix.Lremovexattr("f", fmt.Sprintf("user.n%02d", i)))
			}
			eq(t, "list", t.xattrs("f"), "")
		}},
		{name: "xattr/by-descriptor", tree: fsXattrTree, run: func(t *fsT) {
			fd := t.open("f", rdonly)
			t.ok(unix.Fsetxattr(fd, "user.a", []byte("x"), 0))
			t.xattr("f", "user.a", "x")
			t.ok(unix.Unlink("f"))
			t.ok(unix.Unlink("hard"))
			b := make([]byte, 10)
			n, err := unix.Fgetxattr(fd, "user.a", b)
			t.ok(err)
			eq(t, "value", string(b[:n]), "x")
			t.ok(unix.Fremovexattr(fd, "user.a"))
		}},
		{name: "xattr/of-the-inode", tree: fsXattrTree, run: func(t *fsT) {
			t.setxattr("f", "user.a", "x", 0)
			t.xattr("hard", "user.a", "x")
			t.ok(unix.Rename("f", "d/g"))
			t.xattr("d/g", "user.a", "x")
			t.pwrite(t.open("hard", wronly), "J", 0)
			t.ok(unix.Chmod("hard", 0o600))
			t.ok(unix.Chown("hard", 1, 1))
			t.xattr("hard", "user.a", "x")
			t.setxattr("d", "user.d", "y", 0)
			t.ok(unix.Rename("d", "e"))
			t.xattr("e", "user.d", "y")
			t.put("e/g", "replaced") // by truncation, so the same inode
			t.xattr("hard", "user.a", "x")
		}},
		{name: "xattr/new-file-has-none", tree: fsXattrTree, run: func(t *fsT) {
			t.setxattr("mine", "user.a", "x", 0)
			t.ok(unix.Unlink("mine"))
			t.put("mine", "new")
			eq(t, "list", t.xattrs("mine"), "")
		}},
		{name: "xattr/through-link", tree: fsXattrTree, run: func(t *fsT) {
			t.ok(unix.Setxattr("link", "user.a", []byte("x"), 0))
			t.xattr("f", "user.a", "x")
			eq(t, "list of the link", t.xattrs("link"), "")
		}},
		{name: "xattr/trusted-by-root", tree: fsXattrTree, run: func(t *fsT) {
			t.setxattr("f", "trusted.a", "secret", 0)
			t.xattr("f", "trusted.a", "secret")
			eq(t, "list", t.xattrs("f"), "trusted.a")
			t.setxattr("link", "trusted.l", "of the link", 0) // not only for files and directories
			t.xattr("link", "trusted.l", "of the link")
			t.user(func() {
				eq(t, "list of the user", t.xattrs("f"), "")
				t.noXattr("f", "trusted.a")
			})
			t.ok(unix.Lremovexattr("f", "trusted.a"))
			eq(t, "list", t.xattrs("f"), "")
		}},
		{name: "xattr/overlay-names", tree: fsXattrTree, run: func(t *fsT) {
			// Names that layered file systems use for themselves must not take
			// effect: the guest may copy a tree of another one.
			err := unix.Lsetxattr("d", "trusted.overlay.opaque", []byte("y"), 0)
			if err != nil {
				t.is(err, unix.EPERM, unix.EOPNOTSUPP)
				return
			}
			t.lists("d", "f")
			t.ok(unix.Chmod("d", 0o700))
			t.put("d/new", "x")
			t.lists("d", "f new")
		}},
	}
	return append(cases, fsFailures("xattr", fsXattrTree,
		failure{"get-missing", unix.ENODATA, get("f", "user.nothing")},
		failure{"remove-missing", unix.ENODATA, func() error { return unix.Lremovexattr("f", "user.nothing") }},
		failure{"replace-missing", unix.ENODATA, set("f", "user.a", 1, unix.XATTR_REPLACE)},
		failure{"of-missing", unix.ENOENT, get("nothing", "user.a")},
		failure{"too-large", unix.E2BIG, set("f", "user.a", 65537, 0)},
		failure{"invalid-flags", unix.EINVAL, set("f", "user.a", 1, 64)},
		failure{"empty-name", unix.ERANGE, set("f", "", 1, 0)},
		failure{"unknown-class", unix.EOPNOTSUPP, set("f", "other.a", 1, 0)},
		failure{"user-of-link", unix.EPERM, set("link", "user.a", 1, 0)},
		failure{"user-of-fifo", unix.EPERM, set("fifo", "user.a", 1, 0)},
	)...)
}

func fsXattrUserCases() []fsCase {
	get := func(file, name string) func() error {
		return func() error { _, err := unix.Lgetxattr(file, name, make([]byte, 100)); return err }
	}
	set := func(file, name string) func() error {
		return func() error { return unix.Lsetxattr(file, name, []byte("x"), 0) }
	}
	cases := []fsCase{
		{name: "xattr-user/may", tree: fsXattrTree, run: func(t *fsT) {
			t.setxattr("readable", "user.a", "of root", 0)
			t.user(func() {
				t.setxattr("mine", "user.a", "x", 0)
				t.xattr("mine", "user.a", "x")
				t.ok(unix.Lremovexattr("mine", "user.a"))
				t.xattr("readable", "user.a", "of root")
				t.setxattr("writable", "user.a", "of the user", 0)
			})
			t.xattr("writable", "user.a", "of the user")
		}},
	}
	return append(cases, fsUserFailures("xattr-user", fsXattrTree,
		failure{"get-unreadable", unix.EACCES, get("secret", "user.a")},
		failure{"set-unwritable", unix.EACCES, set("readable", "user.a")},
		failure{"remove-unwritable", unix.EACCES, func() error { return unix.Lremovexattr("readable", "user.a") }},
		failure{"set-trusted", unix.EPERM, set("mine", "trusted.a")},
		failure{"sticky-directory", unix.EPERM, set("sticky", "user.a")},
	)...)
}
