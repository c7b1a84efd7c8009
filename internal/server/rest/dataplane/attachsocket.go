package dataplane

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"

	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// attachSocket connects a WebSocket with a process; httpwire describes the messages.
func (h *processes) attachSocket(w http.ResponseWriter, r *http.Request) {
	s := attachSession{ref: r.PathValue("id")}
	err := route.ValidSandbox(s.ref)
	if err == nil {
		s.pid, err = number("pid", r.PathValue("pid"), 1)
	}
	from := 0
	if text := r.URL.Query().Get("from"); err == nil && text != "" {
		from, err = number("from", text, -1)
	}
	if err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	h.Socket(w, r, func(conn *stream.Socket) {
		s.Socket = conn
		s.run(h, int64(from))
	})
}

func number(field, text string, least int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		return 0, api.Invalid(field, "%q is not a number of %d or more", text, least)
	}
	return n, nil
}

// attachSession is a client that is attached to a process.
type attachSession struct {
	*stream.Socket
	ref string
	pid int
}

func (s *attachSession) run(h *processes, from int64) {
	stdin, feed := io.Pipe()
	messages := make(chan []byte, stream.InputBacklog)
	s.OnControl(func(msg []byte) error { return s.takeControl(h, msg) })
	stop := context.AfterFunc(h.Draining, func() { s.End(stream.ErrDraining) }) // the process goes on, and the next daemon can be asked
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait() // as of an exec
	from = s.position(h, from)
	wg.Go(func() { s.Receive(messages) })
	wg.Go(func() { s.feed(feed, messages) })

	pos, err := h.svc.Attach(s.Context(), s.ref, s.pid, api.AttachRequest{From: from, Follow: true}, api.AttachIO{
		Stdin: stdin, Output: s.SendChunk,
	})
	stdin.CloseWithError(stream.ErrCommandEnded)
	if err == nil {
		s.Finish(httpwire.AttachMessage{Position: pos})
		return
	}
	if cause := context.Cause(s.Context()); cause != nil {
		err = cause // says more than that a context ended
	}
	s.Finish(httpwire.AttachMessage{Error: h.Problem(s.Context(), err)})
}

// position returns where the output begins that the client gets. What is written from now on is what the process
// answers to the first message, too: a shell draws its prompt again when its terminal gets a size.
func (s *attachSession) position(h *processes, from int64) int64 {
	if from >= 0 {
		return from
	}
	p, err := h.svc.Process(s.Context(), s.ref, s.pid)
	if err != nil || p.Kept == nil {
		return from // Attach returns the error
	}
	return p.Kept.NextSeq
}

// feed writes messages to the process until there are no more. Unlike the input of an exec,
// that of the process ends only if the client asks for it, and not when the client goes.
func (s *attachSession) feed(to *io.PipeWriter, messages <-chan []byte) {
	for msg := range messages {
		if len(msg) == 0 {
			to.Close()
			continue
		}
		_, _ = to.Write(msg)
	}
	// The end of the pipe would end the process's input.
	<-s.Context().Done()
	to.CloseWithError(stream.ErrClientGone)
}

// takeControl carries out a text message before the next one is read: input that follows a
// size finds the terminal at that size.
func (s *attachSession) takeControl(h *processes, msg []byte) error {
	var c httpwire.Control
	if err := httpwire.DecodeStrict(msg, &c); err != nil {
		return api.Errorf(api.CodeInvalid, "a text message must be a Control: %w", err)
	}
	if c.Signal != nil {
		if err := h.svc.SignalProcess(s.Context(), s.ref, s.pid, *c.Signal); api.CodeOf(err) == api.CodeInvalid {
			return err // else the process has ended, and the client gets its end next
		}
	}
	if c.Resize == nil {
		return nil
	}
	if c.Resize.Cols == 0 || c.Resize.Rows == 0 {
		return api.Invalid("resize", "a terminal has from 1 to 65535 columns and rows")
	}
	if err := h.svc.ResizeProcess(s.Context(), s.ref, s.pid, *c.Resize); api.CodeOf(err) == api.CodeInvalid {
		return err
	}
	return nil
}
