package cli_test

import (
	"context"
	"slices"
	"time"

	"ramet.dev/ramet/api"
)

func fakeEvents(_ context.Context, req api.EventRequest, began func(), each func(api.Event) error) error {
	if req.Sandbox == "nobody" {
		return api.NotFound("sandbox", req.Sandbox)
	}
	began()
	if req.Since > 7 {
		return each(api.Event{Seq: 4, Restarted: true})
	}
	code, at := 3, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, e := range []api.Event{
		{Seq: 4, Lost: 4},
		{Seq: 5, Time: at, Kind: api.EventCreated, SandboxID: "sbx_a", Name: "base", Parent: "sbx_b"},
		{Seq: 6, Time: at, Kind: api.EventExecuted, SandboxID: "sbx_a", ExitCode: &code},
		{Seq: 7, Time: at, Kind: api.EventFailed, SandboxID: "sbx_a", Reason: "init exited"},
	} {
		if e.Seq > req.Since && (len(req.Kinds) == 0 || slices.Contains(req.Kinds, e.Kind)) {
			if err := each(e); err != nil {
				return err
			}
		}
	}
	return nil
}
