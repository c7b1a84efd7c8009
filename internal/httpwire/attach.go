package httpwire

import (
	"encoding/binary"
	"errors"
	"time"

	"ramet.dev/ramet/api"
)

// An attach over a WebSocket:
//
//	client                              server
//	  binary 0 + bytes          →               input of the process
//	  binary 0                  →               end of input, unless it is a terminal
//	  text   Control            →
//	                            ←  binary Output
//	                            ←  text   AttachMessage: lost, or at last position or error
//
// An Output is the stream (1 byte), the sequence number of the first byte and the
// time in nanoseconds since 1970 (8 bytes each, big-endian), then the bytes.

// Control is a text message of an attached client.
type Control struct {
	Resize *api.TerminalSize  `json:"resize,omitempty" doc:"new size of the terminal"`
	Signal *api.SignalRequest `json:"signal,omitempty" doc:"signal for the process"`
}

// AttachMessage is a text message to an attached client; exactly one of its
// fields is set. Lost is followed by others, the rest are the last message.
type AttachMessage struct {
	Lost     *Lost         `json:"lost,omitempty" doc:"output that is not kept any more"`
	Position *api.Position `json:"position,omitempty" doc:"the process has ended, or there is no more output"`
	Error    *Problem      `json:"error,omitempty" doc:"why the output ends early"`
}

const outputHeader = 1 + 8 + 8

// AppendOutput appends the binary message that carries a chunk that is not lost.
func AppendOutput(dst []byte, c api.Chunk) []byte {
	stream := StreamStdout
	if c.Stderr {
		stream = StreamStderr
	}
	dst = append(dst, byte(stream))
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.Seq))
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.Time.UnixNano()))
	return append(dst, c.Data...)
}

// ParseOutput splits a binary message of the server. The data alias it.
func ParseOutput(message []byte) (api.Chunk, error) {
	if len(message) < outputHeader || message[0] != byte(StreamStdout) && message[0] != byte(StreamStderr) {
		return api.Chunk{}, errors.New("parse output: this is no output")
	}
	return api.Chunk{
		Stderr: message[0] == byte(StreamStderr),
		Seq:    int64(binary.BigEndian.Uint64(message[1:])),
		Time:   time.Unix(0, int64(binary.BigEndian.Uint64(message[9:]))),
		Data:   message[outputHeader:],
	}, nil
}
