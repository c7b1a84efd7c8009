package rest

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

type execInput struct {
	IDInput
	Accept string `header:"Accept" hidden:"true"`
	Body   api.ExecRequest
}

func (a *API) routeExec() {
	const path = "/v1/sandboxes/{id}/exec"
	content := jsonContent(a, api.ExecResult{})
	content[httpwire.FrameType] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary",
		Description: "Frames: a byte 1 (stdout), 2 (stderr) or 3 (the last frame, {\"exit\": ExecResult} or {\"error\": Problem}), the length in 4 bytes, big-endian, and the bytes."}}
	content[httpwire.EventType] = eventContent(a,
		"Events `stdout` and `stderr` (Chunk), then one `exit` (ExecResult without the streams) or `error` (Problem).", events{
			httpwire.EventStdout: httpwire.Chunk{}, httpwire.EventStderr: httpwire.Chunk{}, httpwire.EventExit: api.ExecResult{}, httpwire.EventError: httpwire.Problem{},
		})
	op := operation(http.MethodPost, path, "exec-command", "processes", "Run a command in a sandbox",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported)
	op.MaxBodyBytes = maxExecBody
	registerStream(a, op, map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK), Content: content}},
		func(in *execInput) error {
			if err := validSandbox(in.ID); err != nil {
				return err
			}
			return validExec(in.Body)
		}, a.exec)

	a.mux.HandleFunc("GET "+path, a.execSocket)
	a.document(path, http.MethodGet, "open-exec", "Run a command with standard input over a WebSocket", "processes", socketResponse(a, api.ExecRequest{}, httpwire.Final{}),
		&huma.Param{Name: "id", In: "path", Required: true, Description: "id or name", Schema: &huma.Schema{Type: huma.TypeString}})
}

func (a *API) exec(w http.ResponseWriter, r *http.Request, in *execInput) {
	req, stdin := takeStdin(in.Body)
	if !accepts(in.Accept, httpwire.FrameType) && req.Key != "" {
		a.writeProblem(w, r, api.Invalid("key", "only a command whose answer is in frames (Accept: %s) can be come back to", httpwire.FrameType))
		return
	}
	if accepts(in.Accept, httpwire.FrameType) {
		a.execFrames(w, r, in.ID, req, stdin)
		return
	}
	if !acceptsEvents(in.Accept) {
		res, err := a.collect(r.Context(), in.ID, req, stdin)
		if err != nil {
			a.writeProblem(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, "application/json", res)
		return
	}
	events, ctx := newEventWriter(w, r)
	defer events.close()
	res, err := a.svc.Exec(ctx, in.ID, req, api.ExecIO{
		Stdin: stdin, Stdout: events.stream(httpwire.EventStdout), Stderr: events.stream(httpwire.EventStderr),
	})
	if err != nil {
		a.endEvents(events, r, err)
		return
	}
	_ = events.send(httpwire.EventExit, res) // nobody is left to be told
}

// collect runs a command and keeps what it wrote.
func (a *API) collect(ctx context.Context, ref string, req api.ExecRequest, stdin io.Reader) (*api.ExecResult, error) {
	var stdout, stderr boundedBuffer
	res, err := a.svc.Exec(ctx, ref, req, api.ExecIO{Stdin: stdin, Stdout: &stdout, Stderr: &stderr})
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
