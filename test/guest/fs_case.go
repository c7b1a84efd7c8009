package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// fsCase is one thing that a file system must do. It runs in a directory of its
// own, which is the working directory and has the files of tree in it.
type fsCase struct {
	name string // AREA/WHAT
	tree string // see fsParse
	run  func(t *fsT)
	// once is set for cases that would say the same in every mode.
	once bool
	// limited is set for cases that need a file system with little space.
	limited bool
}

// fsT is what a case gets. Its methods end the case if something fails.
type fsT struct {
	dir   string // the working directory
	mode  string
	limit int64 // bytes that can be written, if the case is limited
	nodes []fsNode
	undo  []func()
}

// fsFailure says what is wrong, and where that was seen.
type fsFailure string

func (f fsFailure) Error() string { return string(f) }

// fsSkip says why a case cannot be tried.
type fsSkip string

func (s fsSkip) Error() string { return string(s) }

func (t *fsT) fail(format string, args ...any) {
	panic(fsFailure(fsCaller() + fmt.Sprintf(format, args...)))
}

func (t *fsT) skip(format string, args ...any) { panic(fsSkip(fmt.Sprintf(format, args...))) }

// ok fails the case if err is not nil.
func (t *fsT) ok(err error) {
	if err != nil {
		t.fail("failed: %v", fsErrno(err))
	}
}

// is fails the case if err is none of want.
func (t *fsT) is(err error, want ...unix.Errno) {
	for _, w := range want {
		if errors.Is(err, w) {
			return
		}
	}
	var names []string
	for _, w := range want {
		names = append(names, unix.ErrnoName(w))
	}
	t.fail("%v, not %s", fsErrno(err), strings.Join(names, " or "))
}

// fsErrno is the name of an error.
func fsErrno(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return "success"
	case errors.As(err, &errno) && unix.ErrnoName(errno) != "":
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// eq fails the case if got is not want.
func eq[T comparable](t *fsT, what string, got, want T) {
	if got != want {
		t.fail("%s is %s, not %s", what, fsShow(got), fsShow(want))
	}
}

func fsShow(v any) string {
	s, ok := v.(string)
	switch {
	case ok && len(s) > 60:
		return fmt.Sprintf("%q... (%d bytes)", s[:60], len(s))
	case ok:
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprint(v)
}

// same fails the case if got is not want, and says where they begin to differ.
func (t *fsT) same(what string, got, want []byte) {
	if bytes.Equal(got, want) {
		return
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.fail("%s: byte %d is %#x, not %#x (%d bytes, not %d)", what, i, got[i], want[i], len(got), len(want))
		}
	}
	t.fail("%s has %d bytes, not %d", what, len(got), len(want))
}

// later has f called when the case is over.
func (t *fsT) later(f func()) { t.undo = append(t.undo, f) }

// open opens a file until the end of the case.
func (t *fsT) open(name string, flags int, mode ...uint32) int {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, append(mode, 0o644)[0])
	if err != nil {
		t.fail("open %q: %v", name, fsErrno(err))
	}
	t.later(func() { unix.Close(fd) })
	return fd
}

// try opens a file and closes it.
func try(name string, flags int, mode ...uint32) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, append(mode, 0o644)[0])
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// put makes or replaces a file.
func (t *fsT) put(name, data string) {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o644)
	if err != nil {
		t.fail("open %q to write: %v", name, fsErrno(err))
	}
	defer unix.Close(fd)
	t.write(fd, data)
}

// get reads a file.
func (t *fsT) get(name string) string {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.fail("open %q to read: %v", name, fsErrno(err))
	}
	defer unix.Close(fd)
	return t.rest(fd)
}

// has fails the case unless the file has these contents.
func (t *fsT) has(name, want string) {
	if got := t.get(name); got != want {
		t.fail("%s has %s, not %s", name, fsShow(got), fsShow(want))
	}
}

// rest reads to the end.
func (t *fsT) rest(fd int) string {
	var all []byte
	b := make([]byte, 64<<10)
	for {
		n, err := unix.Read(fd, b)
		if err == unix.EINTR {
			continue
		}
		t.ok(err)
		if n == 0 {
			return string(all)
		}
		all = append(all, b[:n]...)
	}
}

func (t *fsT) write(fd int, data string) {
	for len(data) > 0 {
		n, err := unix.Write(fd, []byte(data))
		if err == unix.EINTR {
			continue
		}
		t.ok(err)
		data = data[n:]
	}
}

func (t *fsT) pwrite(fd int, data string, at int64) {
	n, err := unix.Pwrite(fd, []byte(data), at)
	t.ok(err)
	eq(t, "bytes written", n, len(data))
}

// pread reads up to n bytes at a place.
func (t *fsT) pread(fd, n int, at int64) string {
	b := make([]byte, n)
	n, err := unix.Pread(fd, b, at)
	t.ok(err)
	return string(b[:n])
}

func (t *fsT) close(fd int) { t.ok(unix.Close(fd)) }

// stat is lstat(2).
func (t *fsT) stat(name string) unix.Stat_t {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		t.fail("lstat %q: %v", name, fsErrno(err))
	}
	return st
}

func (t *fsT) fstat(fd int) unix.Stat_t {
	var st unix.Stat_t
	t.ok(unix.Fstat(fd, &st))
	return st
}

func (t *fsT) size(name string, want int64) { eq(t, "size of "+name, t.stat(name).Size, want) }

func (t *fsT) nlink(name string, want uint64) {
	eq(t, "nlink of "+name, uint64(t.stat(name).Nlink), want)
}

// mode fails the case unless the file has the type and permissions.
func (t *fsT) hasMode(name string, want uint32) {
	if got := t.stat(name).Mode; got != want {
		t.fail("mode of %s is %#o, not %#o", name, got, want)
	}
}

// owner fails the case unless the file belongs to user and group.
func (t *fsT) owner(name string, uid, gid uint32) {
	if st := t.stat(name); st.Uid != uid || st.Gid != gid {
		t.fail("%s belongs to %d:%d, not %d:%d", name, st.Uid, st.Gid, uid, gid)
	}
}

// gone fails the case unless there is no such file.
func (t *fsT) gone(names ...string) {
	for _, name := range names {
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); !errors.Is(err, unix.ENOENT) {
			t.fail("lstat %q: %v, not ENOENT", name, fsErrno(err))
		}
	}
}

// lists fails the case unless a directory has the entries, which are given
// sorted and with spaces between them.
func (t *fsT) lists(dir, want string) { eq(t, "list of "+dir, strings.Join(t.names(dir), " "), want) }

// names returns the sorted entries of a directory but "." and "..".
func (t *fsT) names(dir string) []string {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.fail("open directory %q: %v", dir, fsErrno(err))
	}
	defer unix.Close(fd)
	var names []string
	for _, e := range t.entries(fd, 32<<10) {
		if e.name != "." && e.name != ".." {
			names = append(names, e.name)
		}
	}
	slices.Sort(names)
	return names
}

// fsEntry is one entry that getdents64(2) returned.
type fsEntry struct {
	name string
	ino  uint64
	off  int64
	kind byte
}

// entries reads a directory to its end, with a buffer of that size.
func (t *fsT) entries(fd, buffer int) []fsEntry {
	var all []fsEntry
	for {
		some := t.someEntries(fd, buffer)
		if len(some) == 0 {
			return all
		}
		all = append(all, some...)
	}
}

// someEntries calls getdents64(2) once.
func (t *fsT) someEntries(fd, buffer int) []fsEntry {
	b := make([]byte, buffer)
	n, err := unix.Getdents(fd, b)
	t.ok(err)
	var some []fsEntry
	for b = b[:n]; len(b) > 0; {
		length := binary.NativeEndian.Uint16(b[16:])
		name, _, _ := strings.Cut(string(b[19:length]), "\x00")
		some = append(some, fsEntry{name, binary.NativeEndian.Uint64(b), int64(binary.NativeEndian.Uint64(b[8:])), b[18]})
		b = b[length:]
	}
	return some
}

// intact fails the case unless the files are as they were at its start.
func (t *fsT) intact() {
	if err := fsCheckTree(".", t.nodes); err != nil {
		t.fail("changed: %v", err)
	}
}

// tick waits until a file that is changed now gets a later time than one that
// was changed before.
func (t *fsT) tick() { time.Sleep(12 * time.Millisecond) }

// The user that is not root. It is also in group otherGroup.
const (
	userID     = 1000
	userGroup  = 1001
	otherGroup = 1002
)

// user runs f as the user.
func (t *fsT) user(f func()) { t.as(userID, userGroup, []uint32{otherGroup}, f) }

// as runs f with other credentials, which one thread has.
func (t *fsT) as(uid, gid int, groups []uint32, f func()) {
	done := make(chan any, 1)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		debug.SetPanicOnFault(true)
		defer func() { done <- recover() }()
		if err := setCredentials(uid, gid, groups); err != nil {
			t.fail("become user %d: %v", uid, err)
		}
		f()
	}()
	if p := <-done; p != nil {
		panic(p)
	}
}

// failure is a call that must fail and change nothing.
type failure struct {
	name string
	want unix.Errno
	do   func() error
}

// fsFailures makes cases of calls, each of which must fail in a directory with
// the files of tree.
func fsFailures(area, tree string, rows ...failure) []fsCase {
	return fsFailuresOf(area, tree, func(_ *fsT, f func()) { f() }, rows)
}

// fsUserFailures is fsFailures for calls of the user who is not root.
func fsUserFailures(area, tree string, rows ...failure) []fsCase {
	return fsFailuresOf(area, tree, (*fsT).user, rows)
}

func fsFailuresOf(area, tree string, as func(*fsT, func()), rows []failure) []fsCase {
	var cases []fsCase
	for _, r := range rows {
		cases = append(cases, fsCase{name: area + "/" + r.name, tree: tree, run: func(t *fsT) {
			var err error
			as(t, func() { err = r.do() })
			if !errors.Is(err, r.want) {
				t.fail("%s: %v, not %s", r.name, fsErrno(err), unix.ErrnoName(r.want))
			}
			t.intact()
		}})
	}
	return cases
}

// bytesOf is a pattern in which every position of a page and every page looks
// different.
func bytesOf(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('!' + (i*7+i/4096*13+i/251)%90)
	}
	return string(b)
}

const page = 4096
