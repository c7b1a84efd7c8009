package rest

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

var errStreamClosed = errors.New("stream is closed")

// acceptsEvents reports whether a client asks for server-sent events.
func acceptsEvents(accept string) bool { return accepts(accept, httpwire.EventType) }

// accepts reports whether a client names a media type in its Accept header.
func accepts(accept, want string) bool {
	for part := range strings.SplitSeq(accept, ",") {
		mediaType, _, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(mediaType), want) {
			return true
		}
	}
	return false
}

// eventWriter answers with server-sent events.
type eventWriter struct {
	mu     sync.Mutex
	body   streamBody
	closed bool
	seq    int64
	buf    []byte
}

// newEventWriter returns a writer for the answer to r, and a context for the
// work, which ends when the client is gone.
func newEventWriter(w http.ResponseWriter, r *http.Request) (*eventWriter, context.Context) {
	body, ctx := newStreamBody(w, r, httpwire.EventType)
	return &eventWriter{body: body}, ctx
}

var errDraining = api.Errorf(api.CodeUnavailable, "the daemon is about to end: ask again")

// follow is newEventWriter for an answer that goes on for as long as its client wants,
// if it is one. Its context ends when the daemon is about to end as well.
func (a *API) follow(w http.ResponseWriter, r *http.Request, follows bool) (*eventWriter, context.Context) {
	if !follows {
		return newEventWriter(w, r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(a.draining, func() { cancel(errDraining) })
	e, ctx := newEventWriter(w, r.WithContext(ctx))
	gone := e.body.cancel
	e.body.cancel = func() {
		stop()
		gone()
		cancel(nil)
	}
	return e, ctx
}

// endFollowing says why an answer ends before its client wants, unless he is gone.
func (a *API) endFollowing(ctx context.Context, e *eventWriter, r *http.Request, err error) {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) { // which only the end of the connection leaves as it is
		return
	}
	if cause != nil {
		err = cause // says more than that a context ended
	}
	a.endEvents(e, r, err)
}

// send writes one event; without a client it fails and ends the work.
func (e *eventWriter) send(name string, v any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sendLocked(name, "", v)
}

func (e *eventWriter) sendLocked(name, id string, v any) error {
	if e.closed {
		return errStreamClosed
	}
	var err error
	if e.buf, err = httpwire.AppendEvent(e.buf[:0], name, id, v); err != nil {
		return err
	}
	return e.body.write(e.buf)
}

// begin begins the answer where the first event may be long in coming.
func (e *eventWriter) begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.body.write(nil) // the next event finds that the client is gone
}

// sendEvent sends what happened. Its id is where to go on.
func (e *eventWriter) sendEvent(ev api.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sendLocked(httpwire.EventEvent, strconv.FormatInt(ev.Seq, 10), ev)
}

// sendChunk sends a piece of a process's output. Its id is where to go on.
func (e *eventWriter) sendChunk(c api.Chunk) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.Lost > 0 {
		return e.sendLocked(httpwire.EventLost, strconv.FormatInt(c.Seq+c.Lost, 10), httpwire.Lost{Seq: c.Seq, Bytes: c.Lost})
	}
	return e.sendLocked(streamOf(c), strconv.FormatInt(c.Seq+int64(len(c.Data)), 10), httpwire.NewChunk(c.Data, c.Seq, c.Time))
}

// streamOf returns what the event of a piece of output is called.
func streamOf(c api.Chunk) string {
	if c.Stderr {
		return httpwire.EventStderr
	}
	return httpwire.EventStdout
}

// sendLog sends a piece of the output of one of several processes. There is no one
// place to go on from, so it has no id.
func (e *eventWriter) sendLog(p api.LogPiece) error {
	switch c := p.Chunk; {
	case p.Read != nil:
		return e.send(httpwire.EventPosition, httpwire.LogPosition{PID: p.PID, Position: *p.Read})
	case c.Lost > 0:
		return e.send(httpwire.EventLost, httpwire.LogLost{PID: p.PID, Lost: httpwire.Lost{Seq: c.Seq, Bytes: c.Lost}})
	default:
		return e.send(streamOf(c), httpwire.LogChunk{PID: p.PID, Chunk: httpwire.NewChunk(c.Data, c.Seq, c.Time)})
	}
}

// stream returns a writer that sends each write as chunks called name.
func (e *eventWriter) stream(name string) chunkWriter { return chunkWriter{e, name} }

// close makes later writes fail: the answer ends when the handler returns.
func (e *eventWriter) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.body.cancel()
}

// endEvents tells of a failure, as a status if that is still possible.
func (a *API) endEvents(e *eventWriter, r *http.Request, err error) {
	e.mu.Lock()
	begun := e.body.begun
	e.mu.Unlock()
	if !begun {
		a.writeProblem(e.body.w, r, err)
		return
	}
	markFailed(r.Context())
	_ = e.send(httpwire.EventError, a.problem(r.Context(), err)) // nobody is left to be told
}

type chunkWriter struct {
	events *eventWriter
	name   string
}

// Write implements io.Writer.
func (c chunkWriter) Write(p []byte) (int, error) {
	e := c.events
	e.mu.Lock()
	defer e.mu.Unlock()
	for n := 0; n < len(p); {
		part := p[n:min(n+httpwire.MaxChunk, len(p))]
		if err := e.sendLocked(c.name, "", httpwire.NewChunk(part, e.seq, time.Now())); err != nil {
			return n, err
		}
		n += len(part)
		e.seq += int64(len(part))
	}
	return len(p), nil
}
