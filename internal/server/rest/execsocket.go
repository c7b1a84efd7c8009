package rest

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

const (
	// inputBacklog is how many messages of standard input wait for a command
	// that does not read.
	inputBacklog = 8
	// finalTimeout is how long a client may take to read why its command was
	// ended.
	finalTimeout = 5 * time.Second
)

var (
	errClientGone   = api.Errorf(api.CodeCanceled, "the client went away")
	errCommandEnded = errors.New("the command ended")
)

// execSocket runs one command over one WebSocket; httpwire describes the
// messages.
func (a *API) execSocket(w http.ResponseWriter, r *http.Request) {
	ref := r.PathValue("id")
	if err := validSandbox(ref); err != nil {
		a.writeProblem(w, r, err)
		return
	}
	a.onSocket(w, r, func(s *execSession) { s.run(a, ref) })
}

// onSocket makes a request a WebSocket for as long as serve runs.
func (a *API) onSocket(w http.ResponseWriter, r *http.Request, serve func(*execSession)) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		w.Header().Set("Upgrade", "websocket")
		a.writeProblem(w, r, httpwire.NewStatusProblem(http.StatusUpgradeRequired, "GET here needs a WebSocket"))
		return
	}
	refusal := &refusalWriter{ResponseWriter: w}
	conn, err := websocket.Accept(refusal, r, nil)
	if err != nil {
		a.writeProblem(w, r, httpwire.NewStatusProblem(cmp.Or(refusal.status, http.StatusBadRequest), "%v", err))
		return
	}
	defer conn.CloseNow()
	conn.SetReadLimit(httpwire.MaxMessage)
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(errCommandEnded)
	s := &execSession{conn: conn, ctx: ctx, cancel: cancel}
	if rw, ok := w.(*responseWriter); ok {
		s.raw = rw.conn
	}
	serve(s)
}

// refusalWriter keeps back that a WebSocket was refused, which is said as a problem.
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

// execSession is one command, or one attached client, on one WebSocket. Two goroutines belong to it
// while the command runs: receive reads messages, feedInput hands them to the
// command. A command that reads nothing must not keep receive from noticing
// that the client is gone.
type execSession struct {
	conn   *websocket.Conn
	raw    net.Conn // below conn; nil if it is not known
	ctx    context.Context
	cancel context.CancelCauseFunc
	// control takes the text messages after the first; nil if there may be none.
	control func(msg []byte) error

	mu    sync.Mutex
	ended bool // no frame may follow the final message
}

// run runs the command and says the last word to the client.
func (s *execSession) run(a *API, ref string) {
	req, err := s.readRequest()
	if err != nil {
		s.finish(httpwire.Final{Error: a.problem(s.ctx, err)})
		return
	}
	stdin, feed := io.Pipe()
	messages := make(chan []byte, inputBacklog)
	var wg sync.WaitGroup
	defer wg.Wait() // finish closes the connection, which ends receive, which ends feedInput
	wg.Go(func() { s.receive(messages) })
	wg.Go(func() { feedInput(feed, messages) })

	req, prefix := takeStdin(req)
	in := io.Reader(stdin)
	if prefix != nil {
		in = io.MultiReader(prefix, stdin)
	}
	res, err := a.svc.Exec(s.ctx, ref, req, api.ExecIO{
		Stdin: in, Stdout: frameWriter{s, httpwire.StreamStdout}, Stderr: frameWriter{s, httpwire.StreamStderr},
	})
	stdin.CloseWithError(errCommandEnded)
	if err == nil {
		s.finish(httpwire.Final{Exit: res})
		return
	}
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause // says more than that a context ended
	}
	s.finish(httpwire.Final{Error: a.problem(s.ctx, err)})
}

func (s *execSession) readRequest() (api.ExecRequest, error) {
	ctx, cancel := context.WithTimeout(s.ctx, bodyTimeout)
	defer cancel()
	var req api.ExecRequest
	kind, msg, err := s.conn.Read(ctx)
	if err != nil {
		return req, api.Errorf(api.CodeCanceled, "read request: %w", err)
	}
	if kind != websocket.MessageText {
		return req, api.Errorf(api.CodeInvalid, "the first message must be text: an ExecRequest")
	}
	if err := httpwire.DecodeStrict(msg, &req); err != nil {
		return req, api.Errorf(api.CodeInvalid, "the first message must be an ExecRequest: %w", err)
	}
	if req.Key != "" {
		return req, api.Invalid("key", "a command with standard input cannot be come back to")
	}
	return req, validExec(req)
}

// receive passes on standard input until the connection ends.
func (s *execSession) receive(messages chan<- []byte) {
	defer close(messages)
	for {
		// A context here would close the connection when it ends, before the
		// final message.
		kind, msg, err := s.conn.Read(context.Background())
		if err != nil {
			s.cancel(errClientGone)
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
			s.cancel(errClientGone)
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
func (s *execSession) enqueue(messages chan<- []byte, payload []byte) bool {
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

// feedInput writes messages to the command's standard input until there are no
// more. What comes after the end of input, or after the command closed it, is
// dropped.
func feedInput(feed *io.PipeWriter, messages <-chan []byte) {
	for msg := range messages {
		if len(msg) == 0 {
			feed.Close()
			continue
		}
		_, _ = feed.Write(msg)
	}
	feed.CloseWithError(errClientGone)
}

// finish sends the last message and closes the connection.
func (s *execSession) finish(final any) {
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

// frameWriter sends what a command writes.
type frameWriter struct {
	session *execSession
	stream  httpwire.Stream
}

// Write implements io.Writer.
func (f frameWriter) Write(p []byte) (int, error) {
	s := f.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := 0; n < len(p); {
		if s.ended {
			return n, errStreamClosed
		}
		part := p[n:min(n+httpwire.MaxChunk, len(p))]
		frame := httpwire.AppendFrame(make([]byte, 0, len(part)+1), f.stream, part)
		if err := s.conn.Write(s.ctx, websocket.MessageBinary, frame); err != nil {
			s.cancel(errClientGone)
			return n, fmt.Errorf("send output: %w", err)
		}
		n += len(part)
	}
	return len(p), nil
}
