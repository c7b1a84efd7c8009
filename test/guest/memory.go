package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// heap is memory of the language's own.
type heap struct{ value []byte }

func newHeap() (item, error) { return &heap{}, nil }

func (h *heap) set(v string) error   { h.value = []byte(v); return nil }
func (h *heap) get() (string, error) { return string(h.value), nil }

// bulk is anonymous memory, each page of which holds a number.
type bulk struct {
	numbered
	mem []byte
}

func newBulk(mib, flags int) (item, error) {
	mem, err := unix.Mmap(-1, 0, mib<<20, unix.PROT_READ|unix.PROT_WRITE, flags|unix.MAP_ANON)
	return &bulk{mem: mem}, err
}

func (b *bulk) set(v string) error {
	b.want = v
	for off := 0; off < len(b.mem); off += 4096 {
		binary.LittleEndian.PutUint32(b.mem[off:], number(v)+uint32(off))
	}
	return nil
}

func (b *bulk) get() (string, error) {
	for off := 0; off < len(b.mem); off += 4096 {
		if v, err := b.check(binary.LittleEndian.Uint32(b.mem[off:]) - uint32(off)); err != nil {
			return v, fmt.Errorf("page at %#x: %w", off, err)
		}
	}
	return b.want, nil
}

// strata is memory of which each change writes a piece of its own, so that each
// generation that changes it keeps some.
type strata struct {
	mem    []byte
	values []string // of the pieces
}

const (
	strataSize  = 30 << 20 // bytes: what is larger is copied in larger pieces
	stratumSize = 64 << 10
)

func newStrata() (item, error) {
	mem, err := unix.Mmap(-1, 0, strataSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	return &strata{mem: mem}, err
}

func (s *strata) set(v string) error {
	at := len(s.values) * stratumSize
	if at == len(s.mem) {
		return fmt.Errorf("%d changes are too many", len(s.values))
	}
	copy(s.mem[at:at+stratumSize], v)
	s.values = append(s.values, v)
	return nil
}

func (s *strata) get() (string, error) {
	last := ""
	for i, want := range s.values {
		if last = cstring(s.mem[i*stratumSize:][:stratumSize]); last != want {
			return last, fmt.Errorf("piece %d is %q, not %q", i, last, want)
		}
	}
	return last, nil
}

// newDontFork is memory that fork(2) leaves out. A sandbox's fork must not.
func newDontFork() (item, error) {
	b, err := newBulk(1, unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	return b, unix.Madvise(b.(*bulk).mem, unix.MADV_DONTFORK)
}

// mapped is a value at the start of a page, ended by a NUL.
type mapped struct{ page []byte }

func (m *mapped) set(v string) error {
	clear(m.page)
	copy(m.page, v)
	return nil
}

func (m *mapped) get() (string, error) { return cstring(m.page), nil }

func cstring(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

func mapFile(fd, flags int) (mapped, error) {
	page, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, flags)
	return mapped{page}, err
}

func newFile(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	return f, f.Truncate(4096)
}

// privateMap is a private mapping of a file, which must not change.
type privateMap struct {
	mapped
	file *os.File
}

const untouched = "the file itself"

func newPrivateMap() (item, error) {
	f, err := newFile(filepath.Join(holdDir, "private-map"))
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt([]byte(untouched), 0); err != nil {
		return nil, err
	}
	m, err := mapFile(int(f.Fd()), unix.MAP_PRIVATE)
	return &privateMap{m, f}, err
}

func (p *privateMap) get() (string, error) {
	b := make([]byte, 4096)
	if _, err := p.file.ReadAt(b, 0); err != nil {
		return "", err
	}
	if s := cstring(b); s != untouched {
		return "", fmt.Errorf("the file became %q", s)
	}
	return p.mapped.get()
}

// sharedMap is a shared mapping of a file: written in memory, read by read(2).
type sharedMap struct {
	mapped
	file *os.File
}

func newSharedMap() (item, error) { return newSharedMapOf(filepath.Join(holdDir, "shared-map")) }
func newShmFile() (item, error)   { return newSharedMapOf("/dev/shm/hold") }

func newSharedMapOf(name string) (item, error) {
	f, err := newFile(name)
	if err != nil {
		return nil, err
	}
	m, err := mapFile(int(f.Fd()), unix.MAP_SHARED)
	return &sharedMap{m, f}, err
}

func (s *sharedMap) get() (string, error) {
	b := make([]byte, 4096)
	if _, err := s.file.ReadAt(b, 0); err != nil {
		return "", err
	}
	return cstring(b), nil
}

// memfd is memory shared with another process, which reads it.
type memfd struct {
	mapped
	reader *workerProcess
}

func newMemfd() (item, error) {
	fd, err := unix.MemfdCreate("hold", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "memfd")
	if err := f.Truncate(4096); err != nil {
		return nil, err
	}
	m, err := mapFile(fd, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	w, err := startWorker(f)
	return &memfd{m, w}, err
}

func (m *memfd) get() (string, error) { return m.reader.call("shared") }

// sysvShm is a System V shared memory segment, attached twice.
type sysvShm struct {
	mapped
	second []byte
}

func newSysvShm() (item, error) {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, 0o600)
	if err != nil {
		return nil, err
	}
	first, err := unix.SysvShmAttach(id, 0, 0)
	if err != nil {
		return nil, err
	}
	second, err := unix.SysvShmAttach(id, 0, 0)
	return &sysvShm{mapped{first}, second}, err
}

func (s *sysvShm) get() (string, error) { return cstring(s.second), nil }

// mappedBy maps a file, reads its last byte, and prints how many KiB more of it are
// mapped then.
func mappedBy(args []string) (int, error) {
	if len(args) != 1 {
		return 2, errors.New("usage: mapped FILE")
	}
	f, err := os.Open(args[0])
	if err != nil {
		return 1, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 1, err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, int(fi.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return 1, err
	}
	before, err := resident()
	if err != nil {
		return 1, err
	}
	_ = readByte(&m[len(m)-1])
	after, err := resident()
	if err != nil {
		return 1, err
	}
	fmt.Println((after - before) * os.Getpagesize() >> 10)
	return 0, nil
}

// resident returns how many pages of this process are mapped.
func resident() (pages int, err error) {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(b), new(int), &pages)
	return pages, err
}
