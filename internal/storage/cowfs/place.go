package cowfs

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// pieceSize bounds what one system call writes, and with it how many pages the
// host's page cache keeps together: each later store to one of them, or write of a
// few bytes, takes the longer the more there are (measured on ext4: a write of 4 KiB
// 3.5 µs behind pieces of 1 MiB, 1.9 behind 64 KiB; a fault 6.9 and 2.6).
const pieceSize = 64 << 10

// maxCall is how much one call may write at an offset.
func maxCall(at int64) uint64 { return pieceSize - uint64(at)%pieceSize }

// Place is where some bytes of a file are in a file of the host: at most as many as
// one system call should write.
type Place struct {
	File   *os.File
	Offset int64
	N      uint64
	// Mem is the same bytes, mapped.
	Mem []byte
}

// ErrNotReady is returned for a place that may not be written: Prepare it
// (again, if a pin came in between).
var ErrNotReady = errors.New("file's blocks are not ready to be written")

// Write calls fn for consecutive places of [off, off+n), which Prepare made
// ready. fn returns how much it wrote there; if that is less than the place's
// size, or with an error, writing ends. fn is called with the tree locked for
// reading: no pin can come in between.
func (f *FS) Write(ino Ino, a *Attr, off, n uint64, fn func(Place) (uint64, error)) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for end := off + n; off < end; {
		p, err := f.place(ino, a, off, end-off)
		if err != nil {
			return err
		}
		got, err := fn(p)
		off += got
		if err != nil || got < p.N {
			return noSpace(err)
		}
	}
	return nil
}

func (f *FS) place(ino Ino, a *Attr, off, n uint64) (Place, error) {
	block := off / PageSize
	r, err := f.run(ino, a, block, min(blocksIn(off+n)-block, maxExtent))
	if err != nil {
		return Place{}, err
	}
	if r.Page == 0 || !r.Mutable {
		return Place{}, ErrNotReady
	}
	file, _, err := f.store.FileOf(r.Page)
	if err != nil {
		return Place{}, err
	}
	mem, err := f.store.Bytes(r.Page, int(r.N))
	if err != nil {
		return Place{}, err
	}
	skip := off - block*PageSize
	at := int64(r.Page)*PageSize + int64(skip)
	size := min(r.N*PageSize-skip, n, maxCall(at))
	return Place{File: file, Offset: at, N: size, Mem: mem[skip : skip+size]}, nil
}

// WriteAt writes b, which is not longer than the place, to it.
func (p *Place) WriteAt(b []byte) (int, error) {
	n, err := p.File.WriteAt(b, p.Offset)
	if err != nil {
		return n, fmt.Errorf("write %d bytes of a file's data: %w", len(b), noSpace(err))
	}
	return n, nil
}

// noSpace makes a full disk of the host look like a full sandbox.
func noSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return fmt.Errorf("%w: the host's disk is full (%w)", ErrNoSpace, err)
	}
	return err
}

// ErrUnreadable is what a function that reads says about memory that the host does
// not provide: on a full tmpfs there is none for a page that was never written.
var ErrUnreadable = errors.New("the host has no memory for a page")

// readCopy calls fn with a copy of some bytes of a run, which begin skip bytes behind
// its start.
func (f *FS) readCopy(r *Run, skip, n uint64, fn func(mem []byte, size int) (int, error)) (int, error) {
	file, _, err := f.store.FileOf(r.Page)
	if err != nil {
		return 0, err
	}
	b := make([]byte, min(n, pieceSize))
	if err := readPages(file, int64(r.Page)*PageSize+int64(skip), b); err != nil {
		return 0, err
	}
	got, err := fn(b, len(b))
	if err == nil && got < len(b) {
		err = io.ErrShortWrite
	}
	return got, err
}
