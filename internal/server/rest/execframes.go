package rest

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// execFrames runs a command and answers in frames, see httpwire.FrameType.
func (a *API) execFrames(w http.ResponseWriter, r *http.Request, ref string, req api.ExecRequest, stdin io.Reader) {
	if req.Key != "" { // the command goes on, and the next daemon can be asked for it
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(a.draining, func() { cancel(errDraining) })()
		r = r.WithContext(ctx)
	}
	body, ctx := newStreamBody(w, r, httpwire.FrameType)
	defer body.cancel()
	f := &framesWriter{body: body}
	res, err := a.svc.Exec(ctx, ref, req, api.ExecIO{
		Stdin: stdin, Stdout: streamWriter{f, httpwire.StreamStdout}, Stderr: streamWriter{f, httpwire.StreamStderr},
	})
	final := httpwire.Final{Exit: res}
	if err != nil {
		if !f.hasBegun() {
			a.writeProblem(w, r, err)
			return
		}
		markFailed(r.Context())
		final = httpwire.Final{Error: a.problem(r.Context(), err)}
	}
	if b, err := json.Marshal(final); err == nil {
		_ = f.send(httpwire.StreamFinal, b) // nobody is left to be told
	}
}

// framesWriter is the body of such an answer.
type framesWriter struct {
	mu   sync.Mutex
	body streamBody
	buf  []byte
}

func (f *framesWriter) hasBegun() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.body.begun
}

// send writes one frame; without a client it fails and ends the command.
func (f *framesWriter) send(s httpwire.Stream, payload []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf = httpwire.AppendStreamFrame(f.buf[:0], s, payload)
	return f.body.write(f.buf)
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
