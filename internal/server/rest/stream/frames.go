package stream

import (
	"context"
	"io"
	"net/http"
	"sync"

	"ramet.dev/ramet/internal/httpwire"
)

// Frames answers with frames, see httpwire.FrameType.
type Frames struct {
	mu   sync.Mutex
	body streamBody
	buf  []byte
}

// NewFrames returns a writer for the answer to r, and a context for the work, which
// ends when the client is gone.
func NewFrames(w http.ResponseWriter, r *http.Request) (*Frames, context.Context) {
	body, ctx := newStreamBody(w, r, httpwire.FrameType)
	return &Frames{body: body}, ctx
}

// Stream returns a writer that sends each write as frames of s.
func (f *Frames) Stream(s httpwire.Stream) io.Writer { return streamWriter{f, s} }

// Close ends the work.
func (f *Frames) Close() { f.body.cancel() }

func (f *Frames) HasBegun() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.body.begun
}

// Send writes one frame; without a client it fails and ends the command.
func (f *Frames) Send(s httpwire.Stream, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = httpwire.AppendStreamFrame(f.buf[:0], s, payload)
	return f.body.write(f.buf)
}

// streamWriter is one stream of the command.
type streamWriter struct {
	frames *Frames
	stream httpwire.Stream
}

// Write implements io.Writer.
func (s streamWriter) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		part := p[n:min(n+httpwire.MaxChunk, len(p))]
		if err := s.frames.Send(s.stream, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(p), nil
}
