package apitest

import (
	"context"

	"ramet.dev/ramet/api"
)

// ContextFuncs is a service.Contexts made of functions. Those that are nil
// fail.
type ContextFuncs struct {
	ContextsFunc         func(context.Context, string) ([]api.Context, error)
	CreateContextFunc    func(context.Context, string, api.ContextRequest) (*api.Context, error)
	InterruptContextFunc func(context.Context, string, string) (bool, error)
	RestartContextFunc   func(context.Context, string, string) (*api.Context, error)
	DestroyContextFunc   func(context.Context, string, string) error
	RunCodeFunc          func(context.Context, string, api.RunCodeRequest, api.RunIO) (*api.RunResult, error)
}

// Contexts implements service.Contexts.
func (s *ContextFuncs) Contexts(ctx context.Context, ref string) ([]api.Context, error) {
	return call(s.ContextsFunc != nil, func() ([]api.Context, error) { return s.ContextsFunc(ctx, ref) })
}

// CreateContext implements service.Contexts.
func (s *ContextFuncs) CreateContext(ctx context.Context, ref string, req api.ContextRequest) (*api.Context, error) {
	return call(s.CreateContextFunc != nil, func() (*api.Context, error) { return s.CreateContextFunc(ctx, ref, req) })
}

// InterruptContext implements service.Contexts.
func (s *ContextFuncs) InterruptContext(ctx context.Context, ref, name string) (bool, error) {
	return call(s.InterruptContextFunc != nil, func() (bool, error) { return s.InterruptContextFunc(ctx, ref, name) })
}

// RestartContext implements service.Contexts.
func (s *ContextFuncs) RestartContext(ctx context.Context, ref, name string) (*api.Context, error) {
	return call(s.RestartContextFunc != nil, func() (*api.Context, error) { return s.RestartContextFunc(ctx, ref, name) })
}

// DestroyContext implements service.Contexts.
func (s *ContextFuncs) DestroyContext(ctx context.Context, ref, name string) error {
	return do(s.DestroyContextFunc != nil, func() error { return s.DestroyContextFunc(ctx, ref, name) })
}

// RunCode implements service.Contexts.
func (s *ContextFuncs) RunCode(ctx context.Context, ref string, req api.RunCodeRequest, streams api.RunIO) (*api.RunResult, error) {
	return call(s.RunCodeFunc != nil, func() (*api.RunResult, error) { return s.RunCodeFunc(ctx, ref, req, streams) })
}
