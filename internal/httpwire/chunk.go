package httpwire

import (
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"

	"ramet.dev/ramet/api"
)

// MaxChunk is how many bytes of output one event or frame carries at most.
const MaxChunk = 64 << 10

// The encodings of a Chunk.
const (
	encodingUTF8   = "utf8"
	encodingBase64 = "base64"
)

// Chunk is the data of one stdout or stderr event.
type Chunk struct {
	Data     string    `json:"data" doc:"the output"`
	Encoding string    `json:"encoding" enum:"utf8,base64" doc:"base64, where the bytes are not UTF-8 or base64 is shorter"`
	Seq      int64     `json:"seq" doc:"sequence number of the first byte: how many bytes of both streams came before"`
	TS       time.Time `json:"ts" doc:"when it was read"`
}

// Lost is the data of an event, or part of a message, that stands for output that
// is not kept any more.
type Lost struct {
	Seq   int64 `json:"seq" doc:"sequence number of the first missing byte"`
	Bytes int64 `json:"bytes" doc:"number of missing bytes"`
}

// LogChunk is a Chunk of one of several processes.
type LogChunk struct {
	PID int `json:"pid" doc:"process that wrote it"`
	Chunk
}

// LogLost is a Lost of one of several processes.
type LogLost struct {
	PID int `json:"pid" doc:"process that wrote it"`
	Lost
}

// LogPosition is the position up to which the output of one of several processes has been read.
type LogPosition struct {
	PID int `json:"pid" doc:"process whose output was read"`
	api.Position
}

// NewChunk wraps p, which should not be longer than MaxChunk.
func NewChunk(p []byte, seq int64, ts time.Time) Chunk {
	if utf8.Valid(p) && isText(p) {
		return Chunk{Data: string(p), Encoding: encodingUTF8, Seq: seq, TS: ts}
	}
	return Chunk{Data: base64.StdEncoding.EncodeToString(p), Encoding: encodingBase64, Seq: seq, TS: ts}
}

// isText reports whether p has so few control characters, which JSON writes with six
// bytes each, that base64 would not be shorter.
func isText(p []byte) bool {
	control := 0
	for _, b := range p {
		if b < ' ' && b != '\n' && b != '\t' && b != '\r' || b == 0x7f {
			control++
		}
	}
	return control <= len(p)/16
}

// Bytes returns the output.
func (c Chunk) Bytes() ([]byte, error) {
	switch c.Encoding {
	case encodingUTF8:
		return []byte(c.Data), nil
	case encodingBase64:
		b, err := base64.StdEncoding.DecodeString(c.Data)
		if err != nil {
			return nil, fmt.Errorf("decode chunk: %w", err)
		}
		return b, nil
	}
	return nil, fmt.Errorf("decode chunk: unknown encoding %q", c.Encoding)
}
