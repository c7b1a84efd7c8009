package main

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// touch is a call and which times it changes, as letters: a, m and c of a file,
// and after a slash those of the directory d. As atime is not newer than mtime, a
// read changes it on file systems that keep it at all, with relatime too.
type touch struct {
	name, want string
	file       string // whose times are looked at; f if empty
	do         func(t *fsT)
}

func fsTimeCases() []fsCase {
	const tree = "d d; f d/f *5000; d d/e; h link d/f; f g x; d d/gone; f d/victim v; l d/l f; p d/p"
	rows := []touch{
		{"write", "mc/", "", func(t *fsT) { t.write(t.open("d/f", wronly), "x") }},
		{"pwrite", "mc/", "", func(t *fsT) { t.pwrite(t.open("d/f", wronly), "x", 9000) }},
		{"append", "mc/", "", func(t *fsT) { t.write(t.open("d/f", wronly|unix.O_APPEND), "x") }},
		{"write-nothing", "/", "", func(t *fsT) {
			_, err := unix.Write(t.open("d/f", wronly), nil)
			t.ok(err)
		}},
		{"open-to-write", "/", "", func(t *fsT) { t.ok(try("d/f", rdwr|creat)) }},
		{"read", "a/", "", func(t *fsT) { t.has("d/f", bytesOf(5000)) }},
		{"list", "/a", "", func(t *fsT) { t.names("d") }},
		{"stat", "/", "", func(t *fsT) { t.stat("d/f"); t.stat("d") }},
		{"trunc", "mc/", "", func(t *fsT) { t.ok(try("d/f", wronly|trunc)) }},
		{"truncate", "mc/", "", func(t *fsT) { t.ok(unix.Truncate("d/f", 10)) }},
		{"grow", "mc/", "", func(t *fsT) { t.ok(unix.Truncate("d/f", 10000)) }},
		{"ftruncate", "mc/", "", func(t *fsT) { t.ok(unix.Ftruncate(t.open("d/f", wronly), 10)) }},
		{"chmod", "c/", "", func(t *fsT) { t.ok(unix.Chmod("d/f", 0o600)) }},
		{"chmod-directory", "c/c", "d", func(t *fsT) { t.ok(unix.Chmod("d", 0o700)) }},
		{"chown", "c/", "", func(t *fsT) { t.ok(unix.Chown("d/f", 1, 1)) }},
		{"setxattr", "c/", "", func(t *fsT) { t.ok(unix.Setxattr("d/f", "user.a", []byte("x"), 0)) }},
		{"removexattr", "c/", "", func(t *fsT) {
			t.ok(unix.Setxattr("d/f", "user.a", []byte("x"), 0))
			t.tick()
			before := t.stat("d/f").Ctim
			t.ok(unix.Removexattr("d/f", "user.a"))
			if t.stat("d/f").Ctim == before {
				t.fail("ctime did not change")
			}
		}},
		{"utimes", "c/", "", func(t *fsT) { t.ok(fsSetTime("d/f", unix.Timespec{Nsec: unix.UTIME_OMIT}, fsTime)) }},
		{"fsync", "/", "", func(t *fsT) { t.ok(unix.Fsync(t.open("d/f", rdwr))) }},
		{"link", "c/mc", "", func(t *fsT) { t.ok(unix.Link("d/f", "d/new")) }},
		{"unlink-one-name", "c/", "", func(t *fsT) { t.ok(unix.Unlink("link")) }},
		{"rename-within", "/mc", "g", func(t *fsT) { t.ok(unix.Rename("d/victim", "d/new")) }},
		{"rename-over", "/mc", "g", func(t *fsT) { t.ok(unix.Rename("d/victim", "d/l")) }},
		{"rename-directory-within", "/mc", "g", func(t *fsT) { t.ok(unix.Rename("d/e", "d/new")) }},
		{"creat", "/mc", "g", func(t *fsT) { t.ok(try("d/new", wronly|creat)) }},
		{"unlink", "/mc", "g", func(t *fsT) { t.ok(unix.Unlink("d/victim")) }},
		{"mkdir", "/mc", "g", func(t *fsT) { t.ok(unix.Mkdir("d/new", 0o755)) }},
		{"rmdir", "/mc", "g", func(t *fsT) { t.ok(unix.Rmdir("d/gone")) }},
		{"symlink", "/mc", "g", func(t *fsT) { t.ok(unix.Symlink("x", "d/new")) }},
		{"mkfifo", "/mc", "g", func(t *fsT) { t.ok(unix.Mkfifo("d/new", 0o644)) }},
		{"change-below", "/", "g", func(t *fsT) { t.put("d/e/new", "x") }}, // of the grandparent nothing
		{"readlink", "a/", "d/l", func(t *fsT) {
			_, err := unix.Readlink("d/l", make([]byte, 10))
			t.ok(err)
		}},
	}
	var cases []fsCase
	for _, r := range rows {
		cases = append(cases, fsCase{name: "times/" + r.name, tree: tree, run: func(t *fsT) { r.run(t) }})
	}
	return append(cases, fsCase{name: "times/of-new-files", tree: tree, run: func(t *fsT) {
		before := time.Now().Add(-20 * time.Millisecond) // the kernel's clock for files is coarse
		t.put("f", "x")
		t.ok(unix.Mkdir("dir", 0o755))
		t.ok(unix.Symlink("f", "l"))
		t.ok(unix.Mkfifo("p", 0o644))
		after := time.Now()
		for _, name := range []string{"f", "dir", "l", "p"} {
			st := t.stat(name)
			for which, ts := range map[string]unix.Timespec{"atime": st.Atim, "mtime": st.Mtim, "ctime": st.Ctim} {
				if at := time.Unix(ts.Unix()); at.Before(before) || at.After(after) {
					t.fail("%s of %s is %v, not between %v and %v", which, name, at, before, after)
				}
			}
		}
	}}, fsCase{name: "times/order", tree: tree, run: func(t *fsT) {
		t.put("one", "x")
		t.tick()
		t.put("two", "x")
		t.tick()
		t.ok(unix.Chmod("one", 0o600))
		one, two := t.stat("one"), t.stat("two")
		if one.Mtim.Nano() >= two.Mtim.Nano() || one.Ctim.Nano() <= two.Ctim.Nano() {
			t.fail("mtimes %v and %v, ctimes %v and %v", one.Mtim, two.Mtim, one.Ctim, two.Ctim)
		}
	}}, fsCase{name: "times/mmap-write", tree: tree, run: func(t *fsT) {
		m := t.mmap(t.open("d/f", rdwr), 0, 5000, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		m[0] = 'x'
		t.ok(unix.Msync(m, unix.MS_SYNC))
		t.ok(unix.Munmap(m)) // POSIX: mtime is to change by now; Linux's tmpfs does not
		t.has("d/f", "x"+bytesOf(5000)[1:])
	}})
}

func (r *touch) run(t *fsT) {
	file := r.file
	if file == "" {
		file = "d/f"
	}
	// The times of the files were set, so only a change can make them new. If
	// they have been read since, that is undone.
	for _, name := range []string{file, "d"} {
		if t.stat(name).Atim != fsTime {
			t.ok(fsSetTime(name, fsTime, unix.Timespec{Nsec: unix.UTIME_OMIT}))
		}
	}
	f, d := t.stat(file), t.stat("d")
	t.tick()
	r.do(t)
	var g unix.Stat_t
	t.ok(unix.Lstat(file, &g))
	got, want := fsChanged(f, g)+"/"+fsChanged(d, t.stat("d")), r.want
	var s unix.Statfs_t
	t.ok(unix.Statfs(".", &s))
	switch {
	case s.Flags&unix.ST_NOATIME != 0:
		want = strings.ReplaceAll(want, "a", "")
	case t.mode == fsImage && strings.Contains(want, "a"):
		// That it was read need not make a file of the image another one.
		got, want = strings.ReplaceAll(got, "a", ""), strings.ReplaceAll(want, "a", "")
	}
	eq(t, "what changed of file/directory", got, want)
}

func fsChanged(a, b unix.Stat_t) string {
	s := ""
	if a.Atim != b.Atim {
		s += "a"
	}
	if a.Mtim != b.Mtim {
		s += "m"
	}
	if a.Ctim != b.Ctim {
		s += "c"
	}
	return s
}

func fsUtimeCases() []fsCase {
	const tree = "f f x; f@1000.1001 own o; f:666 writable w; d d; l link f; f:644 readable r"
	at := func(name string, a, m unix.Timespec, flags int) error {
		return unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{a, m}, flags)
	}
	now, omit := unix.Timespec{Nsec: unix.UTIME_NOW}, unix.Timespec{Nsec: unix.UTIME_OMIT}
	isNow := func(t *fsT, what string, ts unix.Timespec) {
		if d := time.Since(time.Unix(ts.Unix())); d < 0 || d > time.Minute {
			t.fail("%s is %v before now", what, d)
		}
	}
	cases := []fsCase{
		{name: "utimes/exact", tree: tree, run: func(t *fsT) {
			for _, name := range []string{"f", "d"} {
				for _, sec := range []int64{0, 1, 1 << 31, 1 << 33, -1, -100000} {
					a, m := unix.Timespec{Sec: sec, Nsec: 999999999}, unix.Timespec{Sec: sec + 1, Nsec: 1}
					t.ok(at(name, a, m, 0))
					st := t.stat(name)
					eq(t, "atime of "+name, st.Atim, a)
					eq(t, "mtime of "+name, st.Mtim, m)
					isNow(t, "ctime of "+name, st.Ctim)
				}
			}
		}},
		{name: "utimes/now-and-omit", tree: tree, run: func(t *fsT) {
			a := unix.Timespec{Sec: 5, Nsec: 6}
			t.ok(at("f", a, omit, 0))
			st := t.stat("f")
			eq(t, "atime", st.Atim, a)
			eq(t, "mtime", st.Mtim, fsTime)
			t.ok(at("f", omit, now, 0))
			st = t.stat("f")
			eq(t, "atime", st.Atim, a)
			isNow(t, "mtime", st.Mtim)
			t.ok(at("f", now, a, 0))
			st = t.stat("f")
			isNow(t, "atime", st.Atim)
			eq(t, "mtime", st.Mtim, a)
		}},
		{name: "utimes/omit-both", tree: tree, run: func(t *fsT) {
			before := t.stat("f")
			t.tick()
			t.ok(at("f", omit, omit, 0))
			eq(t, "ctime", t.stat("f").Ctim, before.Ctim)
			t.intact()
		}},
		{name: "utimes/null", tree: tree, run: func(t *fsT) {
			_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(t.open("f", rdonly)), 0, 0, 0, 0, 0)
			if errno != 0 {
				t.fail("utimensat: %v", errno)
			}
			isNow(t, "mtime", t.stat("f").Mtim)
		}},
		{name: "utimes/link", tree: tree, run: func(t *fsT) {
			a, m := unix.Timespec{Sec: 5}, unix.Timespec{Sec: 6}
			t.ok(at("link", a, m, unix.AT_SYMLINK_NOFOLLOW))
			eq(t, "mtime of link", t.stat("link").Mtim, m)
			eq(t, "mtime of file", t.stat("f").Mtim, fsTime)
			t.ok(at("link", a, m, 0))
			eq(t, "mtime of file", t.stat("f").Mtim, m)
		}},
		{name: "utimes/by-user", tree: tree, run: func(t *fsT) {
			t.user(func() {
				t.ok(at("own", unix.Timespec{Sec: 5}, unix.Timespec{Sec: 6}, 0))
				eq(t, "mtime", t.stat("own").Mtim, unix.Timespec{Sec: 6})
				t.ok(at("writable", now, now, 0)) // needs no more than permission to write
				isNow(t, "mtime", t.stat("writable").Mtim)
			})
		}},
		{name: "utimes/kept", tree: tree, run: func(t *fsT) {
			// What does not change the data leaves mtime alone.
			m := unix.Timespec{Sec: 1234567890, Nsec: 987654321}
			t.ok(at("f", m, m, 0))
			t.ok(unix.Chmod("f", 0o600))
			t.ok(unix.Chown("f", 1, 2))
			t.ok(unix.Rename("f", "d/f"))
			t.ok(unix.Link("d/f", "g"))
			t.ok(unix.Setxattr("g", "user.a", []byte("x"), 0))
			t.ok(try("g", rdwr))
			eq(t, "mtime", t.stat("d/f").Mtim, m)
		}},
		{name: "utimes/statx", tree: tree, run: func(t *fsT) {
			var x unix.Statx_t
			t.ok(unix.Statx(unix.AT_FDCWD, "f", 0, unix.STATX_BASIC_STATS, &x))
			st := t.stat("f")
			got := fmt.Sprint(x.Ino, x.Mode, x.Nlink, x.Uid, x.Gid, x.Size, x.Blocks, x.Mtime.Sec, x.Mtime.Nsec, x.Ctime.Sec, x.Ctime.Nsec)
			want := fmt.Sprint(st.Ino, st.Mode, st.Nlink, st.Uid, st.Gid, st.Size, st.Blocks, st.Mtim.Sec, st.Mtim.Nsec, st.Ctim.Sec, st.Ctim.Nsec)
			eq(t, "statx", got, want)
		}},
	}
	cases = append(cases, fsFailures("utimes", tree,
		failure{"invalid-nanoseconds", unix.EINVAL, func() error { return at("f", unix.Timespec{Nsec: 1e9}, now, 0) }},
		failure{"negative-nanoseconds", unix.EINVAL, func() error { return at("f", now, unix.Timespec{Nsec: -1}, 0) }},
		failure{"missing", unix.ENOENT, func() error { return at("nothing", now, now, 0) }},
		failure{"file-as-parent", unix.ENOTDIR, func() error { return at("f/x", now, now, 0) }},
	)...)
	return append(cases, fsUserFailures("utimes", tree,
		failure{"now-read-only", unix.EACCES, func() error { return at("readable", now, now, 0) }},
		failure{"set-of-other", unix.EPERM, func() error { return at("writable", fsTime, fsTime, 0) }},
		failure{"half-of-other", unix.EPERM, func() error { return at("writable", now, omit, 0) }},
	)...)
}
