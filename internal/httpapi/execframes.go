package httpapi

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/sandbox"
)

// execFrames runs a command and answers in frames, see httpwire.FrameType. The answer
// begins with the first frame, so that what fails before it is told with its HTTP
// status.
func (a *API) execFrames(w http.ResponseWriter, r *http.Request, ref string, req sandbox.ExecRequest, stdin io.Reader) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	f := &framesWriter{w: w, flush: http.NewResponseController(w).Flush, cancel: cancel}
	res, err := a.svc.Exec(ctx, ref, req, ExecIO{
		Stdin: stdin, Stdout: streamWriter{f, httpwire.StreamStdout}, Stderr: streamWriter{f, httpwire.StreamStderr},
	})
	final := httpwire.Final{Exit: res}
	if err != nil {
		if !f.hasBegun() {
			a.writeProblem(w, r, err)
			return
		}
		final = httpwire.Final{Error: a.problem(r.Context(), err)}
	}
	if b, err := json.Marshal(final); err == nil {
		_ = f.send(httpwire.StreamFinal, b) // nobody is left to be told
	}
}

// framesWriter is the body of such an answer.
type framesWriter struct {
	w      http.ResponseWriter
	flush  func() error
	cancel context.CancelFunc

	mu    sync.Mutex
	begun bool
	buf   []byte
}

func (f *framesWriter) hasBegun() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begun
}

// send writes one frame; without a client it fails and ends the command.
func (f *framesWriter) send(s httpwire.Stream, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.begun {
		f.begun = true
		h := f.w.Header()
		h.Set("Content-Type", httpwire.FrameType)
		h.Set("Cache-Control", "no-store")
		f.w.WriteHeader(http.StatusOK)
	}
	f.buf = httpwire.AppendStreamFrame(f.buf[:0], s, payload)
	_, err := f.w.Write(f.buf)
	if err == nil {
		err = f.flush()
	}
	if err != nil {
		f.cancel()
	}
	return err
}

// streamWriter is one stream of the command.
type streamWriter struct {
	frames *framesWriter
	stream httpwire.Stream
}

// Write implements io.Writer.
func (s streamWriter) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		part := p[n:min(n+httpwire.MaxChunk, len(p))]
		if err := s.frames.send(s.stream, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return len(p), nil
}
