package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// fsPatience is patience for what runs on a machine that works hard: whoever starts
// such tests has more.
const fsPatience = 2 * time.Minute

// fsxMost is how long the file of fsx may become, in bytes.
const fsxMost = 400 << 10

// fsx does random things with one file and knows what must be in it, as the program
// of that name does. The file is open and mapped all the time, so what one way of
// access changes all others must see; and all of it is in memory, so that a fork
// takes it along.
type fsx struct {
	name   string
	rng    *rand.Rand
	fd     int
	m      []byte // the file, mapped shared
	frozen bool   // m cannot be written: then a write by others may move pages
	want   []byte
	did    int
	recent [8]string
}

// fsFsx runs until it is killed or something is wrong: "fsx FILE SEED COUNT" that
// many operations, "fsx start FILE SEED" in the background. "fsx check FILE" waits
// until the one in the background has done some more, and fails if it has ended.
func fsFsx(args []string) (int, error) {
	switch args[0] {
	case "start":
		c := exec.Command("/proc/self/exe", "fs", "fsx", args[1], args[2], "0")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		log, err := os.Create(fsxLog(args[1]))
		if err != nil {
			return 1, err
		}
		c.Stdout, c.Stderr = log, log
		return 0, c.Start()
	case "check":
		return fsxCheck(args[1])
	}
	debug.SetPanicOnFault(true)
	x := &fsx{name: args[0], rng: rand.New(rand.NewPCG(uint64(mustInt(args[1], 10)), 0))}
	count := mustInt(args[2], 10)
	if err := x.open(); err != nil {
		return 1, err
	}
	for count == 0 || x.did < count {
		if err := x.step(); err != nil {
			return 1, fmt.Errorf("operation %d: %w, after %q", x.did, err, x.recent)
		}
		if x.did++; count == 0 && x.did%64 == 0 {
			fmt.Println(x.did)
			time.Sleep(time.Millisecond) // others want to do something too
		}
	}
	return 0, nil
}

func fsxLog(name string) string { return "/dev/shm/fsx-" + filepath.Base(name) + ".log" }

// fsxDone is how many operations are done.
func fsxDone(name string) (int, error) {
	b, err := os.ReadFile(fsxLog(name))
	if err != nil {
		return 0, err
	}
	lines := bytes.Fields(b)
	if len(lines) == 0 {
		return 0, nil
	}
	n, err := strconv.Atoi(string(lines[len(lines)-1]))
	if err != nil {
		return 0, fmt.Errorf("%s", b[max(0, len(b)-2000):])
	}
	return n, nil
}

func fsxCheck(name string) (int, error) {
	first, err := fsxDone(name)
	for until := time.Now().Add(fsPatience); err == nil && time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		var n int
		if n, err = fsxDone(name); n >= first+128 {
			return 0, err
		}
	}
	return 1, errors.Join(err, fmt.Errorf("it does not go on from %d", first))
}

// open opens the file and takes it as it is.
func (x *fsx) open() (err error) {
	if x.fd, err = unix.Open(x.name, rdwr|creat|unix.O_CLOEXEC, 0o644); err != nil {
		return err
	}
	if x.want, err = os.ReadFile(x.name); err != nil {
		return err
	}
	if len(x.want) > fsxMost {
		return fmt.Errorf("%s has %d bytes", x.name, len(x.want))
	}
	return x.remap()
}

// remap maps the file, so that it can be written or not.
func (x *fsx) remap() (err error) {
	fd, flags := x.fd, readWrite
	if x.frozen = x.rng.IntN(2) == 0; x.frozen {
		if fd, err = unix.Open(x.name, rdonly|unix.O_CLOEXEC, 0); err != nil {
			return fmt.Errorf("open to read: %w", err)
		}
		defer unix.Close(fd)
		flags = readOnly
	}
	if x.m, err = unix.Mmap(fd, 0, fsxMost, flags, shared); err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	return nil
}

// place is where to do something, of at most most bytes.
func (x *fsx) place(end, most int) (off, n int) {
	if end == 0 {
		return 0, 0
	}
	off = x.rng.IntN(end)
	if x.rng.IntN(3) == 0 {
		off &^= page - 1
	}
	n = 1 + x.rng.IntN(min(most, end-off))
	if x.rng.IntN(4) == 0 && off+(n+page-1)&^(page-1) <= end {
		n = (n + page - 1) &^ (page - 1)
	}
	return off, n
}

func (x *fsx) note(what string, off, n int) {
	x.recent[x.did%len(x.recent)] = fmt.Sprintf("%s %d+%d of %d", what, off, n, len(x.want))
}

// data is what is written.
func (x *fsx) data(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(x.rng.Uint32() | 1) // nothing that could be a hole
	}
	return b
}

// grow makes want at least that long.
func (x *fsx) grow(n int) {
	if n > len(x.want) {
		x.want = append(x.want, make([]byte, n-len(x.want))...)
	}
}

func (x *fsx) same(what string, got []byte, off int) error {
	if i := len(got); !bytes.Equal(got, x.want[off:off+i]) {
		for i = range got {
			if got[i] != x.want[off+i] {
				break
			}
		}
		return fmt.Errorf("%s: byte %d of %d+%d is %#x, not %#x; the file has %d", what, off+i, off, len(got), got[i], x.want[off+i], len(x.want))
	}
	return nil
}

func (x *fsx) step() error {
	switch x.rng.IntN(16) {
	case 0, 1:
		return x.read()
	case 2, 3, 4:
		return x.write()
	case 5:
		return x.truncate()
	case 6, 7:
		off, n := x.place(len(x.want), 80<<10)
		x.note("read mapping", off, n)
		return x.same("mapping", bytes.Clone(x.m[off:off+n]), off)
	case 8, 9:
		if x.frozen {
			return nil
		}
		off, n := x.place(len(x.want), 40<<10)
		x.note("write mapping", off, n)
		copy(x.m[off:off+n], x.data(n))
		copy(x.want[off:], x.m[off:off+n])
		return nil
	case 10:
		return x.punch()
	case 11:
		return x.allocate()
	case 12:
		return x.otherMapping()
	case 13:
		return x.again()
	case 14:
		return x.holes()
	default:
		return x.ownMapping()
	}
}

func (x *fsx) read() error {
	off, n := x.place(fsxMost, 80<<10)
	x.note("read", off, n)
	b := make([]byte, n)
	got, err := unix.Pread(x.fd, b, int64(off))
	if want := max(0, min(n, len(x.want)-off)); err != nil || got != want {
		return fmt.Errorf("%d bytes were read at %d, not %d: %w", got, off, want, err)
	}
	if got == 0 {
		return nil
	}
	return x.same("read", b[:got], off)
}

func (x *fsx) write() error {
	off, n := x.place(fsxMost, 40<<10)
	if x.rng.IntN(4) == 0 && len(x.want) < fsxMost { // at the end
		off = len(x.want)
		n = min(n, fsxMost-off)
	}
	x.note("write", off, n)
	b := x.data(n)
	if got, err := unix.Pwrite(x.fd, b, int64(off)); err != nil || got != n {
		return fmt.Errorf("%d of %d bytes were written: %w", got, n, err)
	}
	x.grow(off + n)
	copy(x.want[off:], b)
	return nil
}

func (x *fsx) truncate() error {
	n := x.rng.IntN(fsxMost + 1)
	x.note("truncate", n, 0)
	if err := unix.Ftruncate(x.fd, int64(n)); err != nil {
		return fmt.Errorf("truncate: %w", err)
	}
	x.grow(n)
	x.want = x.want[:n]
	return nil
}

// punch makes zeros.
func (x *fsx) punch() error {
	off, n := x.place(fsxMost, 100<<10)
	mode := []int{unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE, unix.FALLOC_FL_ZERO_RANGE, unix.FALLOC_FL_ZERO_RANGE | unix.FALLOC_FL_KEEP_SIZE}[x.rng.IntN(3)]
	x.note(fmt.Sprint("fallocate ", mode), off, n)
	err := fallocate(x.fd, uint32(mode), int64(off), int64(n))
	if errors.Is(err, unix.EOPNOTSUPP) && mode&unix.FALLOC_FL_ZERO_RANGE != 0 {
		return nil // tmpfs
	}
	if err != nil {
		return fmt.Errorf("make zeros: %w", err)
	}
	if mode&unix.FALLOC_FL_KEEP_SIZE == 0 {
		x.grow(off + n)
	}
	if off < len(x.want) {
		clear(x.want[off:min(off+n, len(x.want))])
	}
	return nil
}

func (x *fsx) allocate() error {
	off, n := x.place(fsxMost, 100<<10)
	mode := x.rng.IntN(2) * unix.FALLOC_FL_KEEP_SIZE
	x.note(fmt.Sprint("fallocate ", mode), off, n)
	if err := fallocate(x.fd, uint32(mode), int64(off), int64(n)); err != nil {
		return fmt.Errorf("fallocate: %w", err)
	}
	if mode == 0 {
		x.grow(off + n)
	}
	return nil
}

// otherMapping maps a part of the file once more, shared or private.
func (x *fsx) otherMapping() error {
	off, n := x.place(len(x.want), 80<<10)
	if n == 0 {
		return nil
	}
	first := off &^ (page - 1)
	isPrivate := x.rng.IntN(2) == 0
	kind := shared
	if isPrivate {
		kind = private
	}
	x.note(fmt.Sprint("map, private ", isPrivate), off, n)
	m, err := unix.Mmap(x.fd, int64(first), off+n-first, readWrite, kind)
	if err != nil {
		return fmt.Errorf("mmap: %w", err)
	}
	defer unix.Munmap(m)
	part := m[off-first:]
	if err := x.same("another mapping", bytes.Clone(part), off); err != nil {
		return err
	}
	b := x.data(n)
	copy(part, b)
	if !isPrivate {
		copy(x.want[off:], b)
		return nil
	}
	if !bytes.Equal(part, b) {
		return errors.New("a private mapping has not what was written to it")
	}
	return x.same("file after a write to a private mapping", bytes.Clone(x.m[off:off+n]), off)
}

// again opens, maps or renames the file again, or looks at its size.
func (x *fsx) again() error {
	x.note("again", 0, 0)
	if err := unix.Fsync(x.fd); err != nil {
		return fmt.Errorf("fsync: %w", err)
	}
	if err := errors.Join(unix.Rename(x.name, x.name+".moved"), unix.Rename(x.name+".moved", x.name)); err != nil {
		return fmt.Errorf("rename: %w", err)
	}
	if x.rng.IntN(2) == 0 {
		fd, err := unix.Open(x.name, rdwr|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open again: %w", err)
		}
		if err := unix.Close(x.fd); err != nil {
			return fmt.Errorf("close: %w", err)
		}
		x.fd = fd
	}
	if x.rng.IntN(3) == 0 {
		if err := unix.Munmap(x.m); err != nil {
			return fmt.Errorf("munmap: %w", err)
		}
		if err := x.remap(); err != nil {
			return err
		}
	}
	var s unix.Stat_t
	if err := unix.Fstat(x.fd, &s); err != nil || s.Size != int64(len(x.want)) {
		return fmt.Errorf("the file has %d bytes, not %d: %w", s.Size, len(x.want), err)
	}
	return nil
}

// holes checks that where no data is there are zeros.
func (x *fsx) holes() error {
	x.note("holes", 0, 0)
	for at := int64(0); at < int64(len(x.want)); {
		data, err := unix.Seek(x.fd, at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			data, err = int64(len(x.want)), nil
		}
		if err != nil {
			return fmt.Errorf("look for data from %d on: %w", at, err)
		}
		if len(bytes.Trim(x.want[at:data], "\x00")) > 0 {
			return fmt.Errorf("there is data between %d and %d", at, data)
		}
		if data == int64(len(x.want)) {
			return nil
		}
		if at, err = unix.Seek(x.fd, data, unix.SEEK_HOLE); err != nil || at <= data {
			return fmt.Errorf("look for a hole from %d on: %d, %w", data, at, err)
		}
	}
	return nil
}

// ownMapping writes what is in the mapping of the file to the file.
func (x *fsx) ownMapping() error {
	from, n := x.place(len(x.want), 20<<10)
	if n == 0 {
		return nil
	}
	off := x.rng.IntN(fsxMost - n)
	x.note(fmt.Sprint("write what is mapped at ", from), off, n)
	if off < from+n && from < off+n {
		return nil // what comes of that nobody says
	}
	b := bytes.Clone(x.want[from : from+n])
	if got, err := unix.Pwrite(x.fd, x.m[from:from+n], int64(off)); err != nil || got != n {
		return fmt.Errorf("%d of %d mapped bytes were written: %w", got, n, err)
	}
	x.grow(off + n)
	copy(x.want[off:], b)
	return nil
}
