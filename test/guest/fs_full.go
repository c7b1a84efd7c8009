package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// fsFill fills the disk: it makes files of all kinds in a directory until nothing
// more can be made, and checks that each attempt ends with ENOSPC and that what was
// there before stays usable. It prints how much it made. With a second argument it
// begins with that kind, else with data.
func fsFill(args []string) (int, error) {
	dir, first := args[0], strings.Join(args[1:], "")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 1, err
	}
	if err := os.Chdir(dir); err != nil {
		return 1, err
	}
	t := &fsT{dir: dir, mode: fsNew}
	err := t.guard(func(t *fsT) {
		kept := bytesOf(1 << 20)
		t.put("kept", kept)
		t.put("gone", "")
		sparse := t.open("sparse", rdwr|creat)
		t.ok(unix.Ftruncate(sparse, 8<<20))
		m := t.mmap(sparse, 0, 8<<20, readWrite, shared)
		m[0] = 'x'
		more := t.open("data", rdwr|creat)

		made := 0
		for _, kind := range fsFillKinds {
			if kind.name == first {
				made = t.fillWith(kind.make)
				fmt.Printf("first %s: %d\n", kind.name, made)
			}
		}
		data := t.fillData(more)
		for _, kind := range fsFillKinds {
			if kind.name == first {
				continue
			}
			n := t.fillWith(kind.make)
			fmt.Printf("%s: %d\n", kind.name, n)
			made += n
		}
		fmt.Printf("data: %d KiB\n", data>>10)
		if data+int64(made) == 0 {
			t.fail("nothing could be made")
		}
		t.has("kept", kept)
		eq(t, "mapped byte", m[0], 'x')
		// There may be no space for these; but that must be all that is wrong.
		for at := page; at < len(m); at += 64 * page {
			faultsOnWrite(m, at)
		}
		for at := int64(page); at < int64(len(m)); at += 64 * page {
			if got := t.pread(sparse, page, at); strings.Trim(got, "\x00") != "w" && strings.Trim(got, "\x00") != "" {
				t.fail("something is in a page that was not written: %.20q", got)
			}
		}
		fd := t.open("kept", rdwr)
		for _, err := range []error{t.tryWrite(fd, kept[:5000], 3), fallocate(sparse, 0, 0, 8<<20), unix.Chmod("kept", 0o600), unix.Rename("kept", "other"), unix.Rename("other", "kept")} {
			if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.ENOENT) {
				t.ok(err)
			}
		}
		t.ok(unix.Unlink("gone"))
	})
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// tryWrite writes where the same is already.
func (t *fsT) tryWrite(fd int, same string, at int64) error {
	_, err := unix.Pwrite(fd, []byte(bytesOf(int(at) + len(same))[at:]), at)
	return err
}

// fillData writes to a file until not a byte more fits, and returns how many did.
func (t *fsT) fillData(fd int) int64 {
	const most = 1 << 40
	total := int64(0)
	for _, size := range []int{64 << 10, page, 1} {
		chunk := []byte(bytesOf(size))
		for {
			n, err := unix.Write(fd, chunk)
			if err != nil {
				t.is(err, unix.ENOSPC)
				break
			}
			if total += int64(n); total > most {
				t.fail("there is no end")
			}
		}
	}
	return total
}

// fillWith makes things until there is no space. Which may be never: one who looks
// for 200 000 has found what takes none.
func (t *fsT) fillWith(make func(n int) error) int {
	for n := range 200_000 {
		if err := make(n); err != nil {
			t.is(err, unix.ENOSPC)
			return n
		}
	}
	t.fail("200 000 could be made")
	return 0
}

// longName is a name that is as long as possible.
func longName(kind string, n int) string {
	s := fmt.Sprintf("%s%d.", kind, n)
	return s + strings.Repeat("n", 255-len(s))
}

// fsFillKinds are what takes space besides data.
var fsFillKinds = []struct {
	name string
	make func(n int) error
}{
	{"attributes", func(n int) error {
		return unix.Setxattr("kept", fmt.Sprint("user.", n), []byte(bytesOf(60_000)), 0)
	}},
	{"links to paths", func(n int) error { return unix.Symlink(bytesOf(4000), longName("l", n)) }},
	{"files", func(n int) error { return try(longName("f", n), wronly|creat) }},
	{"directories", func(n int) error { return unix.Mkdir(longName("d", n), 0o755) }},
	{"names", func(n int) error { return unix.Link("gone", longName("h", n)) }},
	{"fifos", func(n int) error { return unix.Mkfifo(longName("p", n), 0o600) }},
}

// fsClear removes all that is in a directory, which must work on the fullest disk.
func fsClear(args []string) (int, error) {
	entries, err := os.ReadDir(args[0])
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(args[0], e.Name())))
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// fsPut writes a file of some MiB and reads it.
func fsPut(args []string) (int, error) {
	t := &fsT{mode: fsNew}
	err := t.guard(func(t *fsT) {
		t.put(args[0], bytesOf(2<<20))
		t.has(args[0], bytesOf(2<<20))
	})
	if err != nil {
		return 1, err
	}
	return 0, nil
}
