package apitest

import (
	"context"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// ContextFuncs is an httpapi.ContextService made of functions. Those that are nil
// fail.
type ContextFuncs struct {
	ContextsFunc         func(context.Context, string) ([]sandbox.Context, error)
	CreateContextFunc    func(context.Context, string, sandbox.ContextRequest) (*sandbox.Context, error)
	InterruptContextFunc func(context.Context, string, string) (bool, error)
	RestartContextFunc   func(context.Context, string, string) (*sandbox.Context, error)
	DestroyContextFunc   func(context.Context, string, string) error
	RunCodeFunc          func(context.Context, string, sandbox.RunCodeRequest, httpapi.RunIO) (*sandbox.RunResult, error)
}

// Contexts implements httpapi.ContextService.
func (s *ContextFuncs) Contexts(ctx context.Context, ref string) ([]sandbox.Context, error) {
	return call(s.ContextsFunc != nil, func() ([]sandbox.Context, error) { return s.ContextsFunc(ctx, ref) })
}

// CreateContext implements httpapi.ContextService.
func (s *ContextFuncs) CreateContext(ctx context.Context, ref string, req sandbox.ContextRequest) (*sandbox.Context, error) {
	return call(s.CreateContextFunc != nil, func() (*sandbox.Context, error) { return s.CreateContextFunc(ctx, ref, req) })
}

// InterruptContext implements httpapi.ContextService.
func (s *ContextFuncs) InterruptContext(ctx context.Context, ref, name string) (bool, error) {
	return call(s.InterruptContextFunc != nil, func() (bool, error) { return s.InterruptContextFunc(ctx, ref, name) })
}

// RestartContext implements httpapi.ContextService.
func (s *ContextFuncs) RestartContext(ctx context.Context, ref, name string) (*sandbox.Context, error) {
	return call(s.RestartContextFunc != nil, func() (*sandbox.Context, error) { return s.RestartContextFunc(ctx, ref, name) })
}

// DestroyContext implements httpapi.ContextService.
func (s *ContextFuncs) DestroyContext(ctx context.Context, ref, name string) error {
	return do(s.DestroyContextFunc != nil, func() error { return s.DestroyContextFunc(ctx, ref, name) })
}

// RunCode implements httpapi.ContextService.
func (s *ContextFuncs) RunCode(ctx context.Context, ref string, req sandbox.RunCodeRequest, streams httpapi.RunIO) (*sandbox.RunResult, error) {
	return call(s.RunCodeFunc != nil, func() (*sandbox.RunResult, error) { return s.RunCodeFunc(ctx, ref, req, streams) })
}
