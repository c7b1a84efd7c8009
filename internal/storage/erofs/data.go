package erofs

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// bufferSize is the number of bytes that are collected for one write.
const bufferSize = 512 << 10

// ErrTooLarge reports an image beyond what block addresses can express.
var ErrTooLarge = errors.New("image is larger than 16 TiB")

var zeros [bufferSize]byte

// dataArea is the part of an image that holds the contents of files. It is
// written from front to back; only a file found to be a duplicate moves the end
// back again.
type dataArea struct {
	file    File
	flushed int64  // the bytes before it are in the file
	buf     []byte // the bytes after it
	high    int64  // the file has only zeros from here on
	known   map[[sha256.Size]byte]Extent
}

func newDataArea(f File) *dataArea {
	return &dataArea{
		file:    f,
		flushed: BlockSize,
		high:    BlockSize,
		buf:     make([]byte, 0, bufferSize),
		known:   map[[sha256.Size]byte]Extent{},
	}
}

func (a *dataArea) end() int64 { return a.flushed + int64(len(a.buf)) }

// add copies r to the area until EOF, unless the area has the same bytes already, and
// returns their place.
func (a *dataArea) add(r io.Reader) (Extent, error) {
	start := a.end()
	digest := sha256.New()
	for {
		if len(a.buf) == cap(a.buf) {
			if err := a.flush(); err != nil {
				return Extent{}, err
			}
		}
		free := a.buf[len(a.buf):cap(a.buf)]
		n, err := r.Read(free)
		digest.Write(free[:n])
		a.buf = a.buf[:len(a.buf)+n]
		if err == io.EOF {
			break
		}
		if err != nil {
			a.rewind(start)
			return Extent{}, err
		}
	}
	ext := Extent{start, a.end() - start}
	if ext.size == 0 {
		return Extent{}, nil
	}
	var key [sha256.Size]byte
	digest.Sum(key[:0])
	if twin, ok := a.known[key]; ok {
		a.rewind(start)
		return twin, nil
	}
	a.known[key] = ext
	return ext, a.pad()
}

// pad fills the last block with zeros.
func (a *dataArea) pad() error {
	n := int(-a.end() & (BlockSize - 1))
	if n > cap(a.buf)-len(a.buf) {
		if err := a.flush(); err != nil {
			return err
		}
	}
	a.buf = append(a.buf, zeros[:n]...)
	if a.end()/BlockSize > maxBlocks {
		return ErrTooLarge
	}
	return nil
}

// rewind drops all bytes from offset on.
func (a *dataArea) rewind(offset int64) {
	if offset >= a.flushed {
		a.buf = a.buf[:offset-a.flushed]
		return
	}
	a.flushed, a.buf = offset, a.buf[:0]
}

// flush empties the buffer. It does not write zeros behind the written part of the file, so
// that a file with holes keeps them.
func (a *dataArea) flush() error {
	if len(a.buf) == 0 {
		return nil
	}
	if a.flushed < a.high || !bytes.Equal(a.buf, zeros[:len(a.buf)]) {
		if _, err := a.file.WriteAt(a.buf, a.flushed); err != nil {
			return fmt.Errorf("write image data: %w", err)
		}
		a.high = max(a.high, a.end())
	}
	a.flushed = a.end()
	a.buf = a.buf[:0]
	return nil
}

// compact moves the extents of nodes, which are sorted by their start, to the front of the
// area and drops the bytes between them: contents that were replaced or hidden by later
// entries must not stay in the image.
func (a *dataArea) compact(nodes []*Node) error {
	next, last, moved := int64(BlockSize), Extent{}, int64(0)
	for _, n := range nodes {
		if n.Data != last { // otherwise the extent of the node before
			last, moved = n.Data, next
			if n.Data.start != moved {
				if err := a.move(n.Data, moved); err != nil {
					return err
				}
			}
			next += n.Data.blocks() * BlockSize
		}
		n.Data.start = moved
	}
	a.rewind(next)
	return nil
}

// move copies e and its padding to offset to, which lies before it.
func (a *dataArea) move(e Extent, to int64) error {
	buf := a.buf[:0] // empty: Finish has flushed it
	for done, size := int64(0), e.blocks()*BlockSize; done < size; done += int64(len(buf)) {
		buf = buf[:min(int64(cap(buf)), size-done)]
		if _, err := a.file.ReadAt(buf, e.start+done); err != nil {
			return fmt.Errorf("read image data: %w", err)
		}
		if _, err := a.file.WriteAt(buf, to+done); err != nil {
			return fmt.Errorf("move image data: %w", err)
		}
	}
	return nil
}
