package apitest

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
)

// ProcessFuncs is a service.Processes made of functions. Those that are nil
// fail.
type ProcessFuncs struct {
	ProcessesFunc     func(context.Context, string, bool) ([]api.Process, error)
	ProcessFunc       func(context.Context, string, int) (*api.Process, error)
	StartProcessFunc  func(context.Context, string, api.StartRequest) (*api.Process, error)
	AttachFunc        func(context.Context, string, int, api.AttachRequest, api.AttachIO) (*api.Position, error)
	LogsFunc          func(context.Context, string, bool, func(), func(api.LogPiece) error) error
	WaitProcessFunc   func(context.Context, string, int) (*api.ExecResult, error)
	WriteProcessFunc  func(context.Context, string, int, io.Reader, bool) error
	SignalProcessFunc func(context.Context, string, int, api.SignalRequest) error
	ResizeProcessFunc func(context.Context, string, int, api.TerminalSize) error
	RemoveProcessFunc func(context.Context, string, int) error
}

// Processes implements service.Processes.
func (s *ProcessFuncs) Processes(ctx context.Context, ref string, all bool) ([]api.Process, error) {
	return call(s.ProcessesFunc != nil, func() ([]api.Process, error) { return s.ProcessesFunc(ctx, ref, all) })
}

// Process implements service.Processes.
func (s *ProcessFuncs) Process(ctx context.Context, ref string, pid int) (*api.Process, error) {
	return call(s.ProcessFunc != nil, func() (*api.Process, error) { return s.ProcessFunc(ctx, ref, pid) })
}

// StartProcess implements service.Processes.
func (s *ProcessFuncs) StartProcess(ctx context.Context, ref string, req api.StartRequest) (*api.Process, error) {
	return call(s.StartProcessFunc != nil, func() (*api.Process, error) { return s.StartProcessFunc(ctx, ref, req) })
}

// Attach implements service.Processes.
func (s *ProcessFuncs) Attach(ctx context.Context, ref string, pid int, req api.AttachRequest, streams api.AttachIO) (*api.Position, error) {
	return call(s.AttachFunc != nil, func() (*api.Position, error) { return s.AttachFunc(ctx, ref, pid, req, streams) })
}

// Logs implements service.Processes.
func (s *ProcessFuncs) Logs(ctx context.Context, ref string, follow bool, began func(), each func(api.LogPiece) error) error {
	_, err := call(s.LogsFunc != nil, func() (struct{}, error) { return struct{}{}, s.LogsFunc(ctx, ref, follow, began, each) })
	return err
}

// WaitProcess implements service.Processes.
func (s *ProcessFuncs) WaitProcess(ctx context.Context, ref string, pid int) (*api.ExecResult, error) {
	return call(s.WaitProcessFunc != nil, func() (*api.ExecResult, error) { return s.WaitProcessFunc(ctx, ref, pid) })
}

// WriteProcess implements service.Processes.
func (s *ProcessFuncs) WriteProcess(ctx context.Context, ref string, pid int, in io.Reader, end bool) error {
	return do(s.WriteProcessFunc != nil, func() error { return s.WriteProcessFunc(ctx, ref, pid, in, end) })
}

// SignalProcess implements service.Processes.
func (s *ProcessFuncs) SignalProcess(ctx context.Context, ref string, pid int, req api.SignalRequest) error {
	return do(s.SignalProcessFunc != nil, func() error { return s.SignalProcessFunc(ctx, ref, pid, req) })
}

// ResizeProcess implements service.Processes.
func (s *ProcessFuncs) ResizeProcess(ctx context.Context, ref string, pid int, size api.TerminalSize) error {
	return do(s.ResizeProcessFunc != nil, func() error { return s.ResizeProcessFunc(ctx, ref, pid, size) })
}

// RemoveProcess implements service.Processes.
func (s *ProcessFuncs) RemoveProcess(ctx context.Context, ref string, pid int) error {
	return do(s.RemoveProcessFunc != nil, func() error { return s.RemoveProcessFunc(ctx, ref, pid) })
}

func do(set bool, f func() error) error {
	if !set {
		return errUnset
	}
	return f()
}
