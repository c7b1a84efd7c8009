package httpwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"ramet.dev/ramet/api"
)

// An exec over a WebSocket:
//
//	client                              server
//	  text   ExecRequest        →
//	  binary 0 + bytes          →               standard input
//	  binary 0                  →               end of standard input
//	                            ←  binary 1 + bytes    standard output
//	                            ←  binary 2 + bytes    standard error
//	                            ←  text   Final        always the last message

// Stream names the stream that a binary message carries. It is the first byte of the message.
type Stream byte

// The streams of a command.
const (
	StreamStdin  Stream = 0
	StreamStdout Stream = 1
	StreamStderr Stream = 2
)

// MaxMessage bounds a message in either direction. It has room for a frame of
// MaxChunk bytes and for an ExecRequest with a generous environment.
const MaxMessage = 1 << 20

// Final is the last message of an exec; exactly one of its fields is set.
type Final struct {
	Exit  *api.ExecResult `json:"exit,omitempty" doc:"how the command ended"`
	Error *Problem        `json:"error,omitempty" doc:"why the command could not be run"`
}

// AppendFrame appends the binary message that carries payload on stream s.
func AppendFrame(dst []byte, s Stream, payload []byte) []byte {
	return append(append(dst, byte(s)), payload...)
}

// ParseFrame splits a binary message. The payload aliases it.
func ParseFrame(message []byte) (Stream, []byte, error) {
	if len(message) == 0 {
		return 0, nil, errors.New("parse frame: message is empty")
	}
	if s := Stream(message[0]); s <= StreamStderr {
		return s, message[1:], nil
	}
	return 0, nil, fmt.Errorf("parse frame: no stream %d", message[0])
}

// DecodeStrict decodes one JSON value into v and refuses unknown fields, anything
// after the value and what is no text.
func DecodeStrict(data []byte, v any) error {
	if err := CheckText(data); err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("decode JSON: %w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("decode JSON: more than one value")
	}
	return nil
}
