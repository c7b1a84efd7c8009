package snapdir

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/engine/snapfile"
	"ramet.dev/ramet/internal/storage/hostfs"
)

// Part is what is recorded of one file of a snapshot on disk besides its state.
type Part struct {
	Size   int64  `json:"size"`
	Digest string `json:"digest"` // see pageHash
	// Stamp is that of the file whose contents matched Digest: as long as the stamp is
	// the same, the file is not read again.
	Stamp Stamp `json:"stamp"`
}

// Check compares a file with p.
func (p *Part) Check(ctx context.Context, f *os.File) error {
	name := filepath.Base(f.Name())
	if st, err := f.Stat(); err != nil || st.Size() != p.Size {
		return fmt.Errorf("%s is not %d bytes long", name, p.Size)
	}
	digest, err := pagesDigest(ctx, f)
	if err != nil {
		return err
	}
	if digest != p.Digest {
		return fmt.Errorf("%s does not match its digest", name)
	}
	return nil
}

// Stamp changes with everything that changes a file. A copy of the file has another
// stamp.
type Stamp struct {
	Inode   uint64 `json:"inode"`
	Size    int64  `json:"size"`
	Changed int64  `json:"changed"` // time of the last change of its contents or attributes, in nanoseconds
}

// StampOf returns the stamp that f has now.
func StampOf(f interface{ Fd() uintptr }) (Stamp, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Stamp{}, err
	}
	return Stamp{Inode: st.Ino, Size: st.Size, Changed: st.Ctim.Nano()}, nil
}

// pageHash is a digest of the pages of a file that are not zero, each with its
// place: it does not matter where holes are.
type pageHash struct{ hash hash.Hash }

func newPageHash() *pageHash { return &pageHash{sha256.New()} }

func (h *pageHash) add(offset int64, page []byte) {
	var at [8]byte
	binary.LittleEndian.PutUint64(at[:], uint64(offset))
	h.hash.Write(at[:])
	h.hash.Write(page)
}

func (h *pageHash) sum() string { return hex.EncodeToString(h.hash.Sum(nil)) }

var zeroPage [snapfile.PageSize]byte

// chunk is how much is read at once.
const chunk = 1 << 20

// eachPage calls fn for the pages of [start, end) of a file that are not zero, in
// runs. buf is room for some pages.
func eachPage(ctx context.Context, f *os.File, start, end int64, buf []byte, fn func(offset int64, run []byte) error) error {
	for start < end {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		data, err := unix.Seek(int(f.Fd()), start, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole up to the end of the file
		}
		if err != nil {
			return err
		}
		if data = data / snapfile.PageSize * snapfile.PageSize; data > start {
			start = data
		}
		if start >= end {
			return nil
		}
		n, err := f.ReadAt(buf[:min(int64(len(buf)), end-start)], start)
		if n == 0 && err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		clear(buf[n:])
		if err := eachRun(buf[:(n+snapfile.PageSize-1)/snapfile.PageSize*snapfile.PageSize], start, fn); err != nil {
			return err
		}
		start += int64(n)
	}
	return nil
}

// eachRun calls fn for the runs of pages in buf that are not zero.
func eachRun(buf []byte, offset int64, fn func(int64, []byte) error) error {
	from := -1
	for at := 0; at <= len(buf); at += snapfile.PageSize {
		used := at < len(buf) && !bytes.Equal(buf[at:at+snapfile.PageSize], zeroPage[:])
		if used && from < 0 {
			from = at
		}
		if !used && from >= 0 {
			if err := fn(offset+int64(from), buf[from:at]); err != nil {
				return err
			}
			from = -1
		}
	}
	return nil
}

// writePart copies ranges, each from the generation that it names, to a new file at
// path, and leaves out what is zero. It returns how much space that takes, too.
func writePart(ctx context.Context, fsys hostfs.FS, path string, ranges []snapfile.Extent, gens []*os.File) (p Part, space int64, err error) {
	f, err := fsys.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return Part{}, 0, err
	}
	defer f.Close()
	h, buf := newPageHash(), make([]byte, chunk)
	for _, e := range ranges {
		err := eachPage(ctx, gens[e.Gen], int64(e.Start), int64(e.End), buf, func(offset int64, run []byte) error {
			for at := 0; at < len(run); at += snapfile.PageSize {
				h.add(offset+int64(at), run[at:at+snapfile.PageSize])
			}
			_, err := f.WriteAt(run, offset)
			return err
		})
		if err != nil {
			return Part{}, 0, err
		}
	}
	p = Part{Size: int64(ranges[len(ranges)-1].End), Digest: h.sum()}
	// So that a file that lost its end is not taken for one that ends in a hole.
	if err := errors.Join(f.Truncate(p.Size), f.Sync()); err != nil {
		return Part{}, 0, err
	}
	p.Stamp, err = StampOf(f)
	return p, allocated(f), err
}

// pagesDigest reads a whole file.
func pagesDigest(ctx context.Context, f *os.File) (string, error) {
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := newPageHash()
	err = eachPage(ctx, f, 0, st.Size(), make([]byte, chunk), func(offset int64, run []byte) error {
		for at := 0; at < len(run); at += snapfile.PageSize {
			h.add(offset+int64(at), run[at:at+snapfile.PageSize])
		}
		return nil
	})
	return h.sum(), err
}

// allocated returns how many bytes of a sparse file take up space.
func allocated(f hostfs.File) int64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0
	}
	return st.Blocks * 512
}
