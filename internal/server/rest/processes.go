package rest

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// ProcessInput is the input of what concerns one process.
type ProcessInput struct {
	IDInput
	PID int `path:"pid" doc:"process id in the sandbox" minimum:"1"`
}

type startInput struct {
	IDInput
	Body api.StartRequest
}

type processesInput struct {
	IDInput
	All bool `query:"all" doc:"also processes that were started here and have ended"`
}

type stdinInput struct {
	ProcessInput
	End     bool   `query:"end" doc:"close standard input after this"`
	RawBody []byte `contentType:"application/octet-stream"`
}

type signalInput struct {
	ProcessInput
	Body api.SignalRequest
}

type resizeInput struct {
	ProcessInput
	Body api.TerminalSize
}

type outputInput struct {
	ProcessInput
	From   int64  `query:"from" minimum:"-1" doc:"sequence number of the first byte that is wanted; -1 for what is written from now on; the oldest that is kept if absent"`
	Follow bool   `query:"follow" doc:"until the process ends, else what there is"`
	Last   string `header:"Last-Event-ID" doc:"instead of from, of a client that comes back: the id of the last event that it received"`
}

type logsInput struct {
	IDInput
	Follow bool `query:"follow" doc:"go on with what is written, by processes that are started later too, until the client goes away or the sandbox is destroyed; else what there is"`
}

func (a *API) routeProcesses() {
	const tag, all = "processes", "/v1/sandboxes/{id}/processes"
	const one = all + "/{pid}"
	register(a, withStatus(operation(http.MethodPost, all, "start-process", tag, "Start a process in the background; its output is kept",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusTooMany), http.StatusCreated), a.startProcess)
	register(a, operation(http.MethodGet, all, "list-processes", tag, "List the processes in a sandbox", statusNotFound, statusConflict), a.processes)
	register(a, operation(http.MethodGet, one, "get-process", tag, "Look at a process", statusNotFound, statusConflict),
		func(ctx context.Context, in *ProcessInput) (*out[*api.Process], error) {
			return onProcess(in, func() (*api.Process, error) { return a.svc.Process(ctx, in.ID, in.PID) })
		})
	register(a, operation(http.MethodDelete, one, "remove-process", tag, "Kill a process that was started here, with its group, and drop its output",
		statusNotFound, statusConflict), func(ctx context.Context, in *ProcessInput) (*struct{}, error) {
		return nil, toProcess(in, func() error { return a.svc.RemoveProcess(ctx, in.ID, in.PID) })
	})
	register(a, operation(http.MethodGet, one+"/wait", "wait-process", tag, "Wait for the end of a process that was started here",
		statusNotFound, statusConflict), func(ctx context.Context, in *ProcessInput) (*out[*api.ExecResult], error) {
		return onProcess(in, func() (*api.ExecResult, error) { return a.svc.WaitProcess(ctx, in.ID, in.PID) })
	})
	register(a, operation(http.MethodPost, one+"/signal", "signal-process", tag, "Send a signal to any process",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported), func(ctx context.Context, in *signalInput) (*struct{}, error) {
		return nil, toProcess(&in.ProcessInput, func() error { return a.svc.SignalProcess(ctx, in.ID, in.PID, in.Body) })
	})
	register(a, operation(http.MethodPost, one+"/resize", "resize-process", tag, "Set the size of a process's terminal",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported), func(ctx context.Context, in *resizeInput) (*struct{}, error) {
		return nil, toProcess(&in.ProcessInput, func() error { return a.svc.ResizeProcess(ctx, in.ID, in.PID, in.Body) })
	})
	stdin := operation(http.MethodPost, one+"/stdin", "write-process", tag, "Write to a process, and wait until it has room for all of it",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported)
	stdin.MaxBodyBytes = maxStdin
	stdin.RequestBody = &huma.RequestBody{}
	register(a, stdin, func(ctx context.Context, in *stdinInput) (*struct{}, error) {
		return nil, toProcess(&in.ProcessInput, func() error {
			return a.svc.WriteProcess(ctx, in.ID, in.PID, bytes.NewReader(in.RawBody), in.End)
		})
	})
	stdin.RequestBody.Required = false // an end of input has no body
	a.routeOutput(one)
}

func (a *API) routeOutput(one string) {
	const tag = "processes"
	op := operation(http.MethodGet, one+"/output", "read-output", tag, "Read what a process that was started here wrote", statusNotFound, statusConflict)
	content := eventContent(a, "Events `stdout` and `stderr` (Chunk) and, where output is not kept any more, `lost` (Lost); then one `position` (Position) or `error` (Problem). "+
		"The id of an event is the sequence number to go on from.", events{
		httpwire.EventStdout: httpwire.Chunk{}, httpwire.EventStderr: httpwire.Chunk{}, httpwire.EventLost: httpwire.Lost{}, httpwire.EventPosition: api.Position{}, httpwire.EventError: httpwire.Problem{},
	})
	registerStream(a, op, map[string]*huma.Response{
		"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{httpwire.EventType: content}},
	}, func(in *outputInput) error {
		_, err := in.position()
		return cmp.Or(validSandbox(in.ID), err)
	}, a.output)

	logs := operation(http.MethodGet, "/v1/sandboxes/{id}/logs", "read-logs", tag, "Read what all processes wrote that were started here", statusNotFound, statusConflict)
	content = eventContent(a, "Events `stdout` and `stderr` (LogChunk) and, where output is not kept any more, `lost` (LogLost), with the process each is of; `position` (LogPosition) when all of one process was told, "+
		"with the number from which its output can be read on; at last `end` or `error` (Problem).", events{
		httpwire.EventStdout: httpwire.LogChunk{}, httpwire.EventStderr: httpwire.LogChunk{}, httpwire.EventLost: httpwire.LogLost{}, httpwire.EventPosition: httpwire.LogPosition{}, httpwire.EventError: httpwire.Problem{},
	})
	registerStream(a, logs, map[string]*huma.Response{
		"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{httpwire.EventType: content}},
	}, func(in *logsInput) error { return validSandbox(in.ID) }, a.logs)

	a.mux.HandleFunc("GET "+one+"/attach", a.attachSocket)
	a.document(one+"/attach", http.MethodGet, "attach-process", "Attach to a process over a WebSocket", tag, socketResponse(a, httpwire.Control{}, httpwire.AttachMessage{}),
		&huma.Param{Name: "id", In: "path", Required: true, Description: "id or name", Schema: &huma.Schema{Type: huma.TypeString}},
		&huma.Param{Name: "pid", In: "path", Required: true, Description: "process id in the sandbox", Schema: &huma.Schema{Type: huma.TypeInteger}},
		&huma.Param{Name: "from", In: "query", Description: "as of output", Schema: &huma.Schema{Type: huma.TypeInteger}})
}

// onProcess is the answer about one process.
func onProcess[T any](in *ProcessInput, do func() (T, error)) (*out[T], error) {
	if err := validSandbox(in.ID); err != nil {
		return nil, err
	}
	v, err := do()
	return &out[T]{v}, err
}

func toProcess(in *ProcessInput, do func() error) error {
	if err := validSandbox(in.ID); err != nil {
		return err
	}
	return do()
}

func (a *API) startProcess(ctx context.Context, in *startInput) (*out[*api.Process], error) {
	if err := cmp.Or(validSandbox(in.ID), validStart(in.Body)); err != nil {
		return nil, err
	}
	p, err := a.svc.StartProcess(ctx, in.ID, in.Body)
	return &out[*api.Process]{p}, err
}

func validStart(req api.StartRequest) error {
	if t := req.Terminal; t != nil && (t.Cols == 0 || t.Rows == 0) {
		return api.Invalid("terminal", "a terminal has from 1 to 65535 columns and rows")
	}
	return validExec(api.ExecRequest{Argv: req.Argv, Shell: req.Shell, Env: req.Env, Cwd: req.Cwd, User: req.User, TimeoutMS: req.TimeoutMS})
}

func (a *API) processes(ctx context.Context, in *processesInput) (*out[httpwire.List[api.Process]], error) {
	if err := validSandbox(in.ID); err != nil {
		return nil, err
	}
	ps, err := a.svc.Processes(ctx, in.ID, in.All)
	return &out[httpwire.List[api.Process]]{httpwire.List[api.Process]{Items: list(ps)}}, err
}

// position returns where reading begins.
func (in *outputInput) position() (int64, error) {
	if in.Last == "" {
		return in.From, nil
	}
	from, err := strconv.ParseInt(in.Last, 10, 64)
	if err != nil || from < 0 {
		return 0, api.Invalid("Last-Event-ID", "%q is not the id of an event that was sent from here", in.Last)
	}
	return from, nil
}

func (a *API) output(w http.ResponseWriter, r *http.Request, in *outputInput) {
	events, ctx := a.follow(w, r, in.Follow)
	defer events.close()
	from, err := in.position()
	if err != nil {
		a.endEvents(events, r, err)
		return
	}
	pos, err := a.svc.Attach(ctx, in.ID, in.PID, api.AttachRequest{From: from, Follow: in.Follow}, api.AttachIO{Output: events.sendChunk})
	if err != nil {
		a.endFollowing(ctx, events, r, err)
		return
	}
	_ = events.send(httpwire.EventPosition, pos) // nobody is left to be told
}

func (a *API) logs(w http.ResponseWriter, r *http.Request, in *logsInput) {
	events, ctx := a.follow(w, r, in.Follow)
	defer events.close()
	if err := a.svc.Logs(ctx, in.ID, in.Follow, events.begin, events.sendLog); err != nil {
		a.endFollowing(ctx, events, r, err)
		return
	}
	_ = events.send(httpwire.EventEnd, struct{}{}) // nobody is left to be told
}
