package stream

import (
	"context"
	"net/http"
)

// streamBody is an answer of unknown length. It begins
// with the first write, so that a failure before it is answered with its HTTP status.
// It is used by one goroutine at a time.
type streamBody struct {
	w         http.ResponseWriter
	mediaType string
	flush     func() error
	cancel    context.CancelFunc
	begun     bool
}

// newStreamBody returns the answer to r, and a context for the work, which ends when
// the client is gone.
func newStreamBody(w http.ResponseWriter, r *http.Request, mediaType string) (streamBody, context.Context) {
	ctx, cancel := context.WithCancel(r.Context())
	return streamBody{w: w, mediaType: mediaType, flush: http.NewResponseController(w).Flush, cancel: cancel}, ctx
}

// write passes p, which may be empty, to the client; without a client it fails and
// ends the work.
func (b *streamBody) write(p []byte) error {
	if !b.begun {
		b.begun = true
		h := b.w.Header()
		h.Set("Content-Type", b.mediaType)
		h.Set("Cache-Control", "no-store")
		b.w.WriteHeader(http.StatusOK)
	}
	_, err := b.w.Write(p)
	if err == nil {
		err = b.flush()
	}
	if err != nil {
		b.cancel()
	}
	return err
}
