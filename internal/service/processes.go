package service

import (
	"context"
	"io"

	"ramet.dev/ramet/api"
)

// Processes is the commands and processes in sandboxes.
type Processes interface {
	// Exec runs a command to its end and copies its streams meanwhile. The result has
	// empty Stdout and Stderr. req.Stdin is empty: its text comes from streams.Stdin. When
	// ctx is cancelled, the command is killed. Exec must not write to the streams after it
	// returned, nor wait for a read of streams.Stdin: that read ends when Exec has
	// returned.
	Exec(ctx context.Context, ref string, req api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error)
	// Processes lists the processes that run, and with all also those that StartProcess
	// started and that have ended.
	Processes(ctx context.Context, ref string, all bool) ([]api.Process, error)
	Process(ctx context.Context, ref string, pid int) (*api.Process, error)
	// StartProcess starts a process in the background.
	StartProcess(ctx context.Context, ref string, req api.StartRequest) (*api.Process, error)
	// Attach copies the output of a process, and input to it. The process does not
	// notice when ctx is cancelled. Attach must not call streams.Output after it
	// returned, nor wait for a read of streams.Stdin.
	Attach(ctx context.Context, ref string, pid int, req api.AttachRequest, streams api.AttachIO) (*api.Position, error)
	// Logs calls each with the output of all processes that StartProcess started. With
	// follow it goes on with what they and later processes write, until ctx ends or the
	// sandbox is destroyed. It calls began before the first each.
	Logs(ctx context.Context, ref string, follow bool, began func(), each func(api.LogPiece) error) error
	WaitProcess(ctx context.Context, ref string, pid int) (*api.ExecResult, error)
	// WriteProcess writes all of in to a process, and with end closes its standard
	// input then. It blocks while the process does not read.
	WriteProcess(ctx context.Context, ref string, pid int, in io.Reader, end bool) error
	// SignalProcess sends a signal to any process in the sandbox.
	SignalProcess(ctx context.Context, ref string, pid int, req api.SignalRequest) error
	ResizeProcess(ctx context.Context, ref string, pid int, size api.TerminalSize) error
	// RemoveProcess kills a process with its group, if it runs, and drops its output.
	RemoveProcess(ctx context.Context, ref string, pid int) error
}
