package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// free is how many bytes statfs(2) says are free.
func (t *fsT) free() int64 {
	var s unix.Statfs_t
	t.ok(unix.Statfs(".", &s))
	return int64(s.Bavail) * s.Bsize
}

// space prints the size of the file system at a path, in bytes.
func space(args []string) (int, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(args[0], &s); err != nil {
		return 1, err
	}
	fmt.Println(int64(s.Blocks) * s.Bsize)
	return 0, nil
}

// fill writes to a file until there is no space and returns how many bytes it
// took.
func (t *fsT) fill(fd int) int64 {
	chunk := []byte(bytesOf(64 << 10))
	total := int64(0)
	for total < 4*t.limit {
		n, err := unix.Write(fd, chunk)
		if err != nil {
			t.is(err, unix.ENOSPC)
			return total
		}
		total += int64(n)
	}
	t.fail("%d MiB could be written, the limit is %d", total>>20, t.limit>>20)
	return 0
}

// near fails the case unless got is about want: the file system needs some of
// the space for itself.
func (t *fsT) near(what string, got, want int64) {
	if slack := t.limit / 10; got < want-slack || got > want+slack {
		t.fail("%s is %d KiB, not about %d", what, got>>10, want>>10)
	}
}

func fsSpaceCases() []fsCase {
	limited := []fsCase{
		{name: "space/statfs-of-limit", run: func(t *fsT) {
			var s unix.Statfs_t
			t.ok(unix.Statfs(".", &s))
			t.near("the size", int64(s.Blocks)*s.Bsize, t.limit)
			if s.Bavail > s.Bfree || s.Bfree > s.Blocks {
				t.fail("%d of %d of %d blocks are free", s.Bavail, s.Bfree, s.Blocks)
			}
		}},
		{name: "space/statfs-follows", run: func(t *fsT) {
			before, size := t.free(), t.limit/4
			t.put("f", bytesOf(int(size)))
			t.ok(unix.Fsync(t.open("f", rdwr)))
			t.near("free space after a write", t.free(), before-size)
			t.ok(unix.Truncate("f", 0))
			t.near("free space after truncation", t.free(), before)
			t.ok(fallocate(t.open("f", rdwr), 0, 0, size))
			t.near("free space after fallocate", t.free(), before-size)
			t.ok(unix.Unlink("f"))
		}},
		{name: "space/sparse-takes-none", run: func(t *fsT) {
			before := t.free()
			fd := t.open("f", rdwr|creat)
			t.ok(unix.Ftruncate(fd, 100*t.limit))
			t.pwrite(fd, "x", 50*t.limit)
			t.near("free space", t.free(), before)
		}},
		{name: "space/full", run: func(t *fsT) {
			before := t.free()
			fd := t.open("f", rdwr|creat)
			n := t.fill(fd)
			t.near("what could be written", n, before)
			eq(t, "size", t.fstat(fd).Size, n)
			chunk := bytesOf(64 << 10)
			for at := int64(0); at < n; at += int64(len(chunk)) {
				if got := t.pread(fd, len(chunk), at); got != chunk[:min(int64(len(chunk)), n-at)] {
					t.fail("what was written at %d is not there", at)
				}
			}
			t.pwrite(fd, "in place", 4096) // has its space
			if got := t.free(); got > t.limit/10 {
				t.fail("%d KiB are free when nothing can be written", got>>10)
			}
			t.ok(unix.Unlink("f"))
			t.close(fd)
			t.near("free space afterwards", t.free(), before)
			t.put("g", bytesOf(int(t.limit/2)))
		}},
		{name: "space/names-when-full", run: func(t *fsT) {
			t.put("old", "old")
			t.ok(unix.Mkdir("d", 0o755))
			t.fill(t.open("f", rdwr|creat))
			// New files may or may not find room. What is there must stay
			// usable, and room can be made.
			made := 0
			for i := range 100 {
				if err := try(fmt.Sprint("d/", i), wronly|creat); err == nil {
					made++
				} else {
					t.is(err, unix.ENOSPC)
				}
			}
			eq(t, "entries", len(t.names("d")), made)
			t.has("old", "old")
			t.ok(unix.Chmod("old", 0o600))
			t.ok(unix.Rename("old", "d/old"))
			t.has("d/old", "old")
			t.ok(unix.Unlink("d/old"))
			t.ok(unix.Truncate("f", 1000))
			t.put("d/new", bytesOf(1<<20))
			t.has("d/new", bytesOf(1<<20))
		}},
		{name: "space/fallocate-too-much", run: func(t *fsT) {
			before := t.free()
			fd := t.open("f", rdwr|creat)
			t.is(fallocate(fd, 0, 0, 2*t.limit), unix.ENOSPC)
			t.put("g", bytesOf(1<<20))
			t.ok(unix.Unlink("f"))
			t.close(fd)
			t.near("free space", t.free(), before-1<<20)
		}},
		{name: "space/held-by-open-file", run: func(t *fsT) {
			before := t.free()
			fd := t.open("f", rdwr|creat)
			t.write(fd, bytesOf(int(t.limit/2)))
			t.ok(unix.Unlink("f"))
			t.near("free space while open", t.free(), before-t.limit/2)
			t.close(fd)
			t.near("free space", t.free(), before)
		}},
		{name: "space/mapping", run: func(t *fsT) {
			fd := t.open("sparse", rdwr|creat)
			t.ok(unix.Ftruncate(fd, 1<<20))
			m := t.mmap(fd, 0, 1<<20, readWrite, shared)
			m[0] = 'x'
			full := t.open("f", rdwr|creat)
			t.fill(full)
			for ; ; full = t.open("f2", rdwr|creat) { // less than a chunk may be left
				if _, err := unix.Write(full, []byte(bytesOf(page))); errors.Is(err, unix.ENOSPC) {
					break
				}
			}
			// A page that is not there cannot be made: SIGBUS, or room that was
			// kept for it. Others are not touched by that.
			_ = faultsOnWrite(m, 100*page)
			eq(t, "first page", m[0], 'x')
			t.ok(unix.Unlink("f"))
			t.ok(unix.Ftruncate(full, 0))
		}},
		{name: "space/many-times", run: func(t *fsT) {
			// What was given back is there again, ten times over.
			before := t.free()
			for i := range 10 {
				name := fmt.Sprint("f", i)
				t.put(name, strings.Repeat(fmt.Sprint(i%10), int(t.limit/2)))
				fd, err := unix.Open(name, rdonly|unix.O_CLOEXEC, 0)
				t.ok(err)
				eq(t, "last byte", t.pread(fd, 10, t.limit/2-1), fmt.Sprint(i%10))
				if i%2 == 0 {
					t.ok(unix.Truncate(name, 0))
				}
				t.ok(unix.Unlink(name))
				t.close(fd)
			}
			t.near("free space", t.free(), before)
		}},
	}
	for i := range limited {
		run := limited[i].run
		limited[i].limited = true
		limited[i].run = func(t *fsT) {
			t.later(func() { _ = os.RemoveAll(t.dir) })
			run(t)
		}
	}
	return append(limited, fsCase{name: "space/statfs", tree: "f f x; d d", run: func(t *fsT) {
		var s, x unix.Statfs_t
		t.ok(unix.Statfs(".", &s))
		t.ok(unix.Fstatfs(t.open("d", rdonly), &x))
		eq(t, "type by descriptor", x.Type, s.Type)
		eq(t, "longest name", s.Namelen, 255)
		if s.Bsize <= 0 || s.Frsize <= 0 {
			t.fail("blocks of %d and %d bytes", s.Bsize, s.Frsize)
		}
		t.put("big", bytesOf(8<<20))
		t.ok(unix.Fsync(t.open("big", rdwr)))
		t.ok(unix.Statfs(".", &x))
		if s.Blocks > 0 && x.Bfree > s.Bfree-uint64(4<<20/s.Bsize) {
			t.fail("%d blocks are free after 8 MiB were written, were %d", x.Bfree, s.Bfree)
		}
	}})
}
