package main

import (
	"errors"
	"os/signal"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fsRareCases are calls that few programs make.
func fsRareCases() []fsCase {
	const tree = "f f *20000; d d; p p"
	want := bytesOf(20000)
	return []fsCase{
		{name: "overlay/lower", tree: tree + "; d t; d m", run: func(t *fsT) {
			at := func(name string) string { return t.dir + "/" + name }
			if err := unix.Mount("none", at("t"), "tmpfs", 0, ""); err == unix.EPERM {
				t.skip("nothing can be mounted")
			} else {
				t.ok(err)
			}
			t.later(func() { _ = unix.Unmount(at("t"), unix.MNT_DETACH) })
			t.ok(unix.Mkdir("t/upper", 0o755))
			t.ok(unix.Mkdir("t/work", 0o755))
			options := "lowerdir=" + t.dir + ",upperdir=" + at("t/upper") + ",workdir=" + at("t/work")
			t.ok(unix.Mount("overlay", at("m"), "overlay", 0, options))
			t.later(func() { _ = unix.Unmount(at("m"), unix.MNT_DETACH) })
			t.has("m/f", want)
			t.same("mapping", t.mmap(t.open("m/f", rdonly), 0, page, unix.PROT_READ, shared), []byte(want[:page]))
			t.write(t.open("m/f", wronly), "above")
			t.has("m/f", "above"+want[5:])
			t.has("f", want)
			t.ok(unix.Unlink("m/p"))
			t.is(try("m/p", rdonly|unix.O_NONBLOCK), unix.ENOENT)
			t.ok(try("p", rdonly|unix.O_NONBLOCK))
		}},
		{name: "mmap/remap", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			m := t.mmap(fd, 0, page, readWrite, shared)
			m[10] = 'a'
			larger, err := unix.Mremap(m, 5*page, unix.MREMAP_MAYMOVE)
			t.ok(err)
			copy(larger[3*page:], "mapped")
			t.same("mapping", larger[page:3*page], []byte(want[page:3*page]))
			t.has("f", want[:10]+"a"+want[11:3*page]+"mapped"+want[3*page+6:])
			smaller, err := unix.Mremap(larger, page, 0)
			t.ok(err)
			eq(t, "byte", smaller[10], 'a')
			t.ok(unix.Munmap(smaller))
		}},
		{name: "mmap/thrown-away", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			s, p := t.mmap(fd, 0, 5*page, readWrite, shared), t.mmap(fd, 0, 5*page, readWrite, private)
			s[page], p[page+1] = 'S', 'P'
			t.ok(unix.Madvise(s, unix.MADV_DONTNEED))
			eq(t, "shared", s[page], 'S')
			eq(t, "private", p[page+1], 'P')
			t.ok(unix.Madvise(p, unix.MADV_DONTNEED))
			eq(t, "private, of the file", string(p[page:page+2]), "S"+want[page+1:page+2])
			t.has("f", want[:page]+"S"+want[page+1:])
		}},
		{name: "mmap/ahead", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			m := t.mmap(fd, 0, 20000, readWrite, shared|unix.MAP_POPULATE)
			for _, advice := range []int{unix.MADV_WILLNEED, unix.MADV_SEQUENTIAL, unix.MADV_RANDOM, unix.MADV_NORMAL} {
				t.ok(unix.Madvise(m, advice))
			}
			for _, advice := range []int{unix.FADV_WILLNEED, unix.FADV_SEQUENTIAL, unix.FADV_DONTNEED} {
				t.ok(unix.Fadvise(fd, 0, 20000, advice))
			}
			t.same("mapping", m, []byte(want))
			m[0] = 'x'
			for _, flags := range []int{unix.MS_ASYNC, unix.MS_SYNC, unix.MS_SYNC | unix.MS_INVALIDATE} {
				t.ok(unix.Msync(m, flags))
			}
			t.has("f", "x"+want[1:])
		}},
		{name: "mmap/writes-at-the-same-time", tree: tree, run: func(t *fsT) {
			// Half of each page is written through a mapping, half by system calls.
			fd := t.open("f", rdwr)
			m := t.mmap(fd, 0, 4*page, readWrite, shared)
			done := make(chan error, 1)
			go func() {
				for i := range 400 {
					if _, err := unix.Pwrite(fd, []byte{byte(i)}, int64(i%4*page+page/2+i/4)); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			for i := range 400 {
				m[i%4*page+i/4] = byte(i)
			}
			t.ok(<-done)
			for i := range 400 {
				eq(t, "mapped byte", t.pread(fd, 1, int64(i%4*page+i/4)), string([]byte{byte(i)}))
				eq(t, "written byte", m[i%4*page+page/2+i/4], byte(i))
			}
		}},
		{name: "io/limit-of-size", tree: tree, run: func(t *fsT) {
			signal.Ignore(syscall.SIGXFSZ)
			defer signal.Reset(syscall.SIGXFSZ)
			var old unix.Rlimit
			t.ok(unix.Getrlimit(unix.RLIMIT_FSIZE, &old))
			fd := t.open("f", rdwr)
			t.ok(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 30000, Max: old.Max}))
			n, err := unix.Pwrite(fd, []byte(want), 20000)
			_, err2 := unix.Pwrite(fd, []byte("x"), 30000)
			err3 := unix.Ftruncate(fd, 30001)
			err4 := fallocate(fd, 0, 29999, 2)
			t.ok(unix.Setrlimit(unix.RLIMIT_FSIZE, &old))
			t.ok(err)
			eq(t, "bytes up to the limit", n, 10000)
			t.is(err2, unix.EFBIG)
			t.is(err3, unix.EFBIG)
			t.is(err4, unix.EFBIG)
			t.has("f", want+want[:10000])
		}},
		{name: "io/copy-file-range", tree: tree, run: func(t *fsT) {
			from, to := t.open("f", rdonly), t.open("copy", rdwr|creat)
			at := int64(5000)
			n, err := unix.CopyFileRange(from, &at, to, nil, 10000, 0)
			if errors.Is(err, unix.ENOSYS) {
				t.skip("there is no copy_file_range(2)")
			}
			t.ok(err)
			t.has("copy", want[5000:5000+n])
			eq(t, "offset", at, int64(5000+n))
		}},
		{name: "io/direct", tree: tree, run: func(t *fsT) {
			fd, err := unix.Open("f", rdwr|unix.O_DIRECT|unix.O_CLOEXEC, 0)
			if errors.Is(err, unix.EINVAL) {
				t.skip("there is no O_DIRECT")
			}
			t.ok(err)
			b := make([]byte, 2*page)
			b = b[(page-int(uintptr(unsafe.Pointer(&b[0])))%page)%page:][:page]
			copy(b, "direct")
			n, err := unix.Pwrite(fd, b, page)
			t.ok(err)
			eq(t, "written", n, page)
			clear(b)
			_, err = unix.Pread(fd, b, page)
			t.ok(err)
			eq(t, "read", string(b[:6]), "direct")
			t.has("f", want[:page]+"direct"+string(make([]byte, page-6))+want[2*page:])
			t.ok(unix.Close(fd))
		}},
		{name: "io/synced", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr|unix.O_SYNC)
			t.pwrite(fd, "synced", 0)
			dir := t.open("d", rdonly)
			for _, fd := range []int{fd, dir} {
				t.ok(unix.Fsync(fd))
				t.ok(unix.Fdatasync(fd))
				t.ok(unix.Syncfs(fd))
			}
			t.ok(unix.SyncFileRange(fd, 0, 100, unix.SYNC_FILE_RANGE_WRITE))
			t.has("f", "synced"+want[6:])
		}},
		{name: "fallocate/modes-that-are-not", tree: tree, run: func(t *fsT) {
			fd := t.open("f", rdwr)
			for _, mode := range []uint32{unix.FALLOC_FL_COLLAPSE_RANGE, unix.FALLOC_FL_INSERT_RANGE, unix.FALLOC_FL_UNSHARE_RANGE | 0x100} {
				t.is(fallocate(fd, mode, page, page), unix.EOPNOTSUPP)
			}
			t.is(fallocate(t.open("d", rdonly), 0, 0, 1), unix.EBADF, unix.ENODEV, unix.EISDIR)
			t.is(fallocate(t.open("p", rdwr), 0, 0, 1), unix.ESPIPE, unix.ENODEV)
			t.has("f", want)
		}},
		{name: "rename/flags-that-are-not", tree: tree, run: func(t *fsT) {
			at := unix.AT_FDCWD
			t.is(unix.Renameat2(at, "f", at, "g", unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE), unix.EINVAL)
			t.is(unix.Renameat2(at, "f", at, "g", 0x80), unix.EINVAL)
			t.has("f", want)
			t.gone("g")
		}},
	}
}
