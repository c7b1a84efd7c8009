package stream

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"ramet.dev/ramet/internal/server/rest/answer"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

var errStreamClosed = errors.New("stream is closed")

// AcceptsEvents reports whether a client asks for server-sent events.
func AcceptsEvents(accept string) bool { return httpwire.Accepts(accept, httpwire.EventType) }

// Events answers with server-sent events.
type Events struct {
	mu     sync.Mutex
	body   streamBody
	closed bool
	seq    int64
	buf    []byte
}

// NewEvents returns a writer for the answer to r, and a context for the
// work, which ends when the client is gone.
func NewEvents(w http.ResponseWriter, r *http.Request) (*Events, context.Context) {
	body, ctx := newStreamBody(w, r, httpwire.EventType)
	return &Events{body: body}, ctx
}

// Streams makes answers that are not one JSON document: streams of bytes, of events and of
// messages.
type Streams struct {
	*answer.Reporter
	// Draining ends when the daemon is about to end. Following answers end with it.
	Draining context.Context
	// ReadTimeout is how long a client may take to read a piece of an archive.
	ReadTimeout time.Duration
}

// New returns streams whose following answers end with draining.
func New(p *answer.Reporter, draining context.Context) *Streams {
	return &Streams{Reporter: p, Draining: draining, ReadTimeout: readTimeout}
}

// UntilDraining returns a context that also ends when the daemon is about to end.
func (s *Streams) UntilDraining(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.Draining, func() { cancel(ErrDraining) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

var ErrDraining = api.Errorf(api.CodeUnavailable, "the daemon is about to end: ask again")

// Follow is NewEvents, for an answer that may go on until its client ends it. If follows is
// set, its context also ends when the daemon is about to end.
func (s *Streams) Follow(w http.ResponseWriter, r *http.Request, follows bool) (*Events, context.Context) {
	if !follows {
		return NewEvents(w, r)
	}
	ctx, release := s.UntilDraining(r.Context())
	e, ctx := NewEvents(w, r.WithContext(ctx))
	gone := e.body.cancel
	e.body.cancel = func() {
		gone()
		release()
	}
	return e, ctx
}

// EndFollowing sends the client the reason why an answer ends early, unless the client is gone.
func (s *Streams) EndFollowing(ctx context.Context, e *Events, r *http.Request, err error) {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) { // this cause is the end of the connection
		return
	}
	if cause != nil {
		err = cause // says more than that a context ended
	}
	s.EndEvents(e, r, err)
}

// Send writes one event; without a client it fails and ends the work.
func (e *Events) Send(name string, v any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sendLocked(name, "", v)
}

func (e *Events) sendLocked(name, id string, v any) error {
	if e.closed {
		return errStreamClosed
	}
	var err error
	if e.buf, err = httpwire.AppendEvent(e.buf[:0], name, id, v); err != nil {
		return err
	}
	return e.body.write(e.buf)
}

// Begin begins the answer where the first event may be long in coming.
func (e *Events) Begin() {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.body.write(nil) // the next event finds that the client is gone
}

// SendEvent sends an event. Its id is the number from which to go on.
func (e *Events) SendEvent(ev api.Event) error { return e.SendNumbered(ev.Seq, ev) }

// SendNumbered sends a value as an event. Its id is the number from which to go on.
func (e *Events) SendNumbered(number int64, v any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sendLocked(httpwire.EventEvent, strconv.FormatInt(number, 10), v)
}

// SendChunk sends a piece of a process's output. Its id is where to go on.
func (e *Events) SendChunk(c api.Chunk) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.Lost > 0 {
		return e.sendLocked(httpwire.EventLost, strconv.FormatInt(c.Seq+c.Lost, 10), httpwire.Lost{Seq: c.Seq, Bytes: c.Lost})
	}
	return e.sendLocked(streamOf(c), strconv.FormatInt(c.Seq+int64(len(c.Data)), 10), httpwire.NewChunk(c.Data, c.Seq, c.Time))
}

// streamOf returns the name of the event that carries a piece of output.
func streamOf(c api.Chunk) string {
	if c.Stderr {
		return httpwire.EventStderr
	}
	return httpwire.EventStdout
}

// SendLog sends a piece of the output of several processes. It has no id, because no single
// number says where to go on.
func (e *Events) SendLog(p api.LogPiece) error {
	switch c := p.Chunk; {
	case p.Read != nil:
		return e.Send(httpwire.EventPosition, httpwire.LogPosition{PID: p.PID, Position: *p.Read})
	case c.Lost > 0:
		return e.Send(httpwire.EventLost, httpwire.LogLost{PID: p.PID, Lost: httpwire.Lost{Seq: c.Seq, Bytes: c.Lost}})
	default:
		return e.Send(streamOf(c), httpwire.LogChunk{PID: p.PID, Chunk: httpwire.NewChunk(c.Data, c.Seq, c.Time)})
	}
}

// Stream returns a writer that sends each write as chunks called name.
func (e *Events) Stream(name string) chunkWriter { return chunkWriter{e, name} }

// Close makes later writes fail: the answer ends when the handler returns.
func (e *Events) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.body.cancel()
}

// EndEvents sends the client a failure: as a status if the answer has not begun, else as an event.
func (s *Streams) EndEvents(e *Events, r *http.Request, err error) {
	e.mu.Lock()
	begun := e.body.begun
	e.mu.Unlock()
	if !begun {
		s.WriteProblem(e.body.w, r, err)
		return
	}
	_ = e.Send(httpwire.EventError, s.LateProblem(r.Context(), err)) // fails only if the client is gone
}

type chunkWriter struct {
	events *Events
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
