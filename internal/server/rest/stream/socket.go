package stream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/peer"
)

// finalTimeout is how long a client may take to read the final message after its command was
// ended.
const finalTimeout = 5 * time.Second

// InputBacklog is how many messages of standard input wait for a command that does not read.
const InputBacklog = 8

var (
	ErrClientGone   = api.Errorf(api.CodeCanceled, "the client went away")
	ErrCommandEnded = errors.New("the command ended")
)

// Socket makes a request a WebSocket for as long as serve runs.
func (s *Streams) Socket(w http.ResponseWriter, r *http.Request, serve func(*Socket)) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		s.WriteProblem(w, r, httpwire.NewStatusProblem(http.StatusUpgradeRequired, "GET here needs a WebSocket"))
		return
	}
	refusal := &refusalWriter{ResponseWriter: w}
	conn, err := websocket.Accept(refusal, r, nil)
	if err != nil {
		s.WriteProblem(w, r, httpwire.NewStatusProblem(cmp.Or(refusal.status, http.StatusBadRequest), "%v", err))
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(httpwire.MaxMessage)
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(ErrCommandEnded)
	session := &Socket{conn: conn, ctx: ctx, cancel: cancel}
	if h, ok := w.(hijacked); ok {
		session.raw = h.Conn()
	}
	serve(session)
}

// hijacked is a writer of an answer that knows the connection below a WebSocket.
type hijacked interface{ Conn() net.Conn }

// refusalWriter withholds the library's refusal of a WebSocket: a problem is sent instead.
type refusalWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *refusalWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest {
		w.status = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (w *refusalWriter) Write(p []byte) (int, error) {
	if w.status != 0 {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap lets the connection be taken over.
func (w *refusalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Socket is a WebSocket that carries a command, or a client that is attached to a process.
// Two goroutines belong to it while the command runs: Receive reads messages, and another
// hands them to the command. A command that reads nothing must not keep Receive from noticing
// that the client is gone.
type Socket struct {
	conn   *websocket.Conn
	raw    net.Conn // below conn; nil if it is not known
	ctx    context.Context
	cancel context.CancelCauseFunc
	// control takes the text messages after the first; nil if there may be none.
	control func(msg []byte) error

	mu    sync.Mutex
	ended bool   // no frame may follow the final message
	frame []byte // is reused by SendChunk
}

// Context returns the context of the work, which ends with the connection.
func (s *Socket) Context() context.Context { return s.ctx }

// End ends the work. The client is told the reason.
func (s *Socket) End(reason error) { s.cancel(reason) }

// OnControl has take called with each text message after the first. Without OnControl, such
// messages are refused. It must be called before Receive.
func (s *Socket) OnControl(take func(msg []byte) error) { s.control = take }

// ReadFirst decodes the first message into v, which what names.
func (s *Socket) ReadFirst(what string, v any) error {
	ctx, cancel := context.WithTimeout(s.ctx, bodyTimeout)
	defer cancel()
	kind, msg, err := s.conn.Read(ctx)
	if err != nil {
		return api.Errorf(api.CodeCanceled, "read request: %w", err)
	}
	if kind != websocket.MessageText {
		return api.Errorf(api.CodeInvalid, "the first message must be text: %s", what)
	}
	if err := httpwire.DecodeStrict(msg, v); err != nil {
		return api.Errorf(api.CodeInvalid, "the first message must be %s: %w", what, err)
	}
	return nil
}

// Receive passes on standard input until the connection ends.
func (s *Socket) Receive(messages chan<- []byte) {
	defer close(messages)
	for {
		// A context here would close the connection when it ends, before the
		// final message.
		kind, msg, err := s.conn.Read(context.Background())
		if err != nil {
			s.cancel(ErrClientGone)
			return
		}
		if s.control != nil && kind == websocket.MessageText {
			if err := s.control(msg); err != nil {
				s.cancel(err)
				return
			}
			continue
		}
		payload, err := stdinPayload(kind, msg)
		if err != nil {
			s.cancel(err)
			return
		}
		if !s.enqueue(messages, payload) {
			s.cancel(ErrClientGone)
			return
		}
	}
}

func stdinPayload(kind websocket.MessageType, msg []byte) ([]byte, error) {
	if kind != websocket.MessageBinary {
		return nil, api.Errorf(api.CodeInvalid, "a message after the first must be binary: standard input")
	}
	stream, payload, err := httpwire.ParseFrame(msg)
	if err != nil || stream != httpwire.StreamStdin {
		return nil, api.Errorf(api.CodeInvalid, "a client may send frames of stream %d only", httpwire.StreamStdin)
	}
	return payload, nil
}

// enqueue waits for room and reports false if the client went away meanwhile.
func (s *Socket) enqueue(messages chan<- []byte, payload []byte) bool {
	select {
	case messages <- payload:
		return true
	default:
	}
	gone, stop := peer.Ended(s.raw)
	defer stop()
	select {
	case messages <- payload:
		return true
	case <-gone:
		return false
	}
}

// Finish sends the last message and closes the connection.
func (s *Socket) Finish(final any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	ctx := s.ctx
	if ctx.Err() != nil { // the command was ended; the client, if there is one, is told why
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), finalTimeout)
		defer cancel()
	}
	msg, err := json.Marshal(final)
	if err == nil {
		err = s.conn.Write(ctx, websocket.MessageText, msg)
	}
	if err != nil {
		s.conn.CloseNow()
		return
	}
	s.conn.Close(websocket.StatusNormalClosure, "")
}

// Stream returns a writer that sends each write as frames of a stream.
func (s *Socket) Stream(of httpwire.Stream) io.Writer { return frameWriter{s, of} }

// frameWriter sends the output of a command.
type frameWriter struct {
	socket *Socket
	stream httpwire.Stream
}

// Write implements io.Writer.
func (f frameWriter) Write(p []byte) (int, error) {
	s := f.socket
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 0; n < len(p); {
		if s.ended {
			return n, errStreamClosed
		}
		part := p[n:min(n+httpwire.MaxChunk, len(p))]
		frame := httpwire.AppendFrame(make([]byte, 0, len(part)+1), f.stream, part)
		if err := s.conn.Write(s.ctx, websocket.MessageBinary, frame); err != nil {
			s.cancel(ErrClientGone)
			return n, fmt.Errorf("send output: %w", err)
		}
		n += len(part)
	}
	return len(p), nil
}

// SendChunk sends a piece of the output of an attached process.
func (s *Socket) SendChunk(c api.Chunk) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return errStreamClosed
	}
	kind := websocket.MessageBinary
	s.frame = httpwire.AppendOutput(s.frame[:0], c)
	if c.Lost > 0 {
		kind = websocket.MessageText
		msg, err := json.Marshal(httpwire.AttachMessage{Lost: &httpwire.Lost{Seq: c.Seq, Bytes: c.Lost}})
		if err != nil {
			return fmt.Errorf("encode message: %w", err)
		}
		s.frame = msg
	}
	if err := s.conn.Write(s.ctx, kind, s.frame); err != nil {
		s.cancel(ErrClientGone)
		return fmt.Errorf("send output: %w", err)
	}
	return nil
}
