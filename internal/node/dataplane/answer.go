package dataplane

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/wire"
)

// answer collects what an interpreter says about one run.
type answer struct {
	results func(map[string]json.RawMessage) error
	payload []byte
	done    *interp.Done
}

// take takes the next part. The sentry bounds results, and interp the payload.
func (a *answer) take(p interp.Part) error {
	if a.payload = append(a.payload, p.Data...); len(a.payload) > interp.MaxPayload {
		return api.Errorf(api.CodeInternal, "an answer is longer than any may be")
	}
	if !p.Last {
		return nil
	}
	payload := a.payload
	a.payload = nil
	switch p.Kind {
	case interp.KindResult:
		r, err := interp.ParseResult(payload)
		if err != nil || a.results == nil {
			return nil // the interpreter's fault, or that of code that pretends to be it
		}
		return a.results(r)
	case interp.KindDone:
		d, err := interp.ParseDone(payload)
		if err != nil {
			d = &interp.Done{ExitCode: 1, Error: &interp.Error{Name: api.ContextDied, Value: err.Error()}}
		}
		a.done = d
	}
	return nil
}

// result returns the outcome of a cell.
func (a *answer) result(name string, ran *wire.Ran) (*api.RunResult, error) {
	out := &api.RunResult{Context: name}
	out.TimedOut, out.DurationMS, out.Truncated = ran.TimedOut, ran.DurationMS, ran.Truncated
	switch {
	case ran.Died != nil:
		out.ExitCode, out.Signal = ran.Died.Code, ran.Died.Signal
		how := fmt.Sprintf("exit code %d", ran.Died.Code)
		if ran.Died.Signal != "" {
			how = ran.Died.Signal
		}
		out.Error = &api.RunError{Name: api.ContextDied, Value: "the interpreter ended with " + how + "; the next run starts a new one, without what this one had"}
	case a.done == nil:
		return nil, api.Errorf(api.CodeInternal, "the interpreter of context %s gave no answer", name)
	default:
		d := a.done
		out.ExitCode, out.ExecutionCount = d.ExitCode, d.ExecutionCount
		out.Truncated = out.Truncated || d.Truncated
		if d.Result != nil {
			out.Result = *d.Result
		}
		if d.Error != nil {
			out.Error = &api.RunError{Name: d.Error.Name, Value: d.Error.Value, Traceback: d.Error.Traceback}
		}
	}
	out.OK = out.ExitCode == 0 && out.Error == nil
	return out, nil
}

// variablesTimeout is how long an interpreter may take to describe its variables.
const variablesTimeout = 30 * time.Second

// Variables returns the variables of one context of a running sandbox.
func (p contexts) Variables(ctx context.Context, ref, name string) ([]interp.Variable, error) {
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	sentry, err := b.Look(ctx, api.StateRunning)
	if err != nil {
		return nil, err
	}
	a := &answer{}
	ran, err := sentry.Run(ctx, &wire.Run{Context: name, Kind: interp.KindVariables, TimeoutMS: variablesTimeout.Milliseconds()}, nil, io.Discard, io.Discard, a.take)
	if err != nil {
		return nil, b.Explain(sentry, err)
	}
	res, err := a.result(name, ran)
	if err != nil {
		return nil, err
	}
	if res.Error != nil {
		return nil, api.Errorf(api.CodeConflict, "%s: %s", res.Error.Name, res.Error.Value)
	}
	return a.done.Variables, nil
}
