package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/interp"
	"ramet.dev/ramet/internal/launch"
	"ramet.dev/ramet/internal/sandbox"
	"ramet.dev/ramet/internal/wire"
)

// Contexts lists the interpreters in a sandbox.
func (m *Manager) Contexts(ctx context.Context, ref string) ([]sandbox.Context, error) {
	list := []sandbox.Context{}
	return list, m.onProcesses(ctx, ref, &wire.Call{Op: wire.OpContexts}, &list, sandbox.StateRunning, sandbox.StatePaused)
}

// CreateContext starts an interpreter.
func (m *Manager) CreateContext(ctx context.Context, ref string, req sandbox.ContextRequest) (*sandbox.Context, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(validLanguage(req.Language), validEnv(req.Env)); err != nil {
		return nil, err
	}
	if req.Cwd != "" && !path.IsAbs(req.Cwd) {
		return nil, sandbox.Invalid("cwd", "%q is not an absolute path", req.Cwd)
	}
	if req.Name != "" {
		if err := sandbox.ValidName("name", req.Name); err != nil {
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
func (m *Manager) InterruptContext(ctx context.Context, ref, name string) (bool, error) {
	var out wire.Interrupted
	err := m.onProcesses(ctx, ref, contextCall(wire.ContextInterrupt, name), &out, sandbox.StateRunning)
	return out.Interrupted, err
}

// RestartContext gives a context a new interpreter.
func (m *Manager) RestartContext(ctx context.Context, ref, name string) (*sandbox.Context, error) {
	return m.actOnContext(ctx, ref, contextCall(wire.ContextRestart, name))
}

// DestroyContext ends a context.
func (m *Manager) DestroyContext(ctx context.Context, ref, name string) error {
	return m.onProcesses(ctx, ref, contextCall(wire.ContextEnd, name), nil, sandbox.StateRunning)
}

func contextCall(action wire.ContextAction, name string) *wire.Call {
	return &wire.Call{Op: wire.OpContext, Context: &wire.Context{Action: action, Name: name}}
}

func (m *Manager) actOnContext(ctx context.Context, ref string, call *wire.Call) (*sandbox.Context, error) {
	out := &sandbox.Context{}
	if err := m.onProcesses(ctx, ref, call, out, sandbox.StateRunning); err != nil {
		return nil, err
	}
	return out, nil
}

func validLanguage(l string) error {
	if _, ok := interp.ProgramOf(interp.Language(l)); !ok {
		return sandbox.Invalid("language", "%q is not python, node or bash", l)
	}
	return nil
}

// RunCode runs one cell.
func (m *Manager) RunCode(ctx context.Context, ref string, req sandbox.RunCodeRequest, streams httpapi.RunIO) (_ *sandbox.RunResult, err error) {
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
	sentry, done, err := m.use(ctx, b, sandbox.StateRunning)
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
		stepped(sandbox.Step{Kind: sandbox.StepRunCode, Command: req.Code, Context: res.Context, ExitCode: res.ExitCode})
		m.tellOf(sandbox.EventRan, b, sandbox.Event{Context: res.Context, ExitCode: &res.ExitCode})
	}
	return res, err
}

// runOf checks a request for a cell.
func (b *box) runOf(req sandbox.RunCodeRequest) (*wire.Run, error) {
	switch {
	case len(req.Code) > interp.MaxCode:
		return nil, sandbox.Invalid("code", "it has %d bytes, more than %d", len(req.Code), interp.MaxCode)
	case strings.ContainsRune(req.Code, 0):
		return nil, sandbox.Invalid("code", "it contains a NUL byte")
	case req.TimeoutMS < 0 || req.TimeoutMS > maxTimeoutMS:
		return nil, sandbox.Invalid("timeout_ms", "%d is not a time from 0 to %d ms", req.TimeoutMS, int64(maxTimeoutMS))
	}
	run := &wire.Run{Context: req.Context, Kind: interp.KindCell, TimeoutMS: req.TimeoutMS}
	if named := req.Context != "" && !isLanguage(req.Context); named {
		if err := sandbox.ValidName("context", req.Context); err != nil || req.Language == "" {
			return run, err
		}
	} else if req.Context != "" && req.Language != "" && req.Context != req.Language {
		return nil, sandbox.Invalid("language", "the context %q is of %s", req.Context, req.Context)
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
		return sandbox.Errorf(sandbox.CodeInternal, "an answer is longer than any may be")
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
			d = &interp.Done{ExitCode: 1, Error: &interp.Error{Name: sandbox.ContextDied, Value: err.Error()}}
		}
		a.done = d
	}
	return nil
}

// result returns the outcome of a cell.
func (a *interpAnswer) result(name string, ran *wire.Ran) (*sandbox.RunResult, error) {
	out := &sandbox.RunResult{Context: name}
	out.TimedOut, out.DurationMS, out.Truncated = ran.TimedOut, ran.DurationMS, ran.Truncated
	switch {
	case ran.Died != nil:
		out.ExitCode, out.Signal = ran.Died.Code, ran.Died.Signal
		how := fmt.Sprintf("exit code %d", ran.Died.Code)
		if ran.Died.Signal != "" {
			how = ran.Died.Signal
		}
		out.Error = &sandbox.RunError{Name: sandbox.ContextDied, Value: "the interpreter ended with " + how + "; the next run starts a new one, without what this one had"}
	case a.done == nil:
		return nil, sandbox.Errorf(sandbox.CodeInternal, "the interpreter of context %s gave no answer", name)
	default:
		d := a.done
		out.ExitCode, out.ExecutionCount = d.ExitCode, d.ExecutionCount
		out.Truncated = out.Truncated || d.Truncated
		if d.Result != nil {
			out.Result = *d.Result
		}
		if d.Error != nil {
			out.Error = &sandbox.RunError{Name: d.Error.Name, Value: d.Error.Value, Traceback: d.Error.Traceback}
		}
	}
	out.OK = out.ExitCode == 0 && out.Error == nil
	return out, nil
}
