package service

import (
	"context"

	"ramet.dev/ramet/api"
)

// Timeline is the recorded steps of a sandbox.
type Timeline interface {
	// Timeline returns the steps of a sandbox, the first one first.
	Timeline(ctx context.Context, ref string) ([]api.Step, error)
	// Rewind returns a sandbox to a step of its timeline.
	Rewind(ctx context.Context, ref string, step int) (*api.Sandbox, error)
	// Bisect finds the first step at which a command fails. A command that fails at no
	// step is a result, not an error.
	Bisect(ctx context.Context, ref string, req api.BisectRequest) (*api.BisectResult, error)
}
