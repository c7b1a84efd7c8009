package cowfs

import (
	"errors"
	"fmt"
	"io"
	"os"

	"ramet.dev/ramet/internal/storage/pages"
)

// Place is the place of some bytes of a file in a file of the host: at most as many as one
// system call should write.
type Place struct {
	File   *os.File
	Offset int64
	N      uint64
	// Mem are the same bytes, mapped.
	Mem []byte
}

// ErrNotReady is returned for blocks that may not be written. They need Prepare, again if
// the tree was pinned since.
var ErrNotReady = errors.New("file's blocks are not ready to be written")

// Write calls fn for consecutive places of [off, off+n), which Prepare made ready. fn returns
// the number of bytes that it wrote; if that is less than the place's size, or with an error,
// writing ends. fn is called with the tree locked for reading, so that the tree cannot be
// pinned meanwhile.
func (f *contents) Write(ino Ino, a *Attr, off, n uint64, fn func(Place) (uint64, error)) error {
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
			return pages.NoSpace(err)
		}
	}
	return nil
}

func (f *contents) place(ino Ino, a *Attr, off, n uint64) (Place, error) {
	block := off / pages.PageSize
	r, err := f.run(ino, a, block, min(BlocksIn(off+n)-block, maxExtent))
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
	skip := off - block*pages.PageSize
	at := int64(r.Page)*pages.PageSize + int64(skip)
	size := min(r.N*pages.PageSize-skip, n, pages.MaxCall(at))
	return Place{File: file, Offset: at, N: size, Mem: mem[skip : skip+size]}, nil
}

// WriteAt writes b, which is not longer than the place, to it.
func (p *Place) WriteAt(b []byte) (int, error) {
	n, err := p.File.WriteAt(b, p.Offset)
	if err != nil {
		return n, fmt.Errorf("write %d bytes of a file's data: %w", len(b), pages.NoSpace(err))
	}
	return n, nil
}

// ErrUnreadable is returned by functions that read mapped memory which the host does not
// provide: a full tmpfs has none for a page that was never written.
var ErrUnreadable = errors.New("the host has no memory for a page")

// readCopy calls fn with a copy of at most n bytes of a run, which begin skip bytes behind its
// start.
func (f *contents) readCopy(r *Run, skip, n uint64, fn func(mem []byte, size int) (int, error)) (int, error) {
	file, _, err := f.store.FileOf(r.Page)
	if err != nil {
		return 0, err
	}
	b := make([]byte, min(n, pages.PieceSize))
	if err := pages.ReadPages(file, int64(r.Page)*pages.PageSize+int64(skip), b); err != nil {
		return 0, err
	}
	got, err := fn(b, len(b))
	if err == nil && got < len(b) {
		err = io.ErrShortWrite
	}
	return got, err
}
