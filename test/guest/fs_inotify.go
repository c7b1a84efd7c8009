package main

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// watch is an inotify instance whose events are told as "CREATE new".
type watch struct {
	t     *fsT
	fd    int
	paths map[int32]string
}

func (t *fsT) watch(paths ...string) *watch {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	t.ok(err)
	t.later(func() { unix.Close(fd) })
	w := &watch{t, fd, map[int32]string{}}
	for _, p := range paths {
		wd, err := unix.InotifyAddWatch(fd, p, unix.IN_ALL_EVENTS)
		t.ok(err)
		w.paths[int32(wd)] = p
	}
	return w
}

var eventNames = []struct {
	bit  uint32
	name string
}{
	{unix.IN_ACCESS, "ACCESS"}, {unix.IN_MODIFY, "MODIFY"}, {unix.IN_ATTRIB, "ATTRIB"}, {unix.IN_CLOSE_WRITE, "CLOSE_WRITE"},
	{unix.IN_CLOSE_NOWRITE, "CLOSE_NOWRITE"}, {unix.IN_OPEN, "OPEN"}, {unix.IN_MOVED_FROM, "MOVED_FROM"},
	{unix.IN_MOVED_TO, "MOVED_TO"}, {unix.IN_CREATE, "CREATE"}, {unix.IN_DELETE, "DELETE"}, {unix.IN_DELETE_SELF, "DELETE_SELF"},
	{unix.IN_MOVE_SELF, "MOVE_SELF"}, {unix.IN_IGNORED, "IGNORED"}, {unix.IN_Q_OVERFLOW, "OVERFLOW"}, {unix.IN_ISDIR, "ISDIR"},
}

// events returns what happened: "WATCHED: NAME|NAME ENTRY", and "=N" behind it
// if it belongs to another one with the same number.
func (w *watch) events() []string {
	var all []string
	cookies := map[uint32]int{}
	b := make([]byte, 64<<10)
	for {
		n, err := unix.Read(w.fd, b)
		if err == unix.EAGAIN {
			return all
		}
		w.t.ok(err)
		for e := b[:n]; len(e) > 0; {
			wd, mask := int32(binary.NativeEndian.Uint32(e)), binary.NativeEndian.Uint32(e[4:])
			cookie, length := binary.NativeEndian.Uint32(e[8:]), binary.NativeEndian.Uint32(e[12:])
			var names []string
			if mask&(unix.IN_MOVE_SELF|unix.IN_DELETE_SELF) != 0 {
				mask &^= unix.IN_ISDIR // which Linux does not set, but documents for all events
			}
			for _, x := range eventNames {
				if mask&x.bit != 0 {
					names = append(names, x.name)
				}
			}
			s := w.paths[wd] + ": " + strings.Join(names, "|")
			if name := cstring(e[16 : 16+length]); name != "" {
				s += " " + name
			}
			if cookie != 0 {
				if cookies[cookie] == 0 {
					cookies[cookie] = len(cookies) + 1
				}
				s += fmt.Sprint(" =", cookies[cookie])
			}
			all = append(all, s)
			e = e[16+length:]
		}
	}
}

// saw fails the case unless the events happened in this order. Others may have
// happened between them.
func (w *watch) saw(want ...string) {
	var got []string
	for until := time.Now().Add(time.Second); ; {
		got = append(got, w.events()...)
		left := want
		for _, e := range got {
			if len(left) > 0 && e == left[0] {
				left = left[1:]
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(until) {
			w.t.fail("no event %q among %q", left[0], got)
		}
		w.t.tick()
	}
}

// inotifyRow is an operation and what a watch on the directory d, and one on the
// file d/f, must tell of it.
type inotifyRow struct {
	name string
	want []string
	do   func(t *fsT)
}

func fsInotifyCases() []fsCase {
	const tree = "d d; f d/f hello; d d/sub; f d/sub/x x; d out; f out/o o; f d/g g"
	rows := []inotifyRow{
		{"creat", []string{"d: CREATE new", "d: OPEN new", "d: CLOSE_WRITE new"}, func(t *fsT) { t.ok(try("d/new", wronly|creat)) }},
		{"open-and-close", []string{"d: OPEN f", "d/f: OPEN", "d: CLOSE_NOWRITE f", "d/f: CLOSE_NOWRITE"}, func(t *fsT) { t.ok(try("d/f", rdonly)) }},
		{"write", []string{"d: MODIFY f", "d/f: MODIFY"}, func(t *fsT) { t.write(t.open("d/f", wronly), "x") }},
		{"close-write", []string{"d: CLOSE_WRITE f", "d/f: CLOSE_WRITE"}, func(t *fsT) { t.ok(try("d/f", rdwr)) }},
		{"read", []string{"d: ACCESS f", "d/f: ACCESS"}, func(t *fsT) { t.has("d/f", "hello") }},
		{"truncate", []string{"d: MODIFY f", "d/f: MODIFY"}, func(t *fsT) { t.ok(unix.Truncate("d/f", 1)) }},
		{"ftruncate", []string{"d: MODIFY f", "d/f: MODIFY"}, func(t *fsT) { t.ok(unix.Ftruncate(t.open("d/f", rdwr), 1)) }},
		{"trunc", []string{"d: MODIFY f", "d/f: MODIFY"}, func(t *fsT) { t.ok(try("d/f", wronly|trunc)) }},
		{"chmod", []string{"d: ATTRIB f", "d/f: ATTRIB"}, func(t *fsT) { t.ok(unix.Chmod("d/f", 0o600)) }},
		{"chown", []string{"d: ATTRIB f", "d/f: ATTRIB"}, func(t *fsT) { t.ok(unix.Chown("d/f", 1, 1)) }},
		{"utimes", []string{"d: ATTRIB f", "d/f: ATTRIB"}, func(t *fsT) { t.ok(fsSetTime("d/f", unix.Timespec{Sec: 1}, unix.Timespec{Sec: 2})) }},
		{"setxattr", []string{"d: ATTRIB f", "d/f: ATTRIB"}, func(t *fsT) { t.setxattr("d/f", "user.a", "x", 0) }},
		{"chmod-directory", []string{"d: ATTRIB|ISDIR sub"}, func(t *fsT) { t.ok(unix.Chmod("d/sub", 0o700)) }},
		{"chmod-watched-directory", []string{"d: ATTRIB|ISDIR"}, func(t *fsT) { t.ok(unix.Chmod("d", 0o700)) }},
		{"mkdir", []string{"d: CREATE|ISDIR new"}, func(t *fsT) { t.ok(unix.Mkdir("d/new", 0o755)) }},
		{"rmdir", []string{"d: DELETE|ISDIR new"}, func(t *fsT) { t.ok(unix.Mkdir("d/new", 0o755)); t.ok(unix.Rmdir("d/new")) }},
		{"symlink", []string{"d: CREATE new"}, func(t *fsT) { t.ok(unix.Symlink("x", "d/new")) }},
		{"link", []string{"d/f: ATTRIB", "d: CREATE new"}, func(t *fsT) { t.ok(unix.Link("d/f", "d/new")) }},
		{"mkfifo", []string{"d: CREATE new"}, func(t *fsT) { t.ok(unix.Mkfifo("d/new", 0o644)) }},
		{"unlink", []string{"d: DELETE g"}, func(t *fsT) { t.ok(unix.Unlink("d/g")) }},
		{"unlink-self", []string{"d/f: ATTRIB", "d/f: DELETE_SELF", "d/f: IGNORED"}, func(t *fsT) { t.ok(unix.Unlink("d/f")) }},
		{"rename", []string{"d: MOVED_FROM f =1", "d: MOVED_TO new =1", "d/f: MOVE_SELF"}, func(t *fsT) { t.ok(unix.Rename("d/f", "d/new")) }},
		{"rename-out", []string{"d: MOVED_FROM f =1", "d/f: MOVE_SELF"}, func(t *fsT) { t.ok(unix.Rename("d/f", "out/f")) }},
		{"rename-in", []string{"d: MOVED_TO o =1"}, func(t *fsT) { t.ok(unix.Rename("out/o", "d/o")) }},
		{"rename-over", []string{"d: MOVED_FROM g =1", "d: MOVED_TO f =1", "d/f: DELETE_SELF"}, func(t *fsT) { t.ok(unix.Rename("d/g", "d/f")) }},
		{"rename-directory", []string{"d: MOVED_FROM|ISDIR sub =1", "d: MOVED_TO|ISDIR new =1"}, func(t *fsT) { t.ok(unix.Rename("d/sub", "d/new")) }},
		{"exchange", []string{"d: MOVED_FROM f =1", "d: MOVED_TO g =1"}, func(t *fsT) { t.ok(rename2("d/f", "d/g", unix.RENAME_EXCHANGE)) }},
		{"fallocate", []string{"d: MODIFY f", "d/f: MODIFY"}, func(t *fsT) { t.ok(fallocate(t.open("d/f", rdwr), 0, 0, 9000)) }},
		{"by-other-name", []string{"d/f: MODIFY"}, func(t *fsT) {
			t.ok(unix.Link("d/f", "out/f"))
			t.write(t.open("out/f", wronly), "x")
		}},
		{"by-early-descriptor", []string{"d/f: MODIFY", "d/f: ATTRIB", "d/f: MODIFY"}, func(t *fsT) {
			fd := t.open("d/f", rdwr)
			t.write(fd, "x")
			t.ok(unix.Fchmod(fd, 0o600))
			t.write(fd, "y")
		}},
	}
	var cases []fsCase
	for _, r := range rows {
		cases = append(cases, fsCase{name: "inotify/" + r.name, tree: tree, run: func(t *fsT) {
			w := t.watch("d", "d/f")
			r.do(t)
			w.saw(r.want...)
		}})
	}
	return append(cases,
		fsCase{name: "inotify/nothing-of-below", tree: tree, run: func(t *fsT) {
			w := t.watch("d")
			t.put("d/sub/new", "x")
			t.put("out/new", "x")
			t.tick()
			for _, e := range w.events() {
				if strings.HasSuffix(e, " new") || strings.HasSuffix(e, " x") {
					t.fail("an event of another directory: %q", e)
				}
			}
		}},
		fsCase{name: "inotify/after-removal-of-watch", tree: tree, run: func(t *fsT) {
			w := t.watch("d")
			for wd := range w.paths {
				_, err := unix.InotifyRmWatch(w.fd, uint32(wd))
				t.ok(err)
			}
			w.saw("d: IGNORED")
			t.put("d/new", "x")
			if e := w.events(); slices.Contains(e, "d: CREATE new") {
				t.fail("events %q", e)
			}
		}},
		fsCase{name: "inotify/watched-directory-moves", tree: tree, run: func(t *fsT) {
			w := t.watch("d")
			t.ok(unix.Rename("d", "out/d"))
			w.saw("d: MOVE_SELF")
			t.put("out/d/new", "x")
			w.saw("d: CREATE new")
		}},
		fsCase{name: "inotify/watched-directory-removed", tree: "d d", run: func(t *fsT) {
			w := t.watch("d")
			t.ok(unix.Rmdir("d"))
			w.saw("d: DELETE_SELF", "d: IGNORED")
		}},
		fsCase{name: "inotify/one-file-for-long", tree: tree, run: func(t *fsT) {
			// The watch is on the inode: it stays when the file is changed for
			// the first time, and when it moves.
			w := t.watch("d/f")
			t.ok(unix.Chmod("d/f", 0o600))
			w.saw("d/f: ATTRIB")
			t.write(t.open("d/f", wronly), "x")
			w.saw("d/f: MODIFY")
			t.ok(unix.Rename("d/f", "out/f"))
			w.saw("d/f: MOVE_SELF")
			t.write(t.open("out/f", wronly), "y")
			w.saw("d/f: MODIFY")
		}},
	)
}
