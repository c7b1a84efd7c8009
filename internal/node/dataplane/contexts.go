package dataplane

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/engine/wire"
)

// contexts manages interpreters and runs code in them.
type contexts struct{ base }

// Contexts lists the interpreters in a sandbox.
func (p contexts) Contexts(ctx context.Context, ref string) ([]api.Context, error) {
	list := []api.Context{}
	return list, p.callRef(ctx, ref, &wire.Call{Op: wire.OpContexts}, &list, api.StateRunning, api.StatePaused)
}

// CreateContext starts an interpreter.
func (p contexts) CreateContext(ctx context.Context, ref string, req api.ContextRequest) (*api.Context, error) {
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	err = cmp.Or(validLanguage(req.Language), api.ValidEnv("env", req.Env), api.ValidDir("cwd", req.Cwd), api.ValidOptionalName("name", req.Name))
	if err != nil {
		return nil, err
	}
	v := b.View()
	call := &wire.Call{Op: wire.OpContext, Context: &wire.Context{Action: wire.ContextMake, Name: req.Name, ContextSpec: wire.ContextSpec{
		Language: interp.Language(req.Language), Cwd: cmp.Or(req.Cwd, v.Cwd), User: cmp.Or(req.User, v.User), Env: req.Env,
	}}}
	return p.actOnContext(ctx, ref, call)
}

// InterruptContext ends what a context runs, and reports whether it ran anything.
func (p contexts) InterruptContext(ctx context.Context, ref, name string) (bool, error) {
	var out wire.Interrupted
	err := p.callRef(ctx, ref, contextCall(wire.ContextInterrupt, name), &out, api.StateRunning)
	return out.Interrupted, err
}

// RestartContext gives a context a new interpreter.
func (p contexts) RestartContext(ctx context.Context, ref, name string) (*api.Context, error) {
	return p.actOnContext(ctx, ref, contextCall(wire.ContextRestart, name))
}

// DestroyContext ends a context.
func (p contexts) DestroyContext(ctx context.Context, ref, name string) error {
	return p.callRef(ctx, ref, contextCall(wire.ContextEnd, name), nil, api.StateRunning)
}

func contextCall(action wire.ContextAction, name string) *wire.Call {
	return &wire.Call{Op: wire.OpContext, Context: &wire.Context{Action: action, Name: name}}
}

func (p contexts) actOnContext(ctx context.Context, ref string, call *wire.Call) (*api.Context, error) {
	out := &api.Context{}
	if err := p.callRef(ctx, ref, call, out, api.StateRunning); err != nil {
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
func (p contexts) RunCode(ctx context.Context, ref string, req api.RunCodeRequest, streams api.RunIO) (_ *api.RunResult, err error) {
	ctx, ended := p.observe(ctx, "run_code")
	defer ended(&err)
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	run, err := runOf(b, req)
	if err != nil {
		return nil, err
	}
	if err := b.MayRun(); err != nil {
		return nil, fmt.Errorf("run code: %w", err)
	}
	sentry, release, err := b.Acquire(ctx, api.StateRunning)
	if err != nil {
		return nil, fmt.Errorf("run code: %w", err)
	}
	defer release()
	a := &answer{results: streams.Result}
	endStep := b.Step(ctx)
	began := time.Now()
	ran, err := sentry.Run(ctx, run, []byte(req.Code), api.Discard(streams.Stdout), api.Discard(streams.Stderr), a.take)
	if err != nil {
		return nil, fmt.Errorf("run code: %w", b.Explain(sentry, err))
	}
	b.FirstUse(began)
	res, err := a.result(run.Context, ran)
	if err == nil {
		endStep(api.Step{Kind: api.StepRunCode, Command: req.Code, Context: res.Context, ExitCode: res.ExitCode})
		b.Publish(api.EventRan, api.Event{Context: res.Context, ExitCode: &res.ExitCode})
	}
	return res, err
}

// runOf checks a request for a cell and completes it with the defaults of b.
func runOf(b Sandbox, req api.RunCodeRequest) (*wire.Run, error) {
	switch {
	case len(req.Code) > interp.MaxCode:
		return nil, api.Invalid("code", "it has %d bytes, more than %d", len(req.Code), interp.MaxCode)
	case strings.ContainsRune(req.Code, 0):
		return nil, api.Invalid("code", "it contains a NUL byte")
	}
	if err := api.ValidTimeout("timeout_ms", req.TimeoutMS); err != nil {
		return nil, err
	}
	run := &wire.Run{Context: req.Context, Kind: interp.KindCell, TimeoutMS: req.TimeoutMS}
	if req.Silent {
		run.Kind = interp.KindSilent
	}
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
	v := b.View()
	if req.Silent && language == string(interp.Bash) {
		return nil, api.Invalid("silent", "cells of bash have numbers")
	}
	run.Context = cmp.Or(req.Context, language)
	run.Make = &wire.ContextSpec{Language: interp.Language(language), Cwd: v.Cwd, User: v.User}
	return run, nil
}

func isLanguage(name string) bool { return validLanguage(name) == nil }
