package service

import (
	"context"

	"ramet.dev/ramet/api"
)

// Contexts is the stateful interpreters in sandboxes.
type Contexts interface {
	Contexts(ctx context.Context, ref string) ([]api.Context, error)
	CreateContext(ctx context.Context, ref string, req api.ContextRequest) (*api.Context, error)
	// InterruptContext reports whether anything was running.
	InterruptContext(ctx context.Context, ref, name string) (bool, error)
	RestartContext(ctx context.Context, ref, name string) (*api.Context, error)
	DestroyContext(ctx context.Context, ref, name string) error
	// RunCode runs one cell, after the cells that came before. The result has empty
	// Stdout, Stderr and Results. When ctx is cancelled, the cell is
	// interrupted, and its interpreter killed if it goes on.
	RunCode(ctx context.Context, ref string, req api.RunCodeRequest, streams api.RunIO) (*api.RunResult, error)
}
