package httpwire

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// FrameType is the media type of an exec's answer in frames, for clients that read
// much output: what server-sent events say, without JSON around the bytes.
//
// A frame is a Stream (1 byte), the length of the payload (4 bytes, big-endian) and
// the payload. The last one is a StreamFinal, whose payload is a Final.
const FrameType = "application/vnd.ramet.frames"

// StreamFinal is the stream of the last frame.
const StreamFinal Stream = 3

const (
	frameHeader = 1 + 4
	maxFinal    = 1 << 20
)

// AppendStreamFrame appends a frame.
func AppendStreamFrame(dst []byte, s Stream, payload []byte) []byte {
	dst = append(dst, byte(s))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(payload)))
	return append(dst, payload...)
}

// FrameReader reads frames.
type FrameReader struct {
	in  *bufio.Reader
	buf []byte
}

// NewFrameReader returns a reader of the frames in r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{in: bufio.NewReaderSize(r, frameHeader+MaxChunk)}
}

// Next returns the next piece of output, which is valid until the next call, or, for
// the last frame, what it says. A stream that ends before is an
// io.ErrUnexpectedEOF.
func (r *FrameReader) Next() (s Stream, payload []byte, final *Final, err error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return 0, nil, nil, unexpectedEnd(err)
	}
	s = Stream(head[0])
	n, most := int(binary.BigEndian.Uint32(head[1:])), MaxChunk
	if s == StreamFinal {
		most = maxFinal
	}
	if s < StreamStdout || s > StreamFinal || n > most {
		return 0, nil, nil, fmt.Errorf("read frame: stream %d with %d bytes", s, n)
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, n)
	}
	payload = r.buf[:n]
	if _, err := io.ReadFull(r.in, payload); err != nil {
		return 0, nil, nil, unexpectedEnd(err)
	}
	if s != StreamFinal {
		return s, payload, nil, nil
	}
	final = &Final{}
	if err := json.Unmarshal(payload, final); err != nil {
		return 0, nil, nil, fmt.Errorf("read frame: %w", err)
	}
	if (final.Exit == nil) == (final.Error == nil) {
		return 0, nil, nil, errors.New("read frame: the last one is neither a result nor an error")
	}
	return s, nil, final, nil
}

func unexpectedEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
