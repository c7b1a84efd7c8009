package apitest

import (
	"context"

	"ramet.dev/ramet/api"
)

// TimelineFuncs are the functions of a Service that are about timelines.
type TimelineFuncs struct {
	RewindFunc   func(context.Context, string, int) (*api.Sandbox, error)
	TimelineFunc func(context.Context, string) ([]api.Step, error)
	BisectFunc   func(context.Context, string, api.BisectRequest) (*api.BisectResult, error)
}

// Rewind implements service.Timeline.
func (f *TimelineFuncs) Rewind(ctx context.Context, ref string, step int) (*api.Sandbox, error) {
	return call(f.RewindFunc != nil, func() (*api.Sandbox, error) { return f.RewindFunc(ctx, ref, step) })
}

// Timeline implements service.Timeline.
func (f *TimelineFuncs) Timeline(ctx context.Context, ref string) ([]api.Step, error) {
	return call(f.TimelineFunc != nil, func() ([]api.Step, error) { return f.TimelineFunc(ctx, ref) })
}

// Bisect implements service.Timeline.
func (f *TimelineFuncs) Bisect(ctx context.Context, ref string, req api.BisectRequest) (*api.BisectResult, error) {
	return call(f.BisectFunc != nil, func() (*api.BisectResult, error) { return f.BisectFunc(ctx, ref, req) })
}
