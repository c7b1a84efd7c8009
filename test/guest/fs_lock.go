package main

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// fsLock tries to get a POSIX lock, since those conflict between processes only.
// Its arguments are a file, r or w, the start and the length; it prints whether
// it got the lock, and else what F_GETLK says.
func fsLock(args []string) (int, error) {
	fd, err := unix.Open(args[0], rdwr|unix.O_CLOEXEC, 0)
	if err != nil {
		return 1, err
	}
	l := unix.Flock_t{Type: lockTypes[args[1]], Start: int64(mustInt(args[2], 10)), Len: int64(mustInt(args[3], 10))}
	err = unix.FcntlFlock(uintptr(fd), unix.F_SETLK, &l)
	switch {
	case err == nil:
		fmt.Print("free")
		return 0, nil
	case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES):
		return 1, err
	}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &l); err != nil {
		return 1, err
	}
	fmt.Printf("held %d %d+%d by %d", l.Type, l.Start, l.Len, l.Pid)
	return 0, nil
}

var lockTypes = map[string]int16{"r": unix.F_RDLCK, "w": unix.F_WRLCK}

// other tries to get a lock in another process.
func (t *fsT) other(name, kind string, start, length int) string {
	return t.runProgram("/proc/self/exe", "fs", "lock", name, kind, fmt.Sprint(start), fmt.Sprint(length))
}

// lock gets or drops a lock of this process, or of a descriptor with the
// commands for open file descriptions.
func (t *fsT) lock(fd, cmd int, kind int16, start, length int64) error {
	l := unix.Flock_t{Type: kind, Start: start, Len: length}
	return unix.FcntlFlock(uintptr(fd), cmd, &l)
}

func fsLockCases() []fsCase {
	const tree = "f f *10000; h link f; d d"
	flock := func(fd, how int) error { return unix.Flock(fd, how|unix.LOCK_NB) }
	return []fsCase{
		{name: "flock/conflicts", tree: tree, run: func(t *fsT) {
			a, b, c := t.open("f", rdonly), t.open("link", rdonly), t.open("f", rdwr)
			t.ok(flock(a, unix.LOCK_SH))
			t.ok(flock(b, unix.LOCK_SH))
			t.is(flock(c, unix.LOCK_EX), unix.EWOULDBLOCK)
			t.ok(flock(b, unix.LOCK_UN))
			t.ok(flock(a, unix.LOCK_EX)) // upgraded
			t.is(flock(c, unix.LOCK_SH), unix.EWOULDBLOCK)
			t.ok(flock(a, unix.LOCK_UN))
			t.ok(flock(c, unix.LOCK_EX))
		}},
		{name: "flock/goes-with-last-close", tree: tree, run: func(t *fsT) {
			a, err := unix.Open("f", rdonly|unix.O_CLOEXEC, 0)
			t.ok(err)
			dup, err := unix.Dup(a)
			t.ok(err)
			b := t.open("f", rdonly)
			t.ok(flock(a, unix.LOCK_EX))
			t.close(a)
			t.is(flock(b, unix.LOCK_EX), unix.EWOULDBLOCK)
			t.close(dup)
			t.ok(flock(b, unix.LOCK_EX))
		}},
		{name: "flock/survives-changes", tree: tree, run: func(t *fsT) {
			// The lock is on the inode, whatever happens to the file.
			a := t.open("f", rdonly)
			t.ok(flock(a, unix.LOCK_EX))
			t.pwrite(t.open("f", wronly), "new", 0)
			t.is(flock(t.open("f", rdonly), unix.LOCK_EX), unix.EWOULDBLOCK)
			t.ok(unix.Rename("f", "d/g"))
			t.is(flock(t.open("d/g", rdonly), unix.LOCK_EX), unix.EWOULDBLOCK)
			t.is(flock(t.open("link", rdonly), unix.LOCK_EX), unix.EWOULDBLOCK)
			t.put("f", "another file")
			t.ok(flock(t.open("f", rdonly), unix.LOCK_EX))
		}},
		{name: "flock/directory", tree: tree, run: func(t *fsT) {
			t.ok(flock(t.open("d", rdonly), unix.LOCK_EX))
			t.is(flock(t.open("d", rdonly), unix.LOCK_EX), unix.EWOULDBLOCK)
		}},
		{name: "lock/conflicts", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			t.ok(t.lock(fd, unix.F_SETLK, unix.F_WRLCK, 100, 50))
			me := fmt.Sprint(" by ", unix.Getpid())
			eq(t, "same range", t.other("f", "w", 100, 50), "held 1 100+50"+me)
			eq(t, "overlap", t.other("link", "r", 149, 10), "held 1 100+50"+me)
			eq(t, "before", t.other("f", "w", 0, 100), "free")
			eq(t, "behind", t.other("f", "w", 150, 0), "free")
			t.ok(t.lock(fd, unix.F_SETLK, unix.F_RDLCK, 100, 50))
			eq(t, "reader", t.other("f", "r", 100, 50), "free")
			eq(t, "writer", t.other("f", "w", 0, 0), "held 0 100+50"+me)
			t.ok(t.lock(fd, unix.F_SETLK, unix.F_UNLCK, 110, 10)) // splits it
			eq(t, "middle", t.other("f", "w", 110, 10), "free")
			eq(t, "behind the middle", t.other("f", "w", 110, 20), "held 0 120+30"+me)
		}},
		{name: "lock/goes-with-any-close", tree: tree, run: func(t *fsT) {
			t.ok(t.lock(t.open("f", rdwr), unix.F_SETLK, unix.F_WRLCK, 0, 0))
			if got := t.other("f", "r", 5000, 1); !strings.HasPrefix(got, "held 1 0+") {
				t.fail("lock is %q", got)
			}
			t.ok(try("link", rdonly))
			eq(t, "after a close", t.other("f", "w", 0, 0), "free")
		}},
		{name: "lock/survives-changes", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			t.ok(t.lock(fd, unix.F_SETLK, unix.F_WRLCK, 0, 10))
			t.pwrite(fd, "new", 0)
			t.ok(unix.Rename("f", "d/g"))
			if got := t.other("d/g", "w", 0, 1); !strings.HasPrefix(got, "held 1 0+10") {
				t.fail("lock is %q", got)
			}
		}},
		{name: "lock/open-file-description", tree: tree, run: func(t *fsT) {
			a, b := t.open("f", rdwr), t.open("link", rdwr)
			err := t.lock(a, unix.F_OFD_SETLK, unix.F_WRLCK, 0, 10)
			if errors.Is(err, unix.EINVAL) {
				t.fail("locks of open file descriptions are not known")
			}
			t.ok(err)
			t.is(t.lock(b, unix.F_OFD_SETLK, unix.F_RDLCK, 5, 10), unix.EAGAIN)
			t.ok(t.lock(b, unix.F_OFD_SETLK, unix.F_WRLCK, 10, 10))
			l := unix.Flock_t{Type: unix.F_WRLCK, Start: 0, Len: 5}
			t.ok(unix.FcntlFlock(uintptr(b), unix.F_OFD_GETLK, &l))
			eq(t, "lock", fmt.Sprint(l.Type, l.Start, l.Len, l.Pid), fmt.Sprint(unix.F_WRLCK, 0, 10, -1))
			t.ok(try("f", rdonly)) // a close of another description does not matter
			t.is(t.lock(b, unix.F_OFD_SETLK, unix.F_RDLCK, 0, 1), unix.EAGAIN)
			t.close(a)
			t.ok(t.lock(b, unix.F_OFD_SETLK, unix.F_WRLCK, 0, 0))
		}},
		{name: "lock/invalid", tree: tree, run: func(t *fsT) {
			t.is(t.lock(t.open("f", rdonly), unix.F_SETLK, unix.F_WRLCK, 0, 0), unix.EBADF)
			t.is(t.lock(t.open("f", wronly), unix.F_SETLK, unix.F_RDLCK, 0, 0), unix.EBADF)
			t.is(t.lock(t.open("f", rdwr), unix.F_SETLK, unix.F_WRLCK, -5, 2), unix.EINVAL)
		}},
	}
}
