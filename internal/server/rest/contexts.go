package rest

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// maxRunResults is how much of the results a call that does not stream keeps, in
// bytes.
const maxRunResults = 32 << 20

// resultCost is what a result counts besides, however short it is.
const resultCost = 1 << 10

// ContextInput is the input of what concerns one context.
type ContextInput struct {
	IDInput
	Context string `path:"context" doc:"name of the context"`
}

type createContextInput struct {
	IDInput
	Body api.ContextRequest
}

type runCodeInput struct {
	IDInput
	Accept string `header:"Accept" hidden:"true"`
	Body   api.RunCodeRequest
}

func (a *API) routeContexts() {
	const tag, all = "contexts", "/v1/sandboxes/{id}/contexts"
	const one = all + "/{context}"
	register(a, withStatus(operation(http.MethodPost, all, "create-context", tag, "Start a stateful interpreter",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusTooMany), http.StatusCreated), a.createContext)
	register(a, operation(http.MethodGet, all, "list-contexts", tag, "List the interpreters in a sandbox", statusNotFound, statusConflict), a.contexts)
	register(a, withStatus(operation(http.MethodDelete, one, "delete-context", tag, "End an interpreter", statusNotFound, statusConflict), http.StatusNoContent),
		func(ctx context.Context, in *ContextInput) (*struct{}, error) {
			if err := in.valid(); err != nil {
				return nil, err
			}
			return nil, a.svc.DestroyContext(ctx, in.ID, in.Context)
		})
	register(a, operation(http.MethodPost, one+"/interrupt", "interrupt-context", tag, "Interrupt what an interpreter runs", statusNotFound, statusConflict),
		func(ctx context.Context, in *ContextInput) (*out[httpwire.Interrupted], error) {
			if err := in.valid(); err != nil {
				return nil, err
			}
			was, err := a.svc.InterruptContext(ctx, in.ID, in.Context)
			return &out[httpwire.Interrupted]{httpwire.Interrupted{Interrupted: was}}, err
		})
	register(a, operation(http.MethodPost, one+"/restart", "restart-context", tag, "Give a context a new interpreter, without what the old one had", statusNotFound, statusConflict),
		func(ctx context.Context, in *ContextInput) (*out[*api.Context], error) {
			if err := in.valid(); err != nil {
				return nil, err
			}
			c, err := a.svc.RestartContext(ctx, in.ID, in.Context)
			return &out[*api.Context]{c}, err
		})

	content := jsonContent(a, api.RunResult{})
	orNull(a, "RunResult", "error")
	content[httpwire.EventType] = eventContent(a,
		"Events `stdout` and `stderr` (Chunk) and `result` (an object with one entry for each media type), then one `exit` (RunResult without streams and results) or `error` (Problem).", events{
			httpwire.EventStdout: httpwire.Chunk{}, httpwire.EventStderr: httpwire.Chunk{}, httpwire.EventExit: api.RunResult{}, httpwire.EventError: httpwire.Problem{},
		})
	op := operation(http.MethodPost, "/v1/sandboxes/{id}/run-code", "run-code", tag, "Run code in a stateful interpreter",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusTooMany)
	op.MaxBodyBytes = maxRunBody
	registerStream(a, op, map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK), Content: content}},
		func(in *runCodeInput) error { return validSandbox(in.ID) }, a.runCode)
}

// maxRunBody has room for the longest code, whose characters JSON may write with
// six bytes each.
const maxRunBody = 32 << 20

func (in *ContextInput) valid() error {
	return cmp.Or(validSandbox(in.ID), api.ValidName("context", in.Context))
}

func (a *API) createContext(ctx context.Context, in *createContextInput) (*out[*api.Context], error) {
	if err := cmp.Or(validSandbox(in.ID), validNames("name", in.Body.Name), validEnv(in.Body.Env)); err != nil {
		return nil, err
	}
	c, err := a.svc.CreateContext(ctx, in.ID, in.Body)
	return &out[*api.Context]{c}, err
}

func (a *API) contexts(ctx context.Context, in *IDInput) (*out[httpwire.List[api.Context]], error) {
	if err := validSandbox(in.ID); err != nil {
		return nil, err
	}
	all, err := a.svc.Contexts(ctx, in.ID)
	return &out[httpwire.List[api.Context]]{httpwire.List[api.Context]{Items: list(all)}}, err
}

func (a *API) runCode(w http.ResponseWriter, r *http.Request, in *runCodeInput) {
	if !acceptsEvents(in.Accept) {
		res, err := a.collectRun(r.Context(), in.ID, in.Body)
		if err != nil {
			a.writeProblem(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, "application/json", res)
		return
	}
	events, ctx := newEventWriter(w, r)
	defer events.close()
	res, err := a.svc.RunCode(ctx, in.ID, in.Body, api.RunIO{
		Stdout: events.stream(httpwire.EventStdout), Stderr: events.stream(httpwire.EventStderr),
		Result: func(forms map[string]json.RawMessage) error { return events.send(httpwire.EventResult, forms) },
	})
	if err != nil {
		a.endEvents(events, r, err)
		return
	}
	res.Results = list(res.Results)
	_ = events.send(httpwire.EventExit, res) // nobody is left to be told
}

// collectRun runs a cell and keeps what came of it.
func (a *API) collectRun(ctx context.Context, ref string, req api.RunCodeRequest) (*api.RunResult, error) {
	var stdout, stderr boundedBuffer
	results, size, cut := []map[string]json.RawMessage{}, 0, false
	res, err := a.svc.RunCode(ctx, ref, req, api.RunIO{Stdout: &stdout, Stderr: &stderr, Result: func(forms map[string]json.RawMessage) error {
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
