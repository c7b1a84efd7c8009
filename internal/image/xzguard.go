package image

import (
	"io"
)

// xzGuard passes an xz stream on and refuses it when a block asks for a
// dictionary above max: the decoder would allocate whatever the block says, up
// to 4 GiB. It follows the container's structure (tukaani.org, "The .xz File
// Format" 1.2 and the chunks of LZMA2) and leaves all other checks to the
// decoder. Once the index begins it looks no further, so the decoder must stop at
// the end of the stream.
type xzGuard struct {
	r   io.Reader
	max int64

	// next handles the bytes collected in part when want are there.
	next func([]byte) error
	want int
	part []byte
	// skip counts bytes of no interest before that.
	skip int64
	done bool

	checkSize int64
	blockLen  int64 // bytes of the block so far, for its padding
}

const xzStreamHeader = 12

// xzCheckSizes are the lengths of integrity checks by their kind.
var xzCheckSizes = [16]int64{0, 4, 4, 4, 8, 8, 8, 16, 16, 16, 32, 32, 32, 64, 64, 64}

func (g *xzGuard) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	if refusal := g.look(p[:n]); refusal != nil {
		return 0, refusal
	}
	return n, err
}

func (g *xzGuard) look(b []byte) error {
	if g.next == nil {
		g.expect(xzStreamHeader, g.streamHeader)
	}
	for len(b) > 0 && !g.done {
		if g.skip > 0 {
			n := min(g.skip, int64(len(b)))
			g.skip -= n
			b = b[n:]
			continue
		}
		n := min(g.want-len(g.part), len(b))
		g.part = append(g.part, b[:n]...)
		b = b[n:]
		if len(g.part) == g.want {
			if err := g.next(g.part); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *xzGuard) expect(n int, next func([]byte) error) {
	g.want, g.next, g.part = n, next, g.part[:0]
}

func (g *xzGuard) streamHeader(b []byte) error {
	g.checkSize = xzCheckSizes[b[7]&0x0f]
	g.expect(1, g.blockStart)
	return nil
}

// blockStart reads the size of a block header; 0 stands for the index.
func (g *xzGuard) blockStart(b []byte) error {
	if b[0] == 0 {
		g.done = true
		return nil
	}
	g.expect(int(b[0])*4+3, g.blockHeader)
	return nil
}

// blockHeader looks for the LZMA2 filter (id 0x21), whose one property byte is
// the size of the dictionary.
func (g *xzGuard) blockHeader(b []byte) error {
	flags, rest := b[0], b[1:]
	for _, present := range []bool{flags&0x40 != 0, flags&0x80 != 0} {
		if present {
			_, rest = xzNumber(rest)
		}
	}
	for range flags&3 + 1 {
		var id, size uint64
		id, rest = xzNumber(rest)
		size, rest = xzNumber(rest)
		if size > uint64(len(rest)) {
			return corrupt("xz block header is damaged")
		}
		if id == 0x21 && size == 1 && xzDictionary(rest[0]) > g.max {
			return refused("xz archive needs a dictionary of more than %d bytes", g.max)
		}
		rest = rest[size:]
	}
	g.blockLen = 0
	g.expect(1, g.chunkStart)
	return nil
}

// chunkStart reads the control byte of an LZMA2 chunk.
func (g *xzGuard) chunkStart(b []byte) error {
	g.blockLen++
	switch control := b[0]; {
	case control == 0: // end of the block: padding to 4 bytes, then its check
		g.skip = -g.blockLen&3 + g.checkSize
		g.expect(1, g.blockStart)
	case control < 0x80: // stored
		g.expect(2, func(b []byte) error { return g.chunk(2, int64(b[0])<<8+int64(b[1])+1) })
	case control >= 0xc0: // with new properties
		g.expect(5, func(b []byte) error { return g.chunk(5, int64(b[2])<<8+int64(b[3])+1) })
	default:
		g.expect(4, func(b []byte) error { return g.chunk(4, int64(b[2])<<8+int64(b[3])+1) })
	}
	return nil
}

func (g *xzGuard) chunk(header, size int64) error {
	g.blockLen += header + size
	g.skip = size
	g.expect(1, g.chunkStart)
	return nil
}

// xzNumber decodes the container's variable-length integers. What is cut off
// reads as a number too large for its place.
func xzNumber(b []byte) (uint64, []byte) {
	var v uint64
	for i := 0; i < len(b) && i < 9; i++ {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 == 0 {
			return v, b[i+1:]
		}
	}
	return 1 << 63, nil
}

// xzDictionary decodes the property byte of LZMA2.
func xzDictionary(b byte) int64 {
	if b >= 40 {
		return 1<<32 - 1
	}
	return int64(2|b&1) << (b/2 + 11)
}
