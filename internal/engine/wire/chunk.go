package wire

import (
	"encoding/binary"
	"errors"
)

// Stream names an output of a process.
type Stream byte

// The outputs. A terminal has only the first.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Chunk is a piece of the output of a process, or a gap where output was dropped.
type Chunk struct {
	Stream Stream
	// Seq is the sequence number of the first byte: the number of bytes of both
	// streams that came before.
	Seq  int64
	Time int64 // nanoseconds since 1970
	Data []byte
	// Lost, if not zero, says that so many bytes from Seq on are not kept any
	// more; Stream, Time and Data mean nothing then.
	Lost int64
}

// chunkHeader is the stream, which is 0 for a gap, then Seq, then Time or Lost.
const chunkHeader = 1 + 8 + 8

// AppendChunk appends the body of a TypeChunk packet.
func AppendChunk(b []byte, c Chunk) []byte {
	if c.Lost != 0 {
		b = append(b, 0)
		b = binary.LittleEndian.AppendUint64(b, uint64(c.Seq))
		return binary.LittleEndian.AppendUint64(b, uint64(c.Lost))
	}
	b = append(b, byte(c.Stream))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Seq))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Time))
	return append(b, c.Data...)
}

// ParseChunk reads the body of a TypeChunk packet, into which Data points.
func ParseChunk(b []byte) (Chunk, error) {
	if len(b) < chunkHeader || b[0] > byte(Stderr) {
		return Chunk{}, errors.New("parse chunk: no chunk")
	}
	c := Chunk{Stream: Stream(b[0]), Seq: int64(binary.LittleEndian.Uint64(b[1:]))}
	v := int64(binary.LittleEndian.Uint64(b[9:]))
	data := b[chunkHeader:]
	if c.Stream == 0 {
		if c.Lost = v; v <= 0 || len(data) > 0 {
			return Chunk{}, errors.New("parse chunk: no gap")
		}
		return c, nil
	}
	c.Time, c.Data = v, data
	return c, nil
}
