package apitest

import (
	"context"

	"ramet.dev/ramet/internal/sandbox"
)

// TimelineFuncs are the functions of a Service that are about timelines.
type TimelineFuncs struct {
	RewindFunc   func(context.Context, string, int) (*sandbox.Sandbox, error)
	TimelineFunc func(context.Context, string) ([]sandbox.Step, error)
	BisectFunc   func(context.Context, string, sandbox.BisectRequest) (*sandbox.BisectResult, error)
}

// Rewind implements httpapi.Service.
func (f *TimelineFuncs) Rewind(ctx context.Context, ref string, step int) (*sandbox.Sandbox, error) {
	return call(f.RewindFunc != nil, func() (*sandbox.Sandbox, error) { return f.RewindFunc(ctx, ref, step) })
}

// Timeline implements httpapi.Service.
func (f *TimelineFuncs) Timeline(ctx context.Context, ref string) ([]sandbox.Step, error) {
	return call(f.TimelineFunc != nil, func() ([]sandbox.Step, error) { return f.TimelineFunc(ctx, ref) })
}

// Bisect implements httpapi.Service.
func (f *TimelineFuncs) Bisect(ctx context.Context, ref string, req sandbox.BisectRequest) (*sandbox.BisectResult, error) {
	return call(f.BisectFunc != nil, func() (*sandbox.BisectResult, error) { return f.BisectFunc(ctx, ref, req) })
}
