package main

import (
	"math/rand/v2"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// fsSizes are lengths around the limits of pages and blocks.
var fsSizes = []int{0, 1, 511, 4095, 4096, 4097, 8191, 8192, 12345, 65535, 65536, 65537, 200000}

func fsTruncateCases() []fsCase {
	const tree = "f f *12345; f small abc; f empty ; d d; l link f; f:444@1000.1001 mine m"
	cases := []fsCase{
		{name: "truncate/sizes", tree: tree, run: func(t *fsT) {
			want := bytesOf(12345)
			fd := t.open("f", rdwr)
			for i, size := range append(fsSizes, 3, 5000, 4096, 100, 70000, 0, 9) {
				if i%2 == 0 {
					t.ok(unix.Truncate("f", int64(size)))
				} else {
					t.ok(unix.Ftruncate(fd, int64(size)))
				}
				want = (want + strings.Repeat("\x00", size))[:size]
				t.size("f", int64(size))
				t.same("contents", []byte(t.get("f")), []byte(want))
				eq(t, "contents by the descriptor", t.pread(fd, 300000, 0), want)
			}
		}},
		{name: "truncate/grow", tree: tree, run: func(t *fsT) {
			t.ok(unix.Truncate("small", 3*page))
			t.has("small", "abc"+strings.Repeat("\x00", 3*page-3))
			t.ok(unix.Truncate("empty", 5))
			t.has("empty", "\x00\x00\x00\x00\x00")
		}},
		{name: "truncate/shrink-then-grow", tree: tree, run: func(t *fsT) {
			for _, at := range []int64{10000, 8192, 5000, 4096, 1} { // within a page and at its end
				t.ok(unix.Truncate("f", at))
				t.ok(unix.Truncate("f", 12345))
				t.has("f", bytesOf(int(at))+strings.Repeat("\x00", 12345-int(at)))
			}
		}},
		{name: "truncate/offset-stays", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			t.seek(fd, 10000, unix.SEEK_SET)
			t.ok(unix.Ftruncate(fd, 5))
			eq(t, "offset", t.seek(fd, 0, unix.SEEK_CUR), int64(10000))
			eq(t, "rest", t.rest(fd), "")
			t.write(fd, "x")
			t.has("f", bytesOf(5)+strings.Repeat("\x00", 9995)+"x")
		}},
		{name: "truncate/through-link", tree: tree, run: func(t *fsT) {
			t.ok(unix.Truncate("link", 3))
			t.has("f", bytesOf(3))
		}},
		{name: "truncate/huge", tree: tree, run: func(t *fsT) {
			t.ok(unix.Truncate("f", 1<<40))
			t.size("f", 1<<40)
			fd := t.open("f", rdwr)
			eq(t, "end", t.pread(fd, 10, 1<<40-3), "\x00\x00\x00")
			t.ok(unix.Truncate("f", 10))
			t.has("f", bytesOf(10))
		}},
		{name: "truncate/open-read-only-mode", tree: tree, run: func(t *fsT) {
			t.user(func() {
				t.is(unix.Truncate("mine", 0), unix.EACCES)
				t.ok(unix.Chmod("mine", 0o600))
				fd := t.open("mine", wronly)
				t.ok(unix.Chmod("mine", 0o400))
				t.ok(unix.Ftruncate(fd, 0)) // the descriptor may
			})
			t.size("mine", 0)
		}},
	}
	to := func(name string, size int64) func() error { return func() error { return unix.Truncate(name, size) } }
	return append(cases, fsFailures("truncate", tree+"; l loop loop; l dangling nothing",
		failure{"negative", unix.EINVAL, to("f", -1)},
		failure{"directory", unix.EISDIR, to("d", 0)},
		failure{"missing", unix.ENOENT, to("nothing", 0)},
		failure{"dangling", unix.ENOENT, to("dangling", 0)},
		failure{"file-as-parent", unix.ENOTDIR, to("f/x", 0)},
		failure{"loop", unix.ELOOP, to("loop", 0)},
		failure{"name-256", unix.ENAMETOOLONG, to(name255+"n", 0)},
		failure{"bad-descriptor", unix.EBADF, func() error { return unix.Ftruncate(9999, 0) }},
	)...)
}

func fsIOCases() []fsCase {
	const tree = "f f *12345; f big *300000; f empty ; p fifo"
	return []fsCase{
		{name: "io/sizes", run: func(t *fsT) {
			for _, size := range fsSizes {
				t.put("new", bytesOf(size))
				t.size("new", int64(size))
				t.same("contents", []byte(t.get("new")), []byte(bytesOf(size)))
			}
		}},
		{name: "io/pread", tree: tree, run: func(t *fsT) {
			fd, want := t.open("f", rdonly), bytesOf(12345)
			for _, at := range []int{0, 1, 4095, 4096, 4097, 12000, 12344} {
				for _, n := range []int{1, 10, 4096, 9000} {
					eq(t, "bytes", t.pread(fd, n, int64(at)), want[at:min(at+n, len(want))])
				}
			}
			eq(t, "at the end", t.pread(fd, 10, 12345), "")
			eq(t, "beyond", t.pread(fd, 10, 1<<50), "")
			eq(t, "nothing", t.pread(fd, 0, 5), "")
			eq(t, "offset", t.seek(fd, 0, unix.SEEK_CUR), int64(0))
		}},
		{name: "io/random-writes", tree: tree, run: func(t *fsT) {
			rng := rand.New(rand.NewPCG(1, 2))
			want := []byte(bytesOf(300000))
			fd := t.open("big", rdwr)
			for i := range 300 {
				at, n := rng.IntN(350000), rng.IntN(10000)
				if i%3 == 0 {
					at, n = at&^4095, n&^4095
				}
				if n == 0 {
					continue
				}
				data := make([]byte, n)
				for j := range data {
					data[j] = byte(i + j/100)
				}
				for len(want) < at+n {
					want = append(want, 0)
				}
				copy(want[at:], data)
				t.pwrite(fd, string(data), int64(at))
				if i%50 == 0 {
					t.same("contents", []byte(t.get("big")), want)
				}
			}
			t.same("contents", []byte(t.get("big")), want)
		}},
		{name: "io/one-byte-each", tree: tree, run: func(t *fsT) {
			fd, want := t.open("f", rdwr), []byte(bytesOf(12345))
			for at := 0; at < 12345; at += 37 {
				t.pwrite(fd, "#", int64(at))
				want[at] = '#'
			}
			t.same("contents", []byte(t.get("f")), want)
		}},
		{name: "io/vectors", tree: tree, run: func(t *fsT) {
			fd := t.open("empty", rdwr)
			n, err := unix.Writev(fd, [][]byte{[]byte("one"), {}, []byte(bytesOf(5000)), []byte("two")})
			t.ok(err)
			eq(t, "bytes", n, 5006)
			t.has("empty", "one"+bytesOf(5000)+"two")
			n, err = unix.Pwritev(fd, [][]byte{[]byte("AB"), []byte("CD")}, 4998)
			t.ok(err)
			eq(t, "bytes", n, 4)
			eq(t, "offset", t.seek(fd, 0, unix.SEEK_CUR), int64(5006))
			a, b := make([]byte, 4), make([]byte, 100)
			n, err = unix.Preadv(fd, [][]byte{a, b}, 4996)
			t.ok(err)
			eq(t, "bytes", string(a)+string(b[:n-4]), bytesOf(5000)[4993:4995]+"ABCD"+bytesOf(5000)[4999:]+"two")
			t.seek(fd, 0, unix.SEEK_SET)
			n, err = unix.Readv(fd, [][]byte{a, b[:2]})
			t.ok(err)
			eq(t, "bytes", string(a)+string(b[:n-4]), "one"+bytesOf(3))
		}},
		{name: "io/seek", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			eq(t, "end", t.seek(fd, 0, unix.SEEK_END), int64(12345))
			eq(t, "before the end", t.seek(fd, -345, unix.SEEK_END), int64(12000))
			eq(t, "forward", t.seek(fd, 5, unix.SEEK_CUR), int64(12005))
			_, err := unix.Seek(fd, -1, unix.SEEK_SET)
			t.is(err, unix.EINVAL)
			_, err = unix.Seek(fd, -20000, unix.SEEK_CUR)
			t.is(err, unix.EINVAL)
			_, err = unix.Seek(fd, 0, 99)
			t.is(err, unix.EINVAL)
			eq(t, "after errors", t.seek(fd, 0, unix.SEEK_CUR), int64(12005))
			t.seek(fd, 20000, unix.SEEK_SET)
			t.size("f", 12345)
			t.write(fd, "x")
			t.size("f", 20001)
			t.has("f", bytesOf(12345)+strings.Repeat("\x00", 20000-12345)+"x")
		}},
		{name: "io/beyond-4-gib", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			t.pwrite(fd, "far", 5<<30+100)
			t.size("f", 5<<30+103)
			eq(t, "far", t.pread(fd, 10, 5<<30+100), "far")
			eq(t, "near", t.pread(fd, 5, 0), bytesOf(5))
			eq(t, "at the offset modulo 4 GiB", t.pread(fd, 3, 1<<30+100), "\x00\x00\x00")
		}},
		{name: "io/invalid", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			_, err := unix.Pread(fd, make([]byte, 1), -1)
			t.is(err, unix.EINVAL)
			_, err = unix.Pwrite(fd, []byte("x"), -1)
			t.is(err, unix.EINVAL)
			r, w := t.pipe()
			defer unix.Close(r)
			defer unix.Close(w)
			_, err = unix.Pread(r, make([]byte, 1), 0)
			t.is(err, unix.ESPIPE)
			t.intact()
		}},
		{name: "io/sync", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr|unix.O_SYNC)
			t.pwrite(fd, "X", 0)
			t.ok(unix.Fdatasync(fd))
			t.ok(unix.Fsync(fd))
			t.ok(unix.Syncfs(fd))
			t.has("f", "X"+bytesOf(12345)[1:])
			t.ok(unix.Fsync(t.open(".", rdonly)))
		}},
		{name: "io/sendfile", tree: tree, run: func(t *fsT) {
			out := t.open("out", wronly|creat)
			at := int64(100)
			for at < 12345 {
				n, err := unix.Sendfile(out, t.open("f", rdonly), &at, 12345)
				t.ok(err)
				if n == 0 {
					t.fail("nothing was sent at %d", at)
				}
			}
			t.has("out", bytesOf(12345)[100:])
		}},
		{name: "io/several-descriptors", tree: tree, run: func(t *fsT) {
			a, b := t.open("f", rdwr), t.open("f", rdwr)
			t.pwrite(a, "A", 0)
			t.pwrite(b, "B", 1)
			eq(t, "seen by a", t.pread(a, 2, 0), "AB")
			t.ok(unix.Ftruncate(a, 1))
			eq(t, "seen by b", t.pread(b, 2, 0), "A")
			t.close(a)
			t.pwrite(b, "C", 1)
			t.has("f", "AC")
		}},
		{name: "io/replace-by-copy", tree: tree, run: func(t *fsT) {
			// Read and write the same file in steps, as filters do.
			in, out := t.open("big", rdonly), t.open("out", wronly|creat)
			b := make([]byte, 7000)
			for {
				n, err := unix.Read(in, b)
				t.ok(err)
				if n == 0 {
					break
				}
				t.write(out, strings.ToLower(string(b[:n])))
			}
			t.ok(unix.Rename("out", "big"))
			t.has("big", strings.ToLower(bytesOf(300000)))
		}},
	}
}

func (t *fsT) pipe() (r, w int) {
	var p [2]int
	t.ok(unix.Pipe2(p[:], unix.O_CLOEXEC))
	return p[0], p[1]
}

func fsSparseCases() []fsCase {
	return []fsCase{
		{name: "sparse/blocks", run: func(t *fsT) {
			fd := t.open("f", rdwr|creat)
			t.pwrite(fd, "end", 1<<30)
			st := t.fstat(fd)
			eq(t, "size", st.Size, int64(1<<30+3))
			if st.Blocks <= 0 || st.Blocks > 16<<20/512 {
				t.fail("%d blocks of a file with one page of data", st.Blocks)
			}
			eq(t, "hole", t.pread(fd, 100, 1<<29), strings.Repeat("\x00", 100))
			eq(t, "end", t.pread(fd, 100, 1<<30), "end")
		}},
		{name: "sparse/blocks-of-data", tree: "f f *300000", run: func(t *fsT) {
			enough := func(what string) {
				if b := t.stat("f").Blocks; b*512 < 300000 || b*512 > 4<<20 {
					t.fail("%s: %d blocks of a file of 300000 bytes", what, b)
				}
			}
			enough("at first")
			t.pwrite(t.open("f", wronly), bytesOf(page), 0)
			enough("after a write")
			t.ok(unix.Truncate("f", 0))
			if b := t.stat("f").Blocks; b > 16 {
				t.fail("%d blocks of an empty file", b)
			}
		}},
		{name: "sparse/seek", run: func(t *fsT) {
			const size = 8 << 20
			fd := t.open("f", rdwr|creat)
			t.pwrite(fd, bytesOf(page), 1<<20)
			t.pwrite(fd, "x", 4<<20)
			t.ok(unix.Ftruncate(fd, size))
			// Where holes are reported may be coarse, but data must never be
			// in one and the end of the file always is.
			for _, at := range []int64{1 << 20, 1<<20 + page - 1, 4 << 20} {
				eq(t, "data from data", t.seek(fd, at, unix.SEEK_DATA), at)
				if hole := t.seek(fd, at, unix.SEEK_HOLE); hole <= at || hole > size {
					t.fail("the hole behind %d is at %d", at, hole)
				}
			}
			if at := t.seek(fd, 0, unix.SEEK_DATA); at > 1<<20 {
				t.fail("the first data is at %d", at)
			}
			if at := t.seek(fd, 1<<20+page, unix.SEEK_DATA); at > 4<<20 {
				t.fail("the second data is at %d", at)
			}
			for _, whence := range []int{unix.SEEK_DATA, unix.SEEK_HOLE} {
				for _, at := range []int64{size, size + 1} {
					_, err := unix.Seek(fd, at, whence)
					t.is(err, unix.ENXIO)
				}
			}
		}},
		{name: "sparse/seek-in-data", tree: "f f *12345; f empty ", run: func(t *fsT) {
			fd := t.open("f", rdonly)
			eq(t, "data", t.seek(fd, 100, unix.SEEK_DATA), int64(100))
			eq(t, "hole", t.seek(fd, 100, unix.SEEK_HOLE), int64(12345))
			_, err := unix.Seek(t.open("empty", rdonly), 0, unix.SEEK_DATA)
			t.is(err, unix.ENXIO)
		}},
		{name: "sparse/write-into-hole", run: func(t *fsT) {
			fd := t.open("f", rdwr|creat)
			t.ok(unix.Ftruncate(fd, 10*page))
			want := make([]byte, 10*page)
			for _, at := range []int{5*page + 7, 0, 9*page + 4000, 3*page - 2} {
				t.pwrite(fd, "abcdef", int64(at))
				copy(want[at:], "abcdef")
				t.same("contents", []byte(t.get("f")), want)
			}
		}},
	}
}

// zeroed is s with zeros from one place to another.
func zeroed(s string, from, to int) string {
	return s[:from] + strings.Repeat("\x00", to-from) + s[to:]
}

func fsAllocCases() []fsCase {
	const (
		tree = "f f *12345; d d; p fifo"
		keep = unix.FALLOC_FL_KEEP_SIZE
		hole = unix.FALLOC_FL_PUNCH_HOLE | keep
		zero = unix.FALLOC_FL_ZERO_RANGE
	)
	return []fsCase{
		{name: "fallocate/grow", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			t.ok(fallocate(fd, 0, 0, 20000))
			t.size("f", 20000)
			t.has("f", bytesOf(12345)+strings.Repeat("\x00", 20000-12345))
			if b := t.stat("f").Blocks; b*512 < 20000 {
				t.fail("only %d blocks are allocated", b)
			}
			t.ok(fallocate(fd, 0, 100, 200)) // what is there stays
			t.size("f", 20000)
			t.has("f", bytesOf(12345)+strings.Repeat("\x00", 20000-12345))
		}},
		{name: "fallocate/beyond-end", tree: tree, run: func(t *fsT) {
			t.ok(fallocate(t.open("f", rdwr), 0, 50000, 10))
			t.has("f", bytesOf(12345)+strings.Repeat("\x00", 50010-12345))
		}},
		{name: "fallocate/keep-size", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			t.ok(fallocate(fd, keep, 0, 1<<20))
			t.size("f", 12345)
			t.has("f", bytesOf(12345))
			t.ok(unix.Ftruncate(fd, 13000))
			t.has("f", bytesOf(12345)+strings.Repeat("\x00", 13000-12345))
		}},
		{name: "fallocate/punch-hole", tree: tree, run: func(t *fsT) {
			fd, want := t.open("f", rdwr), bytesOf(12345)
			for _, r := range [][2]int{{4096, 8192}, {10, 20}, {4000, 4200}, {12000, 12345}} {
				t.ok(fallocate(fd, hole, int64(r[0]), int64(r[1]-r[0])))
				want = zeroed(want, r[0], r[1])
				t.has("f", want)
			}
			t.ok(fallocate(fd, hole, 0, 1<<30)) // the size stays
			t.has("f", strings.Repeat("\x00", 12345))
		}},
		{name: "fallocate/punch-gives-back", run: func(t *fsT) {
			fd := t.open("f", rdwr|creat)
			t.write(fd, bytesOf(4<<20))
			before := t.fstat(fd).Blocks
			t.ok(fallocate(fd, hole, 1<<20, 2<<20))
			if after := t.fstat(fd).Blocks; after > before-1<<20/512 {
				t.fail("%d blocks, were %d", after, before)
			}
			t.same("contents", []byte(t.get("f")), []byte(zeroed(bytesOf(4<<20), 1<<20, 3<<20)))
		}},
		{name: "fallocate/punch-seen-by-mapping", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			m := t.mmap(fd, 0, 12345, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			t.same("mapping", m, []byte(bytesOf(12345)))
			t.ok(fallocate(fd, hole, 4096, 4100))
			t.same("mapping", m, []byte(zeroed(bytesOf(12345), 4096, 8196)))
			m[5000] = 'x'
			eq(t, "written by the mapping", t.pread(fd, 1, 5000), "x")
		}},
		{name: "fallocate/punch-needs-keep-size", tree: tree, run: func(t *fsT) {
			t.is(fallocate(t.open("f", rdwr), unix.FALLOC_FL_PUNCH_HOLE, 0, 10), unix.EOPNOTSUPP)
			t.intact()
		}},
		{name: "fallocate/zero-range", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			if err := fallocate(fd, zero, 100, 5000); err == unix.EOPNOTSUPP {
				t.intact()
				t.skip("ZERO_RANGE is not supported")
			} else {
				t.ok(err)
			}
			t.has("f", zeroed(bytesOf(12345), 100, 5100))
			t.ok(fallocate(fd, zero|keep, 12000, 5000))
			t.has("f", zeroed(bytesOf(12345), 100, 5100)[:12000]+strings.Repeat("\x00", 345))
			t.ok(fallocate(fd, zero, 12000, 5000))
			t.size("f", 17000)
		}},
		{name: "fallocate/invalid", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			t.is(fallocate(fd, 0, -1, 10), unix.EINVAL)
			t.is(fallocate(fd, 0, 0, 0), unix.EINVAL)
			t.is(fallocate(fd, 0, 0, -5), unix.EINVAL)
			t.is(fallocate(t.open("f", rdonly), 0, 0, 10), unix.EBADF)
			t.is(fallocate(fd, 0, 1<<62, 1<<62), unix.EFBIG)
			t.is(fallocate(t.open("fifo", rdwr|unix.O_NONBLOCK), 0, 0, 10), unix.ESPIPE)
			t.intact()
		}},
	}
}

// fallocate is fallocate(2), which a signal may interrupt, and Go's runtime sends
// them to its threads.
func fallocate(fd int, mode uint32, at, length int64) error {
	for {
		if err := unix.Fallocate(fd, mode, at, length); err != unix.EINTR {
			return err
		}
	}
}

// fsCopyProgram makes a copy of this program.
func fsCopyProgram(t *fsT, to string, mode uint32) {
	b, err := os.ReadFile("/proc/self/exe")
	t.ok(err)
	fd, err := unix.Open(to, wronly|creat|excl|unix.O_CLOEXEC, mode)
	t.ok(err)
	defer unix.Close(fd)
	t.write(fd, string(b))
}
