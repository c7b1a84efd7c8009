package dataplane

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"strconv"

	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// processes serves processes in the background, and the output of all.
type processes struct {
	*stream.Streams
	svc service.Processes
}

// ProcessInput is the input of operations on a process.
type ProcessInput struct {
	route.IDInput
	PID int `path:"pid" doc:"process id in the sandbox" minimum:"1"`
}

type startInput struct {
	route.IDInput
	Body api.StartRequest
}

type processesInput struct {
	route.IDInput
	All bool `query:"all" doc:"also processes that were started through the interface and have ended"`
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
	From   int64  `query:"from" minimum:"-1" doc:"sequence number of the first byte; -1 for output from now on; if absent, the oldest byte that is kept"`
	Follow bool   `query:"follow" doc:"go on until the process ends; else only the kept output"`
	Last   string `header:"Last-Event-ID" doc:"instead of from, for a client that reconnects: the id of the last event that it received"`
}

type logsInput struct {
	route.IDInput
	Follow bool `query:"follow" doc:"go on with new output, also of processes that are started later, until the client goes away or the sandbox is destroyed; else only the kept output"`
}

func (h *processes) routeProcesses(r *route.Router) {
	const tag, all = "processes", "/v1/sandboxes/{id}/processes"
	const one = all + "/{pid}"
	route.Register(r, route.WithStatus(route.Operation(http.MethodPost, all, "start-process", tag, "Start a process in the background; its output is kept",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany), http.StatusCreated), h.startProcess)
	route.Register(r, route.Operation(http.MethodGet, all, "list-processes", tag, "List the processes in a sandbox", route.StatusNotFound, route.StatusConflict), h.processes)
	route.Register(r, route.Operation(http.MethodGet, one, "get-process", tag, "Get a process", route.StatusNotFound, route.StatusConflict),
		func(ctx context.Context, in *ProcessInput) (*route.Out[*api.Process], error) {
			return onProcess(in, func() (*api.Process, error) { return h.svc.Process(ctx, in.ID, in.PID) })
		})
	route.Register(r, route.Operation(http.MethodDelete, one, "remove-process", tag, "Kill a background process with its group, and drop its output",
		route.StatusNotFound, route.StatusConflict), func(ctx context.Context, in *ProcessInput) (*struct{}, error) {
		return nil, toProcess(in, func() error { return h.svc.RemoveProcess(ctx, in.ID, in.PID) })
	})
	route.Register(r, route.Operation(http.MethodGet, one+"/wait", "wait-process", tag, "Wait for the end of a background process",
		route.StatusNotFound, route.StatusConflict), func(ctx context.Context, in *ProcessInput) (*route.Out[*api.ExecResult], error) {
		return onProcess(in, func() (*api.ExecResult, error) { return h.svc.WaitProcess(ctx, in.ID, in.PID) })
	})
	route.Register(r, route.Operation(http.MethodPost, one+"/signal", "signal-process", tag, "Send a signal to any process",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported), func(ctx context.Context, in *signalInput) (*struct{}, error) {
		return nil, toProcess(&in.ProcessInput, func() error { return h.svc.SignalProcess(ctx, in.ID, in.PID, in.Body) })
	})
	route.Register(r, route.Operation(http.MethodPost, one+"/resize", "resize-process", tag, "Set the size of a process's terminal",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported), func(ctx context.Context, in *resizeInput) (*struct{}, error) {
		return nil, toProcess(&in.ProcessInput, func() error { return h.svc.ResizeProcess(ctx, in.ID, in.PID, in.Body) })
	})
	stdin := route.Operation(http.MethodPost, one+"/stdin", "write-process", tag, "Write to a process, and wait until it has room for all of it",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported)
	stdin.MaxBodyBytes = route.MaxStdin
	stdin.RequestBody = &huma.RequestBody{}
	route.Register(r, stdin, func(ctx context.Context, in *stdinInput) (*struct{}, error) {
		return nil, toProcess(&in.ProcessInput, func() error {
			return h.svc.WriteProcess(ctx, in.ID, in.PID, bytes.NewReader(in.RawBody), in.End)
		})
	})
	stdin.RequestBody.Required = false // an end of input has no body
	h.routeOutput(r, one)
}

func (h *processes) routeOutput(r *route.Router, one string) {
	const tag = "processes"
	op := route.Operation(http.MethodGet, one+"/output", "read-output", tag, "Read the output of a background process", route.StatusNotFound, route.StatusConflict)
	content := route.EventContent(r, "Events `stdout` and `stderr` (Chunk) and, where output is not kept any more, `lost` (Lost); then one `position` (Position) or `error` (Problem). "+
		"The id of an event is the sequence number to go on from.", route.EventData{
		httpwire.EventStdout: httpwire.Chunk{}, httpwire.EventStderr: httpwire.Chunk{}, httpwire.EventLost: httpwire.Lost{}, httpwire.EventPosition: api.Position{}, httpwire.EventError: httpwire.Problem{},
	})
	route.RegisterStream(r, op, map[string]*huma.Response{
		"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{httpwire.EventType: content}},
	}, func(in *outputInput) error {
		_, err := in.position()
		return cmp.Or(route.ValidSandbox(in.ID), err)
	}, h.output)

	logs := route.Operation(http.MethodGet, "/v1/sandboxes/{id}/logs", "read-logs", tag, "Read the output of all background processes", route.StatusNotFound, route.StatusConflict)
	content = route.EventContent(r, "Events `stdout` and `stderr` (LogChunk) and, where output is not kept any more, `lost` (LogLost), with the process each is of; `position` (LogPosition) when all of one process was told, "+
		"with the number from which its output can be read on; at last `end` or `error` (Problem).", route.EventData{
		httpwire.EventStdout: httpwire.LogChunk{}, httpwire.EventStderr: httpwire.LogChunk{}, httpwire.EventLost: httpwire.LogLost{}, httpwire.EventPosition: httpwire.LogPosition{}, httpwire.EventError: httpwire.Problem{},
	})
	route.RegisterStream(r, logs, map[string]*huma.Response{
		"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{httpwire.EventType: content}},
	}, func(in *logsInput) error { return route.ValidSandbox(in.ID) }, h.logs)

	r.Handle(http.MethodGet, one+"/attach", h.attachSocket)
	r.Document(one+"/attach", http.MethodGet, "attach-process", "Attach to a process over a WebSocket", tag, route.SocketResponse(r, httpwire.Control{}, httpwire.AttachMessage{}),
		&huma.Param{Name: "id", In: "path", Required: true, Description: "id or name", Schema: &huma.Schema{Type: huma.TypeString}},
		&huma.Param{Name: "pid", In: "path", Required: true, Description: "process id in the sandbox", Schema: &huma.Schema{Type: huma.TypeInteger}},
		&huma.Param{Name: "from", In: "query", Description: "sequence number of the first byte, as for read-output", Schema: &huma.Schema{Type: huma.TypeInteger}})
}

// onProcess answers an operation on a process.
func onProcess[T any](in *ProcessInput, do func() (T, error)) (*route.Out[T], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	v, err := do()
	return route.Answer(v, err)
}

func toProcess(in *ProcessInput, do func() error) error {
	if err := route.ValidSandbox(in.ID); err != nil {
		return err
	}
	return do()
}

func (h *processes) startProcess(ctx context.Context, in *startInput) (*route.Out[*api.Process], error) {
	if err := cmp.Or(route.ValidSandbox(in.ID), in.Body.Valid()); err != nil {
		return nil, err
	}
	p, err := h.svc.StartProcess(ctx, in.ID, in.Body)
	return route.Answer(p, err)
}

func (h *processes) processes(ctx context.Context, in *processesInput) (*route.Out[httpwire.List[api.Process]], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	ps, err := h.svc.Processes(ctx, in.ID, in.All)
	return route.AnswerList(ps, err)
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

func (h *processes) output(w http.ResponseWriter, r *http.Request, in *outputInput) {
	events, ctx := h.Follow(w, r, in.Follow)
	defer events.Close()
	from, err := in.position()
	if err != nil {
		h.EndEvents(events, r, err)
		return
	}
	pos, err := h.svc.Attach(ctx, in.ID, in.PID, api.AttachRequest{From: from, Follow: in.Follow}, api.AttachIO{Output: events.SendChunk})
	if err != nil {
		h.EndFollowing(ctx, events, r, err)
		return
	}
	_ = events.Send(httpwire.EventPosition, pos) // fails only if the client is gone
}

func (h *processes) logs(w http.ResponseWriter, r *http.Request, in *logsInput) {
	events, ctx := h.Follow(w, r, in.Follow)
	defer events.Close()
	if err := h.svc.Logs(ctx, in.ID, in.Follow, events.Begin, events.SendLog); err != nil {
		h.EndFollowing(ctx, events, r, err)
		return
	}
	_ = events.Send(httpwire.EventEnd, struct{}{}) // fails only if the client is gone
}
