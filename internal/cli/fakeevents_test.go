package cli_test

import (
	"context"
	"slices"
	"time"

	"ramet.dev/ramet/internal/sandbox"
)

func fakeEvents(_ context.Context, req sandbox.EventRequest, began func(), each func(sandbox.Event) error) error {
	if req.Sandbox == "nobody" {
		return sandbox.NotFound("sandbox", req.Sandbox)
	}
	began()
	if req.Since > 7 {
		return each(sandbox.Event{Seq: 4, Restarted: true})
	}
	code, at := 3, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, e := range []sandbox.Event{
		{Seq: 4, Lost: 4},
		{Seq: 5, Time: at, Kind: sandbox.EventCreated, SandboxID: "sbx_a", Name: "base", Parent: "sbx_b"},
		{Seq: 6, Time: at, Kind: sandbox.EventExecuted, SandboxID: "sbx_a", ExitCode: &code},
		{Seq: 7, Time: at, Kind: sandbox.EventFailed, SandboxID: "sbx_a", Reason: "init exited"},
	} {
		if e.Seq > req.Since && (len(req.Kinds) == 0 || slices.Contains(req.Kinds, e.Kind)) {
			if err := each(e); err != nil {
				return err
			}
		}
	}
	return nil
}
