package interp

import (
	"encoding/hex"
	"errors"
	"fmt"
)

const (
	// MaxCode is the longest cell, in bytes.
	MaxCode = 4 << 20
	// MaxPayload is the longest payload of an answer, in bytes. The programs keep
	// below half of it.
	MaxPayload = 8 << 20
	// headSize is the length of a frame's head.
	headSize = 20
)

// Kind is the kind of a frame.
type Kind byte

// The kinds of frames, see the package comment.
const (
	KindCell Kind = 'x'
	// KindSilent is a cell without a number. Bash does not have it.
	KindSilent    Kind = 'q'
	KindVariables Kind = 'v'
	KindSeed      Kind = 's'
	// KindInterrupt ends the request of the same number. Bash does not have it, and
	// code in Python ends by the signal that comes after it.
	KindInterrupt Kind = 'i'
	KindHello     Kind = 'h'
	KindRest      Kind = 'r'
	KindResult    Kind = 'm'
	KindDone      Kind = 'd'
)

// ErrFrame says that an interpreter sent something else than a frame: user code has written
// to the descriptors, or has changed the interpreter.
var ErrFrame = errors.New("the interpreter does not keep to the protocol")

// AppendFrame appends a frame.
func AppendFrame(dst []byte, kind Kind, run uint32, payload []byte) []byte {
	dst = fmt.Appendf(dst, "%c %08x %08x\n", kind, run, len(payload))
	return append(dst, payload...)
}

// Part is a piece of an answer's payload.
type Part struct {
	Kind Kind
	Run  uint32
	Data []byte
	Left int  // bytes of the payload that come after it
	Last bool // the payload ends with it
}

// Splitter takes a stream of answers apart. The zero value is at the beginning
// of a stream. Its fields are exported because they are saved with a sandbox.
type Splitter struct {
	Head []byte // the beginning of a head
	Kind Kind
	Run  uint32
	Left int // bytes of the payload to come, if the head is complete
}

// Next returns the next part of an answer, and the rest of data after it. It returns false
// when it has taken all of data without completing a part.
func (s *Splitter) Next(data []byte) (part Part, rest []byte, ok bool, err error) {
	if len(s.Head) < headSize {
		n := min(headSize-len(s.Head), len(data))
		s.Head, data = append(s.Head, data[:n]...), data[n:]
		if len(s.Head) < headSize {
			return Part{}, nil, false, nil
		}
		if err := s.parseHead(); err != nil {
			return Part{}, nil, false, err
		}
	}
	n := min(s.Left, len(data))
	if n == 0 && s.Left > 0 {
		return Part{}, nil, false, nil
	}
	s.Left -= n
	part = Part{Kind: s.Kind, Run: s.Run, Data: data[:n], Left: s.Left, Last: s.Left == 0}
	if part.Last {
		s.Head = s.Head[:0]
	}
	return part, data[n:], true, nil
}

func (s *Splitter) parseHead() error {
	h := s.Head
	if h[1] != ' ' || h[10] != ' ' || h[19] != '\n' {
		return ErrFrame
	}
	run, ok := parseHex(h[2:10])
	size, okSize := parseHex(h[11:19])
	if !ok || !okSize || size > MaxPayload {
		return ErrFrame
	}
	switch kind := Kind(h[0]); kind {
	case KindHello, KindRest, KindResult, KindDone:
		s.Kind, s.Run, s.Left = kind, run, int(size)
		return nil
	}
	return ErrFrame
}

// parseHex reads eight hexadecimal digits.
func parseHex(text []byte) (uint32, bool) {
	var b [4]byte
	if _, err := hex.Decode(b[:], text); err != nil {
		return 0, false
	}
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3]), true
}
