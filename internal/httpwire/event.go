package httpwire

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// EventType is the media type of server-sent events.
const EventType = "text/event-stream"

// The names of events.
const (
	EventStdout   = "stdout"
	EventStderr   = "stderr"
	EventExit     = "exit"
	EventProgress = "progress"
	EventImage    = "image"
	EventSnapshot = "snapshot" // that was pulled
	EventPushed   = "pushed"
	EventFiles    = "files"
	EventEvent    = "event"
	EventEnd      = "end"
	EventError    = "error"
	EventLost     = "lost"
	EventPosition = "position"
	EventResult   = "result"
)

// maxEvent bounds one event. The largest is what a cell showed: an interpreter's
// answer has up to 8 MiB.
const maxEvent = 9 << 20

// errEventTooLong is returned for an event beyond what any server of ours sends.
var errEventTooLong = errors.New("event is too long")

// Event is one server-sent event.
type Event struct {
	Name string
	Data []byte
}

// AppendEvent appends the event called name with v as JSON. An id that is not
// empty is the value of Last-Event-ID with which a client resumes.
func AppendEvent(dst []byte, name, id string, v any) ([]byte, error) {
	buf := bytes.NewBuffer(dst)
	if id != "" {
		fmt.Fprintf(buf, "id: %s\n", id)
	}
	fmt.Fprintf(buf, "event: %s\ndata: ", name)
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil { // ends the line, and JSON has no other line break
		return dst, fmt.Errorf("encode event %s: %w", name, err)
	}
	buf.WriteByte('\n')
	return buf.Bytes(), nil
}

// EventReader reads server-sent events.
type EventReader struct{ in *bufio.Reader }

// NewEventReader returns a reader of the events in r.
func NewEventReader(r io.Reader) *EventReader {
	return &EventReader{in: bufio.NewReaderSize(r, 32<<10)}
}

// Next returns the next event, io.EOF after the last one, or
// io.ErrUnexpectedEOF if the stream ends inside an event.
func (r *EventReader) Next() (Event, error) {
	var ev Event
	seen := false
	for size := 0; ; {
		line, err := r.line(maxEvent - size)
		if err == io.EOF && seen {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Event{}, err
		}
		size += len(line)
		if len(line) == 0 {
			if seen {
				return ev, nil
			}
			size = 0
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			ev.Name, seen = string(value), true
		case "data":
			if ev.Data != nil {
				ev.Data = append(ev.Data, '\n')
			}
			ev.Data, seen = append(ev.Data, value...), true
		}
	}
}

// line returns the next line without its end. A last line that has no end is an
// io.ErrUnexpectedEOF.
func (r *EventReader) line(limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > limit:
			return nil, errEventTooLong
		case err == nil:
			return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
		case err == bufio.ErrBufferFull:
		case err == io.EOF && len(line) > 0:
			return nil, io.ErrUnexpectedEOF
		default:
			return nil, err
		}
	}
}
