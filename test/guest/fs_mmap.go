package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmap maps a file until the end of the case.
func (t *fsT) mmap(fd int, at int64, length, prot, flags int) []byte {
	m, err := unix.Mmap(fd, at, length, prot, flags)
	if err != nil {
		t.fail("mmap: %v", fsErrno(err))
	}
	t.later(func() { _ = unix.Munmap(m) }) // the case may have done it
	return m
}

// faults reports whether reading a byte raises SIGBUS or SIGSEGV.
func faults(m []byte, at int) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	_ = readByte(&m[at])
	return false
}

// faultsOnWrite is faults for writing.
func faultsOnWrite(m []byte, at int) (fault bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { fault = recover() != nil }()
	m[at] = 'w'
	return false
}

//go:noinline
func readByte(p *byte) byte { return *p }

// runProgram runs a program and returns what it printed.
func (t *fsT) runProgram(name string, args ...string) string {
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.fail("%s: %v: %s", name, err, out)
	}
	return string(out)
}

const (
	readWrite = unix.PROT_READ | unix.PROT_WRITE
	readOnly  = unix.PROT_READ
	shared    = unix.MAP_SHARED
	private   = unix.MAP_PRIVATE
)

func fsMmapCases() []fsCase {
	const tree = "f f *20000; h link f; d d; f other *9000"
	want := bytesOf(20000)
	return []fsCase{
		{name: "mmap/read", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdonly)
			for _, flags := range []int{shared, private} {
				t.same("mapping", t.mmap(fd, 0, 20000, readOnly, flags), []byte(want))
				t.same("mapping at an offset", t.mmap(fd, 2*page, 5000, readOnly, flags), []byte(want[2*page:2*page+5000]))
			}
		}},
		{name: "mmap/shared-write", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			m := t.mmap(fd, 0, 20000, readWrite, shared)
			copy(m[5000:], "mapped")
			eq(t, "read(2)", t.pread(fd, 6, 5000), "mapped")
			eq(t, "another descriptor", t.pread(t.open("link", rdonly), 6, 5000), "mapped")
			t.ok(unix.Msync(m, unix.MS_SYNC))
			t.ok(unix.Munmap(m))
			t.has("f", want[:5000]+"mapped"+want[5006:])
		}},
		{name: "mmap/sees-write", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			m := t.mmap(fd, 0, 20000, readOnly, shared)
			t.same("before", m, []byte(want))
			t.pwrite(fd, "written", 4093)
			t.same("after", m, []byte(want[:4093]+"written"+want[4100:]))
		}},
		{name: "mmap/read-only-sees-write", tree: tree, run: func(t *fsT) {
			// The mapping is made before anybody opened the file to write.
			m := t.mmap(t.open("f", rdonly), 0, 20000, readOnly, shared)
			eq(t, "before", string(m[:5]), want[:5])
			t.pwrite(t.open("f", wronly), "Hello", 0)
			eq(t, "after", string(m[:5]), "Hello")
			eq(t, "another page", string(m[9000:9005]), want[9000:9005])
			t.pwrite(t.open("link", wronly), "World", 9000)
			eq(t, "after", string(m[9000:9005]), "World")
		}},
		{name: "mmap/two-mappings", tree: tree, run: func(t *fsT) {
			a := t.mmap(t.open("f", rdwr), 0, 20000, readWrite, shared)
			b := t.mmap(t.open("link", rdwr), page, 10000, readWrite, shared)
			c := t.mmap(t.open("f", rdonly), 0, 20000, readOnly, shared)
			copy(a[5000:], "by a")
			eq(t, "in b", string(b[5000-page:5004-page]), "by a")
			eq(t, "in c", string(c[5000:5004]), "by a")
			copy(b[0:], "by b")
			eq(t, "in a", string(a[page:page+4]), "by b")
			eq(t, "in c", string(c[page:page+4]), "by b")
		}},
		{name: "mmap/private-change-behind-pieces", tree: tree, run: func(t *fsT) {
			// Written from its end on, the file lies in as many pieces. Only the page
			// that is changed is to be copied, whatever else a fault maps.
			const piece = 1 << 20
			fd := t.open("pieces", rdwr|unix.O_CREAT)
			for at := int64(5 * piece); at >= 0; at -= piece {
				t.pwrite(fd, strings.Repeat("piece", piece/5+1)[:piece], at)
			}
			for _, prot := range []int{readWrite, readWrite | unix.PROT_EXEC} {
				m := t.mmap(fd, 0, 6*piece, prot, private)
				m[5*piece+9000] = 'P'
				eq(t, "mapping", string(m[5*piece+9000]), "P")
				eq(t, "file", t.pread(fd, 5, 5*piece+9000), "piece")
				eq(t, "a piece before", string(m[3*piece:3*piece+5]), "piece")
			}
		}},
		{name: "mmap/beside-another-file", tree: tree, run: func(t *fsT) {
			// Pages of files that grow in turns are likely to lie one behind the other in
			// what keeps them, as they do in the mappings here: which must not make one
			// mapping of both.
			const pages = 4
			fds := []int{t.open("left", rdwr|unix.O_CREAT), t.open("right", rdwr|unix.O_CREAT)}
			mark := func(file, at int) byte { return byte('A' + file*pages + at) }
			for at := range pages {
				for file, fd := range fds {
					t.pwrite(fd, strings.Repeat(string(rune(mark(file, at))), page), int64(at*page))
				}
			}
			room := t.mmap(-1, 0, 3*page, unix.PROT_NONE, private|unix.MAP_ANON)
			seam := t.open("seam", rdwr|unix.O_CREAT)
			for n := range 2 * pages * pages * pages {
				at := []int{n % pages, n / pages % pages, n / pages / pages % pages}
				for i, at := range at {
					_, err := unix.MmapPtr(fds[i%2], int64(at*page), unsafe.Pointer(&room[i*page]), page, readWrite, shared|unix.MAP_FIXED)
					t.ok(err)
				}
				for _, fd := range fds { // else what is read may be stored to
					var st unix.Stat_t
					t.ok(unix.Fstat(fd, &st))
				}
				for i := range at {
					_ = readByte(&room[i*page])
				}
				if n < pages*pages*pages {
					room[page+1] = mark(1, at[1])
				} else { // a store of the kernel's, to both mappings at once
					t.pwrite(seam, strings.Repeat(string(rune(mark(0, at[0]))), 8)+strings.Repeat(string(rune(mark(1, at[1]))), 8), 0)
					got, err := unix.Pread(seam, room[page-8:page+8], 0)
					t.ok(err)
					eq(t, "bytes read into both", got, 16)
				}
				for i, at := range at {
					t.same("page", room[i*page:(i+1)*page], bytes.Repeat([]byte{mark(i%2, at)}, page))
				}
			}
			for file, fd := range fds {
				for at := range pages {
					eq(t, "the file", t.pread(fd, page, int64(at*page)), strings.Repeat(string(rune(mark(file, at))), page))
				}
			}
			// Nor may what one mapping allows be allowed in the next.
			for i, prot := range []int{readWrite, readOnly, readWrite} {
				_, err := unix.MmapPtr(fds[0], int64(i*page), unsafe.Pointer(&room[i*page]), page, prot, shared|unix.MAP_FIXED)
				t.ok(err)
			}
			for i := range 3 {
				_ = readByte(&room[i*page])
			}
			room[0], room[2*page] = mark(0, 0), mark(0, 2)
			eq(t, "a store to what may only be read fails", faultsOnWrite(room, page), true)
		}},
		{name: "mmap/private", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdonly)
			m := t.mmap(fd, 0, 20000, readWrite, private)
			n := t.mmap(fd, 0, 20000, readWrite, private)
			copy(m[5000:], "mine")
			eq(t, "the other mapping", string(n[5000:5004]), want[5000:5004])
			t.intact()
			t.same("mapping", m, []byte(want[:5000]+"mine"+want[5004:]))
			t.pwrite(t.open("f", wronly), "new!", 5000) // a page that was copied stays
			eq(t, "mapping", string(m[5000:5004]), "mine")
		}},
		{name: "mmap/survives-close", tree: tree, run: func(t *fsT) {
			fd, err := unix.Open("f", rdwr|unix.O_CLOEXEC, 0)
			t.ok(err)
			m := t.mmap(fd, 0, 20000, readWrite, shared)
			t.close(fd)
			copy(m, "closed")
			t.has("f", "closed"+want[6:])
			t.pwrite(t.open("f", rdwr), "again", 0)
			eq(t, "mapping", string(m[:6]), "againd")
		}},
		{name: "mmap/survives-unlink", tree: tree, run: func(t *fsT) {
			m := t.mmap(t.open("other", rdwr), 0, 9000, readWrite, shared)
			n := t.mmap(t.open("other", rdonly), 0, 9000, readOnly, private)
			t.ok(unix.Unlink("other"))
			t.put("other", "a new file")
			t.same("mapping", m, []byte(bytesOf(9000)))
			t.same("private mapping", n, []byte(bytesOf(9000)))
			copy(m, "unlinked")
			t.has("other", "a new file")
		}},
		{name: "mmap/survives-rename", tree: tree, run: func(t *fsT) {
			m := t.mmap(t.open("f", rdwr), 0, 20000, readWrite, shared)
			old := t.mmap(t.open("other", rdonly), 0, 9000, readOnly, shared)
			t.ok(unix.Rename("f", "d/g"))
			copy(m, "moved")
			t.has("d/g", "moved"+want[5:])
			t.ok(unix.Rename("d/g", "other"))
			copy(m, "again")
			t.has("other", "again"+want[5:])
			t.same("mapping of the replaced file", old, []byte(bytesOf(9000)))
		}},
		{name: "mmap/after-chmod", tree: tree, run: func(t *fsT) {
			m := t.mmap(t.open("f", rdonly), 0, 20000, readOnly, shared)
			t.ok(unix.Chmod("f", 0o600)) // a change of attributes is none of data
			t.same("mapping", m, []byte(want))
			t.pwrite(t.open("f", wronly), "new", 0)
			eq(t, "mapping", string(m[:3]), "new")
		}},
		{name: "mmap/grown-file", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			m := t.mmap(fd, 0, 100*page, readWrite, shared)
			t.ok(unix.Ftruncate(fd, 100*page))
			copy(m[90*page:], "far")
			eq(t, "read(2)", t.pread(fd, 3, 90*page), "far")
			eq(t, "hole", string(m[50*page:50*page+3]), "\x00\x00\x00")
			t.pwrite(fd, "x", 70*page)
			eq(t, "mapping", m[70*page], 'x')
		}},
		{name: "mmap/new-file", run: func(t *fsT) {
			fd := t.open("new", rdwr|creat)
			t.ok(unix.Ftruncate(fd, 1<<20))
			m := t.mmap(fd, 0, 1<<20, readWrite, shared)
			copy(m, bytesOf(1<<20))
			t.ok(unix.Msync(m, unix.MS_ASYNC))
			t.same("contents", []byte(t.get("new")), []byte(bytesOf(1<<20)))
		}},
		{name: "mmap/write-of-own-mapping", tree: tree, run: func(t *fsT) {
			// The source of a write is a mapping of the file it goes to.
			fd := t.open("f", rdwr)
			m := t.mmap(fd, 0, 20000, readWrite, shared)
			n, err := unix.Pwrite(fd, m[:3000], 10000)
			t.ok(err)
			eq(t, "bytes", n, 3000)
			t.has("f", want[:10000]+want[:3000]+want[13000:])
			n, err = unix.Pread(fd, m[page:2*page], 0)
			t.ok(err)
			eq(t, "bytes", n, page)
			eq(t, "mapping", string(m[page:2*page]), want[:page])
		}},
		{name: "mmap/read-then-write-protection", tree: tree, run: func(t *fsT) {
			m := t.mmap(t.open("f", rdwr), 0, 20000, readOnly, shared)
			_ = readByte(&m[0])
			t.ok(unix.Mprotect(m, readWrite))
			copy(m, "protected")
			t.has("f", "protected"+want[9:])
			t.ok(unix.Mprotect(m, readOnly))
			if !faultsOnWrite(m, 0) {
				t.fail("a write to a read-only mapping succeeded")
			}
		}},
		{name: "mmap/not-permitted", tree: tree, run: func(t *fsT) {
			_, err := unix.Mmap(t.open("f", rdonly), 0, page, readWrite, shared)
			t.is(err, unix.EACCES)
			_, err = unix.Mmap(t.open("f", wronly), 0, page, readOnly, shared)
			t.is(err, unix.EACCES)
			_, err = unix.Mmap(t.open("f", rdwr), 100, page, readOnly, shared)
			t.is(err, unix.EINVAL)
			_, err = unix.Mmap(t.open("d", rdonly), 0, page, readOnly, shared)
			t.is(err, unix.ENODEV)
			m := t.mmap(t.open("f", rdonly), 0, page, readOnly, shared)
			t.is(unix.Mprotect(m, readWrite), unix.EACCES)
			t.intact()
		}},
		{name: "mmap/program", tree: tree, run: func(t *fsT) {
			fsCopyProgram(t, "program", 0o755)
			eq(t, "output", t.runProgram("./program", "say", "one"), "one\n")
			t.ok(unix.Rename("program", "d/moved"))
			eq(t, "output", t.runProgram("./d/moved", "say", "two"), "two\n")
		}},
		{name: "mmap/other-process", tree: tree, run: func(t *fsT) {
			m := t.mmap(t.open("f", rdwr), 0, 20000, readWrite, shared)
			copy(m[8000:], "mapped")
			eq(t, "what another process reads", t.runProgram("/proc/self/exe", "cat", "f"), want[:8000]+"mapped"+want[8006:])
			t.runProgram("/proc/self/exe", "write", "f", "short")
			eq(t, "what it wrote", string(m[:5]), "short")
		}},
	}
}

func fsMmapEndCases() []fsCase {
	const tree = "f f *20000"
	want := bytesOf(20000)
	return []fsCase{
		{name: "mmap-end/rest-of-page", tree: tree, run: func(t *fsT) {
			m := t.mmap(t.open("f", rdwr), 0, 5*page, readWrite, shared)
			eq(t, "behind the end", string(m[20000:]), strings.Repeat("\x00", 5*page-20000))
		}},
		{name: "mmap-end/beyond", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			for _, flags := range []int{shared, private} {
				m := t.mmap(fd, 0, 7*page, readWrite, flags)
				if !faults(m, 5*page) || !faults(m, 6*page+1) {
					t.fail("beyond the end is something to read")
				}
				if faults(m, 4*page) {
					t.fail("the last page cannot be read")
				}
			}
		}},
		{name: "mmap-end/truncated", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			m := t.mmap(fd, 0, 5*page, readWrite, shared)
			p := t.mmap(fd, 0, 5*page, readWrite, private)
			p[3*page] = 'p'
			t.same("mapping", m[:20000], []byte(want))
			t.ok(unix.Ftruncate(fd, page+100))
			for what, x := range map[string][]byte{"shared": m, "private": p} {
				if !faults(x, 2*page) || !faults(x, 4*page) {
					t.fail("%s: what was cut off can be read", what)
				}
				eq(t, what, string(x[page:page+100]), want[page:page+100])
			}
			eq(t, "rest of the page", string(m[page+100:2*page]), strings.Repeat("\x00", page-100))
			if !faultsOnWrite(m, 3*page) {
				t.fail("what was cut off can be written")
			}
		}},
		{name: "mmap-end/truncated-by-path", tree: tree, run: func(t *fsT) {
			m := t.mmap(t.open("f", rdonly), 0, 5*page, readOnly, shared)
			eq(t, "before", m[3*page], want[3*page])
			t.ok(unix.Truncate("f", 100))
			if !faults(m, 3*page) {
				t.fail("what was cut off can be read")
			}
			t.ok(unix.Truncate("f", 5*page))
			eq(t, "after", m[3*page], 0)
			eq(t, "first page", string(m[:page]), want[:100]+strings.Repeat("\x00", page-100))
		}},
		{name: "mmap-end/grown-again", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			m := t.mmap(fd, 0, 5*page, readWrite, shared)
			copy(m[3*page:], "lost")
			t.ok(unix.Ftruncate(fd, 2*page+10))
			t.ok(unix.Ftruncate(fd, 5*page))
			eq(t, "the cut off part", string(m[2*page+10:]), strings.Repeat("\x00", 3*page-10))
			m[4*page] = 'n'
			t.has("f", want[:2*page+10]+strings.Repeat("\x00", 2*page-10)+"n"+strings.Repeat("\x00", page-1))
		}},
		{name: "mmap-end/open-trunc", tree: tree, run: func(t *fsT) {
			m := t.mmap(t.open("f", rdonly), 0, 5*page, readOnly, shared)
			eq(t, "before", m[0], want[0])
			t.ok(try("f", wronly|trunc))
			if !faults(m, 0) {
				t.fail("an empty file can be read")
			}
			t.put("f", "new")
			eq(t, "after", string(m[:4]), "new\x00")
		}},
		{name: "mmap-end/system-call-faults", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			m := t.mmap(fd, 0, 7*page, readWrite, shared)
			_, err := unix.Pread(fd, m[6*page:6*page+10], 0)
			t.is(err, unix.EFAULT)
			_, err = unix.Write(t.open("out", wronly|creat), m[6*page:6*page+10])
			t.is(err, unix.EFAULT)
			t.size("out", 0)
		}},
		{name: "mmap-end/many-files", run: func(t *fsT) {
			var maps [][]byte
			for i := range 100 {
				fd := t.open(fmt.Sprint("f", i), rdwr|creat)
				t.ok(unix.Ftruncate(fd, 2*page))
				m := t.mmap(fd, 0, 2*page, readWrite, shared)
				copy(m[page:], fmt.Sprint("number ", i))
				maps = append(maps, m)
			}
			for i, m := range maps {
				eq(t, "mapping", cstring(m[page:]), fmt.Sprint("number ", i))
				eq(t, "file", cstring([]byte(t.get(fmt.Sprint("f", i))[page:])), fmt.Sprint("number ", i))
			}
		}},
	}
}

// storeBy maps a file, shared and to be written to, and reads a byte of it or stores one
// for each line that it reads: r or w. It answers each with the line.
func storeBy(args []string) (int, error) {
	fd, err := unix.Open(args[0], unix.O_RDWR, 0)
	if err != nil {
		return 1, err
	}
	m, err := unix.Mmap(fd, 0, page, readWrite, shared)
	if err != nil {
		return 1, err
	}
	lines := bufio.NewScanner(os.Stdin)
	for n := byte(0); lines.Scan(); n++ {
		if lines.Text() == "w" {
			m[1] = n
		} else {
			_ = readByte(&m[1])
		}
		fmt.Println(lines.Text())
	}
	return 0, lines.Err()
}
