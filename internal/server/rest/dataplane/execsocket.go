package dataplane

import (
	"context"
	"io"
	"net/http"
	"sync"

	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// execSocket runs a command over a WebSocket; httpwire describes the messages.
func (h *commands) execSocket(w http.ResponseWriter, r *http.Request) {
	ref := r.PathValue("id")
	if err := route.ValidSandbox(ref); err != nil {
		h.WriteProblem(w, r, err)
		return
	}
	h.Socket(w, r, func(s *stream.Socket) { h.run(s, ref) })
}

// run runs the command and sends the final message.
func (h *commands) run(s *stream.Socket, ref string) {
	req, err := readRequest(s)
	if err != nil {
		s.Finish(httpwire.Final{Error: h.Problem(s.Context(), err)})
		return
	}
	stdin, feed := io.Pipe()
	messages := make(chan []byte, stream.InputBacklog)
	var wg sync.WaitGroup
	defer wg.Wait() // finish closes the connection, which ends receive, which ends feedInput
	wg.Go(func() { s.Receive(messages) })
	wg.Go(func() { feedInput(feed, messages) })

	req, prefix := takeStdin(req)
	in := io.Reader(stdin)
	if prefix != nil {
		in = io.MultiReader(prefix, stdin)
	}
	res, err := h.svc.Exec(s.Context(), ref, req, api.ExecIO{
		Stdin: in, Stdout: s.Stream(httpwire.StreamStdout), Stderr: s.Stream(httpwire.StreamStderr),
	})
	stdin.CloseWithError(stream.ErrCommandEnded)
	if err == nil {
		s.Finish(httpwire.Final{Exit: res})
		return
	}
	if cause := context.Cause(s.Context()); cause != nil {
		err = cause // says more than that a context ended
	}
	s.Finish(httpwire.Final{Error: h.Problem(s.Context(), err)})
}

// readRequest reads the first message of a client.
func readRequest(s *stream.Socket) (api.ExecRequest, error) {
	var req api.ExecRequest
	if err := s.ReadFirst("an ExecRequest", &req); err != nil {
		return req, err
	}
	if req.Key != "" {
		return req, api.Invalid("key", "a command with standard input cannot be come back to")
	}
	return req, validExec(req)
}

// feedInput writes messages to the command's standard input until there are no
// more. It drops messages after the end of input, and after the command has closed it.
func feedInput(feed *io.PipeWriter, messages <-chan []byte) {
	for msg := range messages {
		if len(msg) == 0 {
			feed.Close()
			continue
		}
		_, _ = feed.Write(msg)
	}
	feed.CloseWithError(stream.ErrClientGone)
}
