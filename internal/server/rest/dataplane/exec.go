package dataplane

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"ramet.dev/ramet/internal/server/rest/answer"
	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// commands serves commands in the foreground.
type commands struct {
	*stream.Streams
	svc service.Processes
}

type execInput struct {
	route.IDInput
	Accept string `header:"Accept" hidden:"true"`
	Body   api.ExecRequest
}

func (h *commands) routeExec(r *route.Router) {
	const path = "/v1/sandboxes/{id}/exec"
	content := route.JSONContent(r, api.ExecResult{})
	content[httpwire.FrameType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary",
		Description: "Frames: a byte 1 (stdout), 2 (stderr) or 3 (the last frame, {\"exit\": ExecResult} or {\"error\": Problem}), the length in 4 bytes, big-endian, and the bytes."}}
	content[httpwire.EventType] = route.EventContent(r,
		"Events `stdout` and `stderr` (Chunk), then one `exit` (ExecResult without the streams) or `error` (Problem).", route.EventData{
			httpwire.EventStdout: httpwire.Chunk{}, httpwire.EventStderr: httpwire.Chunk{}, httpwire.EventExit: api.ExecResult{}, httpwire.EventError: httpwire.Problem{},
		})
	op := route.Operation(http.MethodPost, path, "exec-command", "processes", "Run a command in a sandbox",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported)
	op.MaxBodyBytes = route.MaxExecBody
	route.RegisterStream(r, op, map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK), Content: content}},
		func(in *execInput) error {
			if err := route.ValidSandbox(in.ID); err != nil {
				return err
			}
			return validExec(in.Body)
		}, h.exec)

	r.Handle(http.MethodGet, path, h.execSocket)
	r.Document(path, http.MethodGet, "open-exec", "Run a command with standard input over a WebSocket", "processes", route.SocketResponse(r, api.ExecRequest{}, httpwire.Final{}),
		&huma.Param{Name: "id", In: "path", Required: true, Description: "id or name", Schema: &huma.Schema{Type: huma.TypeString}})
}

func (h *commands) exec(w http.ResponseWriter, r *http.Request, in *execInput) {
	req, stdin := takeStdin(in.Body)
	if !httpwire.Accepts(in.Accept, httpwire.FrameType) && req.Key != "" {
		h.WriteProblem(w, r, api.Invalid("key", "only a command whose answer is in frames (Accept: %s) can be come back to", httpwire.FrameType))
		return
	}
	if httpwire.Accepts(in.Accept, httpwire.FrameType) {
		h.execFrames(w, r, in.ID, req, stdin)
		return
	}
	if !stream.AcceptsEvents(in.Accept) {
		res, err := h.collect(r.Context(), in.ID, req, stdin)
		if err != nil {
			h.WriteProblem(w, r, err)
			return
		}
		answer.WriteJSON(w, http.StatusOK, "application/json", res)
		return
	}
	events, ctx := stream.NewEvents(w, r)
	defer events.Close()
	res, err := h.svc.Exec(ctx, in.ID, req, api.ExecIO{
		Stdin: stdin, Stdout: events.Stream(httpwire.EventStdout), Stderr: events.Stream(httpwire.EventStderr),
	})
	if err != nil {
		h.EndEvents(events, r, err)
		return
	}
	_ = events.Send(httpwire.EventExit, res) // fails only if the client is gone
}

// collect runs a command and keeps its output.
func (h *commands) collect(ctx context.Context, ref string, req api.ExecRequest, stdin io.Reader) (*api.ExecResult, error) {
	var stdout, stderr boundedBuffer
	res, err := h.svc.Exec(ctx, ref, req, api.ExecIO{Stdin: stdin, Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		return nil, err
	}
	collected := *res
	var cutOut, cutErr bool
	collected.Stdout, cutOut = stdout.take()
	collected.Stderr, cutErr = stderr.take()
	collected.Truncated = cutOut || cutErr
	return &collected, nil
}

// takeStdin moves the text for standard input into a reader.
func takeStdin(req api.ExecRequest) (api.ExecRequest, io.Reader) {
	if req.Stdin == "" {
		return req, nil
	}
	in := strings.NewReader(req.Stdin)
	req.Stdin = ""
	return req, in
}

// boundedBuffer keeps the first api.MaxCollected bytes and drops the rest, so that
// the command never blocks.
type boundedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
	cut  bool
}

// Write implements io.Writer.
func (b *boundedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	room := api.MaxCollected - b.text.Len()
	if len(p) > room {
		b.cut = true
	}
	b.text.Write(p[:min(len(p), room)])
	return len(p), nil
}

func (b *boundedBuffer) take() (text string, cut bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String(), b.cut
}

// validExec checks a command whose standard input is part of the request.
func validExec(req api.ExecRequest) error {
	if len(req.Stdin) > route.MaxStdin {
		return api.Invalid("stdin", "%d bytes are more than %d: stream them over a WebSocket", len(req.Stdin), route.MaxStdin)
	}
	return req.Valid()
}
