package dataplane

import (
	"cmp"
	"context"
	"fmt"
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
	if err := req.Valid(); err != nil {
		return nil, err
	}
	command := commandOf(b, api.StartRequest{
		Argv: req.Argv, Shell: req.Shell, Env: req.Env, Cwd: req.Cwd, User: req.User, TimeoutMS: req.TimeoutMS,
	})
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

// commandOf returns the command that a valid request asks for, with the defaults of b.
func commandOf(b Sandbox, req api.StartRequest) *wire.Exec {
	argv, _ := api.CommandArgv(req.Argv, req.Shell) // the request is valid
	v := b.View()
	return &wire.Exec{
		Argv: argv, Env: req.Env, Cwd: cmp.Or(req.Cwd, v.Cwd), User: cmp.Or(req.User, v.User),
		Stdin: req.Stdin, Terminal: req.Terminal, TimeoutMS: req.TimeoutMS, IdleTimeoutMS: req.IdleTimeoutMS, Keep: req.KeepKiB << 10,
	}
}
