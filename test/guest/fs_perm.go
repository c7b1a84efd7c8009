package main

import (
	"golang.org/x/sys/unix"
)

// fsPermTree has a directory for each thing that the user may or may not do.
// 1000:1001 is the user, who is in group 1002 too.
const fsPermTree = "f:600 secret s; f:644 readable r; f:222 writable w; f:604@0.1001 notgroup n; f:640@0.1001 group g; f:640@0.1002 group2 g; " +
	"f:077@1000.1001 notowner x; f:600@1000.1001 own o; " +
	"d:755 closed; f:666 closed/f c; d:755 closed/d; d:777 open; f:600 open/f o; d:700 private; f:666 private/f p; " +
	"d:733 blind; f:644 blind/f b; d:744 nosearch; f:644 nosearch/f n; d:755 empty; l privatelink private/f"

func fsPermCases() []fsCase {
	cases := []fsCase{
		{name: "perm/user-may", tree: fsPermTree, run: func(t *fsT) {
			t.user(func() {
				for name, want := range map[string]string{"readable": "r", "group": "g", "group2": "g", "own": "o", "blind/f": "b"} {
					t.has(name, want)
				}
				t.ok(try("writable", wronly|trunc))
				t.put("closed/f", "written")
				t.put("open/new", "n")
				t.owner("open/new", userID, userGroup)
				t.put("blind/new", "n")
				t.lists("nosearch", "f")
				t.ok(unix.Unlink("open/f")) // needs permissions of the directory only
				t.ok(unix.Rename("open/new", "blind/moved"))
				t.ok(unix.Mkdir("open/d", 0o755))
				t.ok(unix.Rmdir("open/d"))
			})
			t.has("closed/f", "written")
			t.owner("blind/moved", userID, userGroup)
			t.lists("blind", "f moved new")
			t.lists("open", "")
		}},
		{name: "perm/root-may", tree: fsPermTree, run: func(t *fsT) {
			t.ok(unix.Chmod("secret", 0))
			t.ok(unix.Chmod("private", 0))
			t.has("secret", "s")
			t.has("private/f", "p")
			t.put("private/new", "n")
			t.lists("private", "f new")
			t.ok(try("notowner", rdwr))
		}},
		{name: "perm/access", tree: fsPermTree + "; f:100@1000.1001 exec x; f:001 others x", run: func(t *fsT) {
			t.user(func() {
				t.ok(unix.Access("readable", unix.R_OK))
				t.is(unix.Access("readable", unix.W_OK), unix.EACCES)
				t.ok(unix.Access("exec", unix.X_OK))
				t.ok(unix.Access("others", unix.X_OK))
				t.is(unix.Access("readable", unix.X_OK), unix.EACCES)
				t.is(unix.Access("private/f", unix.F_OK), unix.EACCES)
				t.is(unix.Access("nothing", unix.F_OK), unix.ENOENT)
			})
			t.is(unix.Access("readable", unix.X_OK), unix.EACCES) // for root, too, if nobody may
			t.ok(unix.Access("exec", unix.X_OK))
			t.ok(unix.Access("private", unix.R_OK|unix.W_OK|unix.X_OK))
		}},
		{name: "perm/open-files-stay-open", tree: fsPermTree, run: func(t *fsT) {
			t.user(func() {
				fd := t.open("own", rdwr)
				t.ok(unix.Chmod("own", 0))
				t.write(fd, "O")
				eq(t, "contents", t.pread(fd, 10, 0), "O")
				t.is(try("own", rdonly), unix.EACCES)
				t.ok(unix.Fchmod(fd, 0o600))
				t.has("own", "O")
			})
		}},
		{name: "perm/seen-at-once", tree: fsPermTree, run: func(t *fsT) {
			t.user(func() { t.is(try("secret", rdonly), unix.EACCES) })
			t.ok(unix.Chmod("secret", 0o604))
			t.user(func() { t.has("secret", "s") })
			t.ok(unix.Chmod("private", 0o701))
			t.user(func() { t.has("private/f", "p") })
			t.ok(unix.Chmod(".", 0o700))
			t.user(func() { t.is(try("readable", rdonly), unix.EACCES) })
			t.ok(unix.Chmod(".", 0o755))
			t.user(func() { t.has("readable", "r") })
		}},
		{name: "perm/chmod", tree: fsPermTree, run: func(t *fsT) {
			for _, mode := range []uint32{0, 0o777, 0o4755, 0o2755, 0o1777, 0o7777, 0o644} {
				t.ok(unix.Chmod("readable", mode))
				t.hasMode("readable", unix.S_IFREG|mode)
				t.ok(unix.Chmod("empty", mode))
				t.hasMode("empty", unix.S_IFDIR|mode)
			}
			t.ok(unix.Fchmod(t.open("readable", rdonly), 0o611))
			t.hasMode("readable", unix.S_IFREG|0o611)
			t.has("readable", "r")
		}},
		{name: "perm/chmod-by-owner", tree: fsPermTree, run: func(t *fsT) {
			t.user(func() {
				t.ok(unix.Chmod("own", 0o4711))
				t.hasMode("own", unix.S_IFREG|0o4711)
				t.ok(unix.Chmod("own", 0o2755)) // the group is the user's
				t.hasMode("own", unix.S_IFREG|0o2755)
			})
			t.ok(unix.Chown("own", userID, 7))
			t.user(func() {
				t.ok(unix.Chmod("own", 0o2755)) // and now it is not
				t.hasMode("own", unix.S_IFREG|0o755)
			})
		}},
		{name: "perm/exec", tree: fsPermTree, run: func(t *fsT) {
			fsCopyProgram(t, "program", 0o700)
			eq(t, "output", t.runProgram("./program", "say", "hi"), "hi\n")
			t.user(func() { t.is(unix.Access("program", unix.X_OK), unix.EACCES) })
			t.ok(unix.Rename("program", "closed/program"))
			eq(t, "output", t.runProgram("closed/program", "say", "hi"), "hi\n")
		}},
	}
	mode := func(name string, mode uint32) func() error { return func() error { return unix.Chmod(name, mode) } }
	opens := func(name string, flags int) func() error { return func() error { return try(name, flags) } }
	return append(cases, fsUserFailures("denied", fsPermTree,
		failure{"read", unix.EACCES, opens("secret", rdonly)},
		failure{"write", unix.EACCES, opens("readable", wronly)},
		failure{"read-write", unix.EACCES, opens("readable", rdwr)},
		failure{"trunc", unix.EACCES, opens("readable", rdonly|trunc)},
		failure{"truncate", unix.EACCES, func() error { return unix.Truncate("readable", 0) }},
		failure{"read-writable", unix.EACCES, opens("writable", rdonly)},
		failure{"group-before-others", unix.EACCES, opens("notgroup", rdonly)},
		failure{"owner-before-others", unix.EACCES, opens("notowner", rdonly)},
		failure{"search", unix.EACCES, opens("private/f", rdonly)},
		failure{"search-by-link", unix.EACCES, opens("privatelink", rdonly)},
		failure{"search-missing", unix.EACCES, opens("private/nothing", rdonly)},
		failure{"search-in-readable", unix.EACCES, opens("nosearch/f", rdonly)},
		failure{"list", unix.EACCES, opens("blind", rdonly)},
		failure{"chdir", unix.EACCES, func() error { return unix.Chdir("private") }},
		failure{"creat", unix.EACCES, opens("closed/new", wronly|creat)},
		failure{"creat-in-unsearchable", unix.EACCES, opens("nosearch/new", wronly|creat)},
		failure{"mkdir", unix.EACCES, func() error { return unix.Mkdir("closed/new", 0o755) }},
		failure{"rmdir", unix.EACCES, func() error { return unix.Rmdir("closed/d") }},
		failure{"unlink", unix.EACCES, func() error { return unix.Unlink("closed/f") }},
		failure{"link", unix.EACCES, func() error { return unix.Link("own", "closed/new") }},
		failure{"symlink", unix.EACCES, func() error { return unix.Symlink("x", "closed/new") }},
		failure{"mkfifo", unix.EACCES, func() error { return unix.Mkfifo("closed/new", 0o644) }},
		failure{"rename-from", unix.EACCES, func() error { return unix.Rename("closed/f", "open/new") }},
		failure{"rename-to", unix.EACCES, func() error { return unix.Rename("open/f", "closed/new") }},
		failure{"rename-over", unix.EACCES, func() error { return unix.Rename("open/f", "closed/f") }},
		failure{"rename-directory", unix.EACCES, func() error { return unix.Rename("closed/d", "open/d") }},
		failure{"stat", unix.EACCES, func() error { var st unix.Stat_t; return unix.Stat("private/f", &st) }},
		failure{"chmod", unix.EPERM, mode("readable", 0o666)},
		failure{"chmod-same", unix.EPERM, mode("readable", 0o644)},
		failure{"chmod-directory", unix.EPERM, mode("open", 0o755)},
		failure{"chmod-unsearchable", unix.EACCES, mode("private/f", 0o755)},
	)...)
}

func fsOwnerCases() []fsCase {
	const tree = "f f x; f:6755 suid s; f:2745 sgid s; f:6755@1000.1001 mine m; f:2644@1000.1001 nogroupexec n; d:6755@1000.1001 dir; f@1000.1001 own o; f:6777 shared s; " +
		"d:2777@0.1002 group; d:777 plain; d:2777@0.7 foreign"
	chown := func(name string, uid, gid int) func() error {
		return func() error { return unix.Chown(name, uid, gid) }
	}
	cases := []fsCase{
		{name: "chown/by-root", tree: tree, run: func(t *fsT) {
			before := t.stat("f")
			t.tick()
			t.ok(unix.Chown("f", 5, 6))
			t.owner("f", 5, 6)
			t.ok(unix.Chown("f", -1, 7))
			t.owner("f", 5, 7)
			t.ok(unix.Fchown(t.open("f", rdonly), 8, -1))
			t.owner("f", 8, 7)
			t.ok(unix.Chown("f", 1<<31, 1<<32-2))
			t.owner("f", 1<<31, 1<<32-2)
			after := t.stat("f")
			eq(t, "mtime", after.Mtim, before.Mtim)
			if after.Ctim == before.Ctim {
				t.fail("ctime did not change")
			}
			t.has("f", "x")
		}},
		{name: "chown/clears-suid", tree: tree, run: func(t *fsT) {
			t.ok(unix.Chown("suid", 5, 6))
			t.hasMode("suid", unix.S_IFREG|0o755)
			t.ok(unix.Chown("sgid", 5, 6)) // whose group may not execute: no set-id bit but a lock bit
			t.hasMode("sgid", unix.S_IFREG|0o2745)
			t.ok(unix.Chown("dir", 5, 6))
			t.hasMode("dir", unix.S_IFDIR|0o6755)
			t.user(func() {
				t.ok(unix.Chown("mine", -1, otherGroup))
				t.hasMode("mine", unix.S_IFREG|0o755)
			})
		}},
		{name: "chown/by-owner", tree: tree, run: func(t *fsT) {
			t.user(func() {
				t.ok(unix.Chown("own", -1, otherGroup))
				t.owner("own", userID, otherGroup)
				t.ok(unix.Chown("own", userID, userGroup))
				t.owner("own", userID, userGroup)
				t.ok(unix.Chown("own", -1, -1))
			})
		}},
		{name: "chown/same-foreign-group", tree: "f@1000.7 own o", run: func(t *fsT) {
			t.user(func() { t.ok(unix.Chown("own", userID, 7)) }) // which the file has already
			t.owner("own", userID, 7)
		}},
		{name: "suid/cleared-by-write", tree: tree, run: func(t *fsT) {
			t.user(func() {
				fd := t.open("shared", wronly)
				t.hasMode("shared", unix.S_IFREG|0o6777)
				t.write(fd, "S")
				t.hasMode("shared", unix.S_IFREG|0o777)
			})
			t.has("shared", "S")
		}},
		{name: "suid/cleared-by-truncate", tree: tree, run: func(t *fsT) {
			t.user(func() { t.ok(unix.Truncate("shared", 0)) })
			t.hasMode("shared", unix.S_IFREG|0o777)
		}},
		{name: "suid/cleared-by-trunc", tree: tree, run: func(t *fsT) {
			t.user(func() { t.ok(try("shared", wronly|trunc)) })
			t.hasMode("shared", unix.S_IFREG|0o777)
		}},
		{name: "suid/kept-by-root", tree: tree, run: func(t *fsT) {
			t.write(t.open("suid", wronly), "S")
			t.hasMode("suid", unix.S_IFREG|0o6755)
			t.ok(unix.Truncate("suid", 0))
			t.hasMode("suid", unix.S_IFREG|0o6755)
		}},
		{name: "setgid/inherited", tree: tree, run: func(t *fsT) {
			t.user(func() {
				t.put("group/f", "")
				t.owner("group/f", userID, otherGroup)
				t.hasMode("group/f", unix.S_IFREG|0o644)
				t.ok(unix.Mkdir("group/d", 0o755))
				t.owner("group/d", userID, otherGroup)
				t.hasMode("group/d", unix.S_IFDIR|0o2755)
				t.put("group/d/f", "")
				t.owner("group/d/f", userID, otherGroup)
				t.ok(unix.Symlink("x", "group/l"))
				t.owner("group/l", userID, otherGroup)
				t.ok(unix.Mkfifo("group/p", 0o644))
				t.owner("group/p", userID, otherGroup)
				t.put("plain/f", "")
				t.owner("plain/f", userID, userGroup)
			})
			t.ok(unix.Mkdir("group/byroot", 0o755))
			t.owner("group/byroot", 0, otherGroup)
			t.hasMode("group/byroot", unix.S_IFDIR|0o2755)
			t.ok(unix.Rename("own", "group/own")) // a move changes nothing
			t.owner("group/own", userID, userGroup)
			t.ok(unix.Link("mine", "group/mine"))
			t.owner("group/mine", userID, userGroup)
		}},
		{name: "setgid/not-of-foreign-group", tree: tree, run: func(t *fsT) {
			t.user(func() {
				t.ok(try("foreign/f", wronly|creat, 0o2755))
				t.owner("foreign/f", userID, 7)
				t.hasMode("foreign/f", unix.S_IFREG|0o755)
				t.ok(try("group/f", wronly|creat, 0o2755)) // the user is in this one
				t.hasMode("group/f", unix.S_IFREG|0o2755)
				// Without permission to execute for the group it was a mark for locks.
				t.ok(try("foreign/lock", wronly|creat, 0o2745))
				t.hasMode("foreign/lock", unix.S_IFREG|0o2745)
				t.ok(unix.Mknod("foreign/p", unix.S_IFIFO|0o2644, 0))
				t.hasMode("foreign/p", unix.S_IFIFO|0o2644)
				t.ok(unix.Chown("foreign/lock", -1, otherGroup)) // of which the user is, and was not of the one before
				t.hasMode("foreign/lock", unix.S_IFREG|0o745)
				t.ok(try("foreign/lock2", wronly|creat, 0o2745))
				t.ok(unix.Chown("foreign/lock2", -1, -1))
				t.hasMode("foreign/lock2", unix.S_IFREG|0o745)
				t.ok(try("group/lock", wronly|creat, 0o2745))
				t.ok(unix.Chown("group/lock", -1, userGroup))
				t.hasMode("group/lock", unix.S_IFREG|0o2745)
			})
			t.ok(try("foreign/root", wronly|creat, 0o2755))
			t.hasMode("foreign/root", unix.S_IFREG|0o2755)
			t.ok(try("foreign/rootlock", wronly|creat, 0o2745))
			t.ok(unix.Chown("foreign/rootlock", userID, -1))
			t.hasMode("foreign/rootlock", unix.S_IFREG|0o2745)
		}},
	}
	return append(cases, fsUserFailures("chown", tree,
		failure{"of-other", unix.EPERM, chown("f", userID, -1)},
		failure{"group-of-other", unix.EPERM, chown("f", -1, userGroup)},
		failure{"give-away", unix.EPERM, chown("own", 5, -1)},
		failure{"foreign-group", unix.EPERM, chown("own", -1, 7)},
		failure{"link-of-other", unix.EPERM, func() error { return unix.Lchown("f", userID, userGroup) }},
		failure{"missing", unix.ENOENT, chown("nothing", userID, userGroup)},
	)...)
}

func fsStickyCases() []fsCase {
	const tree = "d:1777 tmp; f@5.5 tmp/theirs t; f:666@5.5 tmp/writable w; f@1000.1001 tmp/mine m; d:777@5.5 tmp/dir; d:1777@1000.1001 own; f@5.5 own/theirs t; d:777 free; f@1000.1001 free/mine f"
	cases := []fsCase{
		{name: "sticky/owner-of-file", tree: tree, run: func(t *fsT) {
			t.user(func() {
				t.ok(unix.Rename("tmp/mine", "tmp/moved"))
				t.ok(unix.Rename("free/mine", "tmp/moved"))
				t.has("tmp/moved", "f")
				t.ok(unix.Unlink("tmp/moved"))
				t.put("tmp/writable", "W")
			})
			t.lists("tmp", "dir theirs writable")
		}},
		{name: "sticky/owner-of-directory", tree: tree, run: func(t *fsT) {
			t.user(func() { t.ok(unix.Unlink("own/theirs")) })
			t.lists("own", "")
		}},
		{name: "sticky/root", tree: tree, run: func(t *fsT) {
			t.ok(unix.Rename("tmp/mine", "tmp/theirs"))
			t.ok(unix.Unlink("tmp/theirs"))
			t.ok(unix.Rmdir("tmp/dir"))
		}},
	}
	return append(cases, fsUserFailures("sticky", tree,
		failure{"unlink", unix.EPERM, func() error { return unix.Unlink("tmp/theirs") }},
		failure{"unlink-writable", unix.EPERM, func() error { return unix.Unlink("tmp/writable") }},
		failure{"rmdir", unix.EPERM, func() error { return unix.Rmdir("tmp/dir") }},
		failure{"rename-away", unix.EPERM, func() error { return unix.Rename("tmp/theirs", "free/new") }},
		failure{"rename-within", unix.EPERM, func() error { return unix.Rename("tmp/theirs", "tmp/new") }},
		failure{"rename-over", unix.EPERM, func() error { return unix.Rename("tmp/mine", "tmp/theirs") }},
		failure{"rename-over-from-elsewhere", unix.EPERM, func() error { return unix.Rename("free/mine", "tmp/theirs") }},
	)...)
}
