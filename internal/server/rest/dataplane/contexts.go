package dataplane

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"ramet.dev/ramet/internal/server/rest/answer"
	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// contexts serves stateful interpreters.
type contexts struct {
	*stream.Streams
	svc service.Contexts
}

// maxRunResults bounds the results that a call without a stream keeps, in bytes.
const maxRunResults = 32 << 20

// resultCost is added to the size of each result.
const resultCost = 1 << 10

// ContextInput is the input of operations on a context.
type ContextInput struct {
	route.IDInput
	Context string `path:"context" doc:"name of the context"`
}

type createContextInput struct {
	route.IDInput
	Body api.ContextRequest
}

type runCodeInput struct {
	route.IDInput
	Accept string `header:"Accept" hidden:"true"`
	Body   api.RunCodeRequest
}

func (h *contexts) routeContexts(r *route.Router) {
	const tag, all = "contexts", "/v1/sandboxes/{id}/contexts"
	const one = all + "/{context}"
	route.Register(r, route.WithStatus(route.Operation(http.MethodPost, all, "create-context", tag, "Start a stateful interpreter",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany), http.StatusCreated), h.createContext)
	route.Register(r, route.Operation(http.MethodGet, all, "list-contexts", tag, "List the interpreters in a sandbox", route.StatusNotFound, route.StatusConflict), h.contexts)
	route.Register(r, route.WithStatus(route.Operation(http.MethodDelete, one, "delete-context", tag, "End an interpreter", route.StatusNotFound, route.StatusConflict), http.StatusNoContent),
		func(ctx context.Context, in *ContextInput) (*struct{}, error) {
			if err := in.valid(); err != nil {
				return nil, err
			}
			return nil, h.svc.DestroyContext(ctx, in.ID, in.Context)
		})
	route.Register(r, route.Operation(http.MethodPost, one+"/interrupt", "interrupt-context", tag, "Interrupt the running cell of an interpreter", route.StatusNotFound, route.StatusConflict),
		func(ctx context.Context, in *ContextInput) (*route.Out[httpwire.Interrupted], error) {
			if err := in.valid(); err != nil {
				return nil, err
			}
			was, err := h.svc.InterruptContext(ctx, in.ID, in.Context)
			return route.Answer(httpwire.Interrupted{Interrupted: was}, err)
		})
	route.Register(r, route.Operation(http.MethodPost, one+"/restart", "restart-context", tag, "Restart the interpreter of a context, which loses its state", route.StatusNotFound, route.StatusConflict),
		func(ctx context.Context, in *ContextInput) (*route.Out[*api.Context], error) {
			if err := in.valid(); err != nil {
				return nil, err
			}
			c, err := h.svc.RestartContext(ctx, in.ID, in.Context)
			return route.Answer(c, err)
		})

	content := route.JSONContent(r, api.RunResult{})
	route.OrNull(r, "RunResult", "error")
	content[httpwire.EventType] = route.EventContent(r,
		"Events `stdout` and `stderr` (Chunk) and `result` (an object with one entry for each media type), then one `exit` (RunResult without streams and results) or `error` (Problem).", route.EventData{
			httpwire.EventStdout: httpwire.Chunk{}, httpwire.EventStderr: httpwire.Chunk{}, httpwire.EventExit: api.RunResult{}, httpwire.EventError: httpwire.Problem{},
		})
	op := route.Operation(http.MethodPost, "/v1/sandboxes/{id}/run-code", "run-code", tag, "Run code in a stateful interpreter",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany)
	op.MaxBodyBytes = maxRunBody
	route.RegisterStream(r, op, map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK), Content: content}},
		func(in *runCodeInput) error { return route.ValidSandbox(in.ID) }, h.runCode)
}

// maxRunBody has room for the longest code, whose characters JSON may write with
// six bytes each.
const maxRunBody = 32 << 20

func (in *ContextInput) valid() error {
	return cmp.Or(route.ValidSandbox(in.ID), api.ValidName("context", in.Context))
}

func (h *contexts) createContext(ctx context.Context, in *createContextInput) (*route.Out[*api.Context], error) {
	if err := cmp.Or(route.ValidSandbox(in.ID), api.ValidOptionalName("name", in.Body.Name), api.ValidEnv("env", in.Body.Env), api.ValidDir("cwd", in.Body.Cwd)); err != nil {
		return nil, err
	}
	c, err := h.svc.CreateContext(ctx, in.ID, in.Body)
	return route.Answer(c, err)
}

func (h *contexts) contexts(ctx context.Context, in *route.IDInput) (*route.Out[httpwire.List[api.Context]], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	all, err := h.svc.Contexts(ctx, in.ID)
	return route.AnswerList(all, err)
}

func (h *contexts) runCode(w http.ResponseWriter, r *http.Request, in *runCodeInput) {
	if !stream.AcceptsEvents(in.Accept) {
		res, err := h.collectRun(r.Context(), in.ID, in.Body)
		if err != nil {
			h.WriteProblem(w, r, err)
			return
		}
		answer.WriteJSON(w, http.StatusOK, "application/json", res)
		return
	}
	events, ctx := stream.NewEvents(w, r)
	defer events.Close()
	res, err := h.svc.RunCode(ctx, in.ID, in.Body, api.RunIO{
		Stdout: events.Stream(httpwire.EventStdout), Stderr: events.Stream(httpwire.EventStderr),
		Result: func(forms map[string]json.RawMessage) error { return events.Send(httpwire.EventResult, forms) },
	})
	if err != nil {
		h.EndEvents(events, r, err)
		return
	}
	res.Results = route.List(res.Results)
	_ = events.Send(httpwire.EventExit, res) // fails only if the client is gone
}

// collectRun runs a cell and keeps its output and results.
func (h *contexts) collectRun(ctx context.Context, ref string, req api.RunCodeRequest) (*api.RunResult, error) {
	var stdout, stderr boundedBuffer
	results, size, cut := []map[string]json.RawMessage{}, 0, false
	res, err := h.svc.RunCode(ctx, ref, req, api.RunIO{Stdout: &stdout, Stderr: &stderr, Result: func(forms map[string]json.RawMessage) error {
		size += resultCost
		for mime, data := range forms {
			size += len(mime) + len(data)
		}
		if size > maxRunResults {
			cut = true
			return nil
		}
		results = append(results, forms)
		return nil
	}})
	if err != nil {
		return nil, err
	}
	collected := *res
	var cutOut, cutErr bool
	collected.Stdout, cutOut = stdout.take()
	collected.Stderr, cutErr = stderr.take()
	collected.Results = results
	collected.Truncated = res.Truncated || cut || cutOut || cutErr
	return &collected, nil
}
