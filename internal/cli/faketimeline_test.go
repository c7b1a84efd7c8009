package cli_test

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

func fakeTimeline() apitest.TimelineFuncs {
	steps := []api.Step{
		{Step: 0, Kind: api.StepStart, At: created, State: api.SnapshotReady, SizeBytes: 3 << 20},
		{Step: 1, Kind: api.StepExec, Command: "make test\n all", ExitCode: 3, At: created, State: api.SnapshotUploading, Current: true},
	}
	return apitest.TimelineFuncs{
		TimelineFunc: func(context.Context, string) ([]api.Step, error) { return steps, nil },
		RewindFunc: func(ctx context.Context, ref string, step int) (*api.Sandbox, error) {
			if step >= len(steps) {
				return nil, api.Errorf(api.CodeNotFound, "no step %d", step)
			}
			return find(ctx, ref)
		},
		BisectFunc: func(_ context.Context, _ string, req api.BisectRequest) (*api.BisectResult, error) {
			if len(req.Argv) == 1 {
				return &api.BisectResult{Tried: []api.Try{{Step: 1}}}, nil
			}
			res := &api.BisectResult{First: &steps[1], ExitCode: 2, Stdout: "one\n\ttwo\x1b\r\n", Stderr: "no\n", Tried: []api.Try{{Step: 1, ExitCode: 2}, {Step: 0}}}
			switch req.Shell {
			case "always":
				res.First, res.Tried = &steps[0], []api.Try{{Step: 1, ExitCode: 2}, {Step: 0, TimedOut: true}}
			case "since then":
				res.Tried = res.Tried[:1]
			}
			return res, nil
		},
	}
}
