package client

import (
	"context"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Timeline returns the recorded steps of a sandbox, the first one first.
func (s *Sandboxes) Timeline(ctx context.Context, ref string) ([]api.Step, error) {
	l, err := on[httpwire.List[api.Step]](ctx, s.conn, http.MethodGet, "sandboxes", ref, "/timeline", nil, nil)
	return l.Items, err
}

// Rewind returns a sandbox to a step of its timeline.
func (s *Sandboxes) Rewind(ctx context.Context, ref string, step int) (*api.Sandbox, error) {
	return on[*api.Sandbox](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/rollback", nil, httpwire.RollbackRequest{Step: &step})
}

// Bisect finds the first step at which a command fails.
func (s *Sandboxes) Bisect(ctx context.Context, ref string, req api.BisectRequest) (*api.BisectResult, error) {
	return on[*api.BisectResult](ctx, s.conn, http.MethodPost, "sandboxes", ref, "/bisect", nil, req)
}
