package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// attachSocket connects one WebSocket with one process; httpwire describes the
// messages.
func (a *API) attachSocket(w http.ResponseWriter, r *http.Request) {
	s := attachSession{ref: r.PathValue("id"), sizes: make(chan api.TerminalSize, 1)}
	err := validSandbox(s.ref)
	if err == nil {
		s.pid, err = number("pid", r.PathValue("pid"), 1)
	}
	from := 0
	if text := r.URL.Query().Get("from"); err == nil && text != "" {
		from, err = number("from", text, -1)
	}
	if err != nil {
		a.writeProblem(w, r, err)
		return
	}
	a.onSocket(w, r, func(es *execSession) {
		s.execSession = es
		s.run(a, int64(from))
	})
}

func number(field, text string, least int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		return 0, api.Invalid(field, "%q is not a number of %d or more", text, least)
	}
	return n, nil
}

// attachSession is one client of one process.
type attachSession struct {
	*execSession
	ref   string
	pid   int
	sizes chan api.TerminalSize // the last one that was not passed on yet
	frame []byte
}

func (s *attachSession) run(a *API, from int64) {
	stdin, feed := io.Pipe()
	messages := make(chan []byte, inputBacklog)
	s.control = func(msg []byte) error { return s.takeControl(a, msg) }
	stop := context.AfterFunc(a.draining, func() { s.cancel(errDraining) }) // the process goes on, and the next daemon can be asked
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait() // as of an exec
	wg.Go(func() { s.receive(messages) })
	wg.Go(func() { s.feed(feed, messages) })

	pos, err := a.svc.Attach(s.ctx, s.ref, s.pid, api.AttachRequest{From: from, Follow: true}, api.AttachIO{
		Stdin: stdin, Sizes: s.sizes, Output: s.send,
	})
	stdin.CloseWithError(errCommandEnded)
	if err == nil {
		s.finish(httpwire.AttachMessage{Position: pos})
		return
	}
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause // says more than that a context ended
	}
	s.finish(httpwire.AttachMessage{Error: a.problem(s.ctx, err)})
}

// feed writes messages to the process until there are no more. Unlike that of an
// exec, its input does not end with the client, but only if he says so.
func (s *attachSession) feed(to *io.PipeWriter, messages <-chan []byte) {
	for msg := range messages {
		if len(msg) == 0 {
			to.Close()
			continue
		}
		_, _ = to.Write(msg)
	}
	// An end of the pipe would be one of the process's input.
	<-s.ctx.Done()
	to.CloseWithError(errClientGone)
}

// takeControl does what a text message says.
func (s *attachSession) takeControl(a *API, msg []byte) error {
	var c httpwire.Control
	if err := httpwire.DecodeStrict(msg, &c); err != nil {
		return api.Errorf(api.CodeInvalid, "a text message must be a Control: %w", err)
	}
	if c.Signal != nil {
		if err := a.svc.SignalProcess(s.ctx, s.ref, s.pid, *c.Signal); api.CodeOf(err) == api.CodeInvalid {
			return err // else it has ended, which the client is about to hear
		}
	}
	if c.Resize == nil {
		return nil
	}
	if c.Resize.Cols == 0 || c.Resize.Rows == 0 {
		return api.Invalid("resize", "a terminal has from 1 to 65535 columns and rows")
	}
	select {
	case <-s.sizes: // nobody needs the one before
	default:
	}
	s.sizes <- *c.Resize
	return nil
}

// send sends one chunk.
func (s *attachSession) send(c api.Chunk) error {
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
		s.cancel(errClientGone)
		return fmt.Errorf("send output: %w", err)
	}
	return nil
}
