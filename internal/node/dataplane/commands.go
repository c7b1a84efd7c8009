package dataplane

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// commands runs commands for callers that wait for them.
type commands struct{ base }

// Exec runs a command in a running sandbox.
func (p commands) Exec(ctx context.Context, ref string, req api.ExecRequest, streams api.ExecIO) (_ *api.ExecResult, err error) {
	ctx, ended := p.observe(ctx, "exec")
	defer ended(&err)
	b, err := p.sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	command, err := commandOf(b, api.StartRequest{
		Argv: req.Argv, Shell: req.Shell, Env: req.Env, Cwd: req.Cwd, User: req.User, TimeoutMS: req.TimeoutMS,
	})
	if err != nil {
		return nil, err
	}
	command.Key = req.Key
	if req.From != nil {
		command.From = *req.From
	} else if err := b.MayRun(); err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	sentry, release, err := b.Acquire(ctx, api.StateRunning)
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	defer release()
	endStep := b.Step(ctx)
	began := time.Now()
	run := sentry.Exec
	if req.From != nil {
		run = sentry.ResumeExec
	}
	exited, err := run(ctx, command, streams)
	if err != nil {
		return nil, fmt.Errorf("exec: %w", b.Explain(sentry, err))
	}
	b.FirstUse(began)
	res := exited.Result()
	endStep(api.Step{Kind: api.StepExec, Command: api.CommandText(req.Argv, req.Shell), ExitCode: res.ExitCode})
	b.Publish(api.EventExecuted, api.Event{ExitCode: &res.ExitCode})
	return res, nil
}

// commandOf checks a request for a process and completes it with the defaults of b.
func commandOf(b Sandbox, req api.StartRequest) (*wire.Exec, error) {
	argv, err := api.CommandArgv(req.Argv, req.Shell)
	if err != nil {
		return nil, err
	}
	if err := api.ValidEnv("env", req.Env); err != nil {
		return nil, err
	}
	if req.Cwd != "" && !strings.HasPrefix(req.Cwd, "/") {
		return nil, api.Invalid("cwd", "%q is not an absolute path", req.Cwd)
	}
	if err := cmp.Or(api.ValidTimeout("timeout_ms", req.TimeoutMS), api.ValidTimeout("idle_timeout_ms", req.IdleTimeoutMS)); err != nil {
		return nil, err
	}
	v := b.View()
	return &wire.Exec{
		Argv: argv, Env: req.Env, Cwd: cmp.Or(req.Cwd, v.Cwd), User: cmp.Or(req.User, v.User),
		Stdin: req.Stdin, Terminal: req.Terminal, TimeoutMS: req.TimeoutMS, IdleTimeoutMS: req.IdleTimeoutMS, Keep: req.KeepKiB << 10,
	}, nil
}
