package cli_test

import (
	"context"

	"ramet.dev/ramet/internal/httpapi/apitest"
	"ramet.dev/ramet/internal/sandbox"
)

func fakeTimeline() apitest.TimelineFuncs {
	steps := []sandbox.Step{
		{Step: 0, Kind: sandbox.StepStart, At: created, State: sandbox.SnapshotReady, SizeBytes: 3 << 20},
		{Step: 1, Kind: sandbox.StepExec, Command: "make test\n all", ExitCode: 3, At: created, State: sandbox.SnapshotUploading, Current: true},
	}
	return apitest.TimelineFuncs{
		TimelineFunc: func(context.Context, string) ([]sandbox.Step, error) { return steps, nil },
		RewindFunc: func(ctx context.Context, ref string, step int) (*sandbox.Sandbox, error) {
			if step >= len(steps) {
				return nil, sandbox.Errorf(sandbox.CodeNotFound, "no step %d", step)
			}
			return find(ctx, ref)
		},
		BisectFunc: func(_ context.Context, _ string, req sandbox.BisectRequest) (*sandbox.BisectResult, error) {
			if len(req.Argv) == 1 {
				return &sandbox.BisectResult{Tried: []sandbox.Try{{Step: 1}}}, nil
			}
			res := &sandbox.BisectResult{First: &steps[1], ExitCode: 2, Stdout: "one\n\ttwo\x1b\r\n", Stderr: "no\n", Tried: []sandbox.Try{{Step: 1, ExitCode: 2}, {Step: 0}}}
			switch req.Shell {
			case "always":
				res.First, res.Tried = &steps[0], []sandbox.Try{{Step: 1, ExitCode: 2}, {Step: 0, TimedOut: true}}
			case "since then":
				res.Tried = res.Tried[:1]
			}
			return res, nil
		},
	}
}
