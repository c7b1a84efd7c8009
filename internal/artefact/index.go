package artefact

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
)

const (
	// PageSize is the unit of parts, in bytes.
	PageSize = 4096
	// FrameBytes is how much of a part is compressed at once, at offsets that are multiples
	// of it: small enough to be fetched for one page, large enough to compress well.
	FrameBytes = 256 << 10
	// MaxPartBytes bounds the length of a part with its holes.
	MaxPartBytes = 1 << 44
	// maxImageBytes bounds an image, which is written with its holes.
	maxImageBytes = 64 << 30

	indexMagic = "RAMETIDX"
	headBytes  = 32
	rowBytes   = 24 + sha256.Size
	// maxFrame bounds a frame: data that cannot be compressed are a little longer.
	maxFrame = FrameBytes + 1<<10
	// maxIndexBytes bounds an index, which is kept in memory: of a part with 256 GiB of
	// pages.
	maxIndexBytes = headBytes + rowBytes<<20
)

// Frame is a stretch of a part that is compressed by itself.
type Frame struct {
	Place  int64 // in the part, a multiple of FrameBytes
	Offset int64 // in the blob
	Length int   // in the blob
	Digest [sha256.Size]byte
}

// Index has the frames of a part, in the order of their places. Stretches without a frame
// are zero.
type Index struct {
	Size   int64 // of the part, with holes
	Frames []Frame
}

// Bytes returns how many bytes of the part are in frames.
func (x *Index) Bytes() (n int64) {
	for i := range x.Frames {
		n += x.length(&x.Frames[i])
	}
	return n
}

// length returns how long the contents of a frame are: FrameBytes but at the end.
func (x *Index) length(f *Frame) int64 { return min(FrameBytes, x.Size-f.Place) }

// blobBytes returns the length of the blob with the frames.
func (x *Index) blobBytes() int64 {
	if len(x.Frames) == 0 {
		return 0
	}
	last := x.Frames[len(x.Frames)-1]
	return last.Offset + int64(last.Length)
}

// Encode returns the index as a blob.
func (x *Index) Encode() []byte {
	le := binary.LittleEndian
	b := make([]byte, headBytes, headBytes+rowBytes*len(x.Frames))
	copy(b, indexMagic)
	le.PutUint32(b[8:], Version)
	le.PutUint32(b[12:], FrameBytes)
	le.PutUint64(b[16:], uint64(x.Size))
	le.PutUint64(b[24:], uint64(len(x.Frames)))
	for i := range x.Frames {
		f := &x.Frames[i]
		b = le.AppendUint64(b, uint64(f.Place))
		b = le.AppendUint64(b, uint64(f.Offset))
		b = le.AppendUint32(b, uint32(f.Length))
		b = le.AppendUint32(b, 0)
		b = append(b, f.Digest[:]...)
	}
	return b
}

// ReadIndex reads the index of a part that has a length, with frames in a blob that has
// another.
func ReadIndex(r io.Reader, size, blob int64) (*Index, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxIndexBytes+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxIndexBytes {
		return nil, hostile("an index of the snapshot has more than %d bytes", int64(maxIndexBytes))
	}
	x, err := ParseIndex(b)
	if err != nil {
		return nil, err
	}
	if x.Size != size || x.blobBytes() != blob {
		return nil, corrupt("an index of the snapshot is of another part")
	}
	return x, nil
}

// ParseIndex reads an index and checks that its frames neither overlap nor leave gaps in
// the blob, and that all are within the part.
func ParseIndex(b []byte) (*Index, error) {
	le := binary.LittleEndian
	if len(b) < headBytes || string(b[:8]) != indexMagic {
		return nil, corrupt("an index of the snapshot is none")
	}
	size, count := le.Uint64(b[16:]), le.Uint64(b[24:])
	switch {
	case le.Uint32(b[8:]) != Version:
		return nil, corrupt("an index of the snapshot has version %d, not %d", le.Uint32(b[8:]), Version)
	case le.Uint32(b[12:]) != FrameBytes:
		return nil, corrupt("an index of the snapshot has frames of %d bytes, not %d", le.Uint32(b[12:]), FrameBytes)
	case size == 0, size%PageSize != 0, size > MaxPartBytes:
		return nil, hostile("an index of the snapshot is of a part of %d bytes", size)
	case len(b) > maxIndexBytes, count != uint64((len(b)-headBytes)/rowBytes), (len(b)-headBytes)%rowBytes != 0:
		return nil, corrupt("an index of the snapshot has %d bytes for %d frames", len(b), count)
	}
	x := &Index{Size: int64(size), Frames: make([]Frame, count)}
	var place, offset uint64
	for i := range x.Frames {
		row := b[headBytes+rowBytes*i:][:rowBytes]
		f := Frame{Digest: [sha256.Size]byte(row[24:])}
		at, off, length := le.Uint64(row), le.Uint64(row[8:]), le.Uint32(row[16:])
		switch {
		case at%FrameBytes != 0, at < place, at >= size:
			return nil, corrupt("frame %d of the snapshot is at %d of %d", i, at, size)
		case off != offset:
			return nil, corrupt("frame %d of the snapshot overlaps another or leaves a gap", i)
		case length == 0, length > maxFrame, le.Uint32(row[20:]) != 0:
			return nil, corrupt("frame %d of the snapshot has %d bytes", i, length)
		}
		f.Place, f.Offset, f.Length = int64(at), int64(off), int(length)
		place, offset = at+FrameBytes, off+uint64(length)
		x.Frames[i] = f
	}
	return x, nil
}
