package node

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/service"
)

// Contexts lists the interpreters in a sandbox.
func (m *Node) Contexts(ctx context.Context, ref string) ([]api.Context, error) {
	list := []api.Context{}
	return list, m.onProcesses(ctx, ref, &wire.Call{Op: wire.OpContexts}, &list, api.StateRunning, api.StatePaused)
}

// CreateContext starts an interpreter.
func (m *Node) CreateContext(ctx context.Context, ref string, req api.ContextRequest) (*api.Context, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(validLanguage(req.Language), validEnv(req.Env)); err != nil {
		return nil, err
	}
	if req.Cwd != "" && !path.IsAbs(req.Cwd) {
		return nil, api.Invalid("cwd", "%q is not an absolute path", req.Cwd)
	}
	if req.Name != "" {
		if err := api.ValidName("name", req.Name); err != nil {
			return nil, err
		}
	}
	v := b.view()
	call := &wire.Call{Op: wire.OpContext, Context: &wire.Context{Action: wire.ContextMake, Name: req.Name, ContextSpec: wire.ContextSpec{
		Language: interp.Language(req.Language), Cwd: cmp.Or(req.Cwd, v.Cwd), User: cmp.Or(req.User, v.User), Env: req.Env,
	}}}
	return m.actOnContext(ctx, ref, call)
}

// InterruptContext ends what a context runs, and reports whether it ran anything.
func (m *Node) InterruptContext(ctx context.Context, ref, name string) (bool, error) {
	var out wire.Interrupted
	err := m.onProcesses(ctx, ref, contextCall(wire.ContextInterrupt, name), &out, api.StateRunning)
	return out.Interrupted, err
}

// RestartContext gives a context a new interpreter.
func (m *Node) RestartContext(ctx context.Context, ref, name string) (*api.Context, error) {
	return m.actOnContext(ctx, ref, contextCall(wire.ContextRestart, name))
}

// DestroyContext ends a context.
func (m *Node) DestroyContext(ctx context.Context, ref, name string) error {
	return m.onProcesses(ctx, ref, contextCall(wire.ContextEnd, name), nil, api.StateRunning)
}

func contextCall(action wire.ContextAction, name string) *wire.Call {
	return &wire.Call{Op: wire.OpContext, Context: &wire.Context{Action: action, Name: name}}
}

func (m *Node) actOnContext(ctx context.Context, ref string, call *wire.Call) (*api.Context, error) {
	out := &api.Context{}
	if err := m.onProcesses(ctx, ref, call, out, api.StateRunning); err != nil {
		return nil, err
	}
	return out, nil
}

func validLanguage(l string) error {
	if _, ok := interp.ProgramOf(interp.Language(l)); !ok {
		return api.Invalid("language", "%q is not python, node or bash", l)
	}
	return nil
}

// RunCode runs one cell.
func (m *Node) RunCode(ctx context.Context, ref string, req api.RunCodeRequest, streams service.RunIO) (_ *api.RunResult, err error) {
	ctx, ended := m.observe(ctx, "run_code")
	defer ended(&err)
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	run, err := b.runOf(req)
	if err != nil {
		return nil, err
	}
	if err := m.mayRun(b); err != nil {
		return nil, fmt.Errorf("run code: %w", err)
	}
	sentry, done, err := m.use(ctx, b, api.StateRunning)
	if err != nil {
		return nil, fmt.Errorf("run code: %w", err)
	}
	defer done()
	a := &interpAnswer{results: streams.Result}
	stepped := m.stepping(ctx, b)
	began := time.Now()
	ran, err := sentry.Run(ctx, run, []byte(req.Code), launch.RunIO{Stdout: streams.Stdout, Stderr: streams.Stderr, Part: a.take})
	if err != nil {
		return nil, fmt.Errorf("run code: %w", m.explain(b, sentry, err))
	}
	m.firstUse(b, began)
	res, err := a.result(run.Context, ran)
	if err == nil {
		stepped(api.Step{Kind: api.StepRunCode, Command: req.Code, Context: res.Context, ExitCode: res.ExitCode})
		m.tellOf(api.EventRan, b, api.Event{Context: res.Context, ExitCode: &res.ExitCode})
	}
	return res, err
}

// runOf checks a request for a cell.
func (b *instance) runOf(req api.RunCodeRequest) (*wire.Run, error) {
	switch {
	case len(req.Code) > interp.MaxCode:
		return nil, api.Invalid("code", "it has %d bytes, more than %d", len(req.Code), interp.MaxCode)
	case strings.ContainsRune(req.Code, 0):
		return nil, api.Invalid("code", "it contains a NUL byte")
	case req.TimeoutMS < 0 || req.TimeoutMS > maxTimeoutMS:
		return nil, api.Invalid("timeout_ms", "%d is not a time from 0 to %d ms", req.TimeoutMS, int64(maxTimeoutMS))
	}
	run := &wire.Run{Context: req.Context, Kind: interp.KindCell, TimeoutMS: req.TimeoutMS}
	if named := req.Context != "" && !isLanguage(req.Context); named {
		if err := api.ValidName("context", req.Context); err != nil || req.Language == "" {
			return run, err
		}
	} else if req.Context != "" && req.Language != "" && req.Context != req.Language {
		return nil, api.Invalid("language", "the context %q is of %s", req.Context, req.Context)
	}
	language := cmp.Or(req.Language, req.Context, string(interp.Python))
	if err := validLanguage(language); err != nil {
		return nil, err
	}
	v := b.view()
	run.Context = cmp.Or(req.Context, language)
	run.Make = &wire.ContextSpec{Language: interp.Language(language), Cwd: v.Cwd, User: v.User}
	return run, nil
}

func isLanguage(name string) bool { return validLanguage(name) == nil }

// interpAnswer collects what an interpreter says about one run.
type interpAnswer struct {
	results func(map[string]json.RawMessage) error
	payload []byte
	done    *interp.Done
}

// take takes the next part. The sentry bounds results, and interp the payload.
func (a *interpAnswer) take(p interp.Part) error {
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
func (a *interpAnswer) result(name string, ran *wire.Ran) (*api.RunResult, error) {
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
