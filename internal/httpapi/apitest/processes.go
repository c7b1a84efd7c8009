package apitest

import (
	"context"
	"io"

	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// ProcessFuncs is an httpapi.ProcessService made of functions. Those that are nil
// fail.
type ProcessFuncs struct {
	ProcessesFunc     func(context.Context, string, bool) ([]sandbox.Process, error)
	ProcessFunc       func(context.Context, string, int) (*sandbox.Process, error)
	StartProcessFunc  func(context.Context, string, sandbox.StartRequest) (*sandbox.Process, error)
	AttachFunc        func(context.Context, string, int, sandbox.AttachRequest, httpapi.AttachIO) (*sandbox.Position, error)
	LogsFunc          func(context.Context, string, bool, func(), func(sandbox.LogPiece) error) error
	WaitProcessFunc   func(context.Context, string, int) (*sandbox.ExecResult, error)
	WriteProcessFunc  func(context.Context, string, int, io.Reader, bool) error
	SignalProcessFunc func(context.Context, string, int, sandbox.SignalRequest) error
	ResizeProcessFunc func(context.Context, string, int, sandbox.TerminalSize) error
	RemoveProcessFunc func(context.Context, string, int) error
}

// Processes implements httpapi.ProcessService.
func (s *ProcessFuncs) Processes(ctx context.Context, ref string, all bool) ([]sandbox.Process, error) {
	return call(s.ProcessesFunc != nil, func() ([]sandbox.Process, error) { return s.ProcessesFunc(ctx, ref, all) })
}

// Process implements httpapi.ProcessService.
func (s *ProcessFuncs) Process(ctx context.Context, ref string, pid int) (*sandbox.Process, error) {
	return call(s.ProcessFunc != nil, func() (*sandbox.Process, error) { return s.ProcessFunc(ctx, ref, pid) })
}

// StartProcess implements httpapi.ProcessService.
func (s *ProcessFuncs) StartProcess(ctx context.Context, ref string, req sandbox.StartRequest) (*sandbox.Process, error) {
	return call(s.StartProcessFunc != nil, func() (*sandbox.Process, error) { return s.StartProcessFunc(ctx, ref, req) })
}

// Attach implements httpapi.ProcessService.
func (s *ProcessFuncs) Attach(ctx context.Context, ref string, pid int, req sandbox.AttachRequest, streams httpapi.AttachIO) (*sandbox.Position, error) {
	return call(s.AttachFunc != nil, func() (*sandbox.Position, error) { return s.AttachFunc(ctx, ref, pid, req, streams) })
}

// Logs implements httpapi.ProcessService.
func (s *ProcessFuncs) Logs(ctx context.Context, ref string, follow bool, began func(), each func(sandbox.LogPiece) error) error {
	_, err := call(s.LogsFunc != nil, func() (struct{}, error) { return struct{}{}, s.LogsFunc(ctx, ref, follow, began, each) })
	return err
}

// WaitProcess implements httpapi.ProcessService.
func (s *ProcessFuncs) WaitProcess(ctx context.Context, ref string, pid int) (*sandbox.ExecResult, error) {
	return call(s.WaitProcessFunc != nil, func() (*sandbox.ExecResult, error) { return s.WaitProcessFunc(ctx, ref, pid) })
}

// WriteProcess implements httpapi.ProcessService.
func (s *ProcessFuncs) WriteProcess(ctx context.Context, ref string, pid int, in io.Reader, end bool) error {
	return do(s.WriteProcessFunc != nil, func() error { return s.WriteProcessFunc(ctx, ref, pid, in, end) })
}

// SignalProcess implements httpapi.ProcessService.
func (s *ProcessFuncs) SignalProcess(ctx context.Context, ref string, pid int, req sandbox.SignalRequest) error {
	return do(s.SignalProcessFunc != nil, func() error { return s.SignalProcessFunc(ctx, ref, pid, req) })
}

// ResizeProcess implements httpapi.ProcessService.
func (s *ProcessFuncs) ResizeProcess(ctx context.Context, ref string, pid int, size sandbox.TerminalSize) error {
	return do(s.ResizeProcessFunc != nil, func() error { return s.ResizeProcessFunc(ctx, ref, pid, size) })
}

// RemoveProcess implements httpapi.ProcessService.
func (s *ProcessFuncs) RemoveProcess(ctx context.Context, ref string, pid int) error {
	return do(s.RemoveProcessFunc != nil, func() error { return s.RemoveProcessFunc(ctx, ref, pid) })
}

func do(set bool, f func() error) error {
	if !set {
		return errUnset
	}
	return f()
}
