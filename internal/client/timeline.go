package client

import (
	"context"
	"net/http"

	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/sandbox"
)

// Timeline returns the steps of a sandbox, the first one first.
func (c *Client) Timeline(ctx context.Context, ref string) ([]sandbox.Step, error) {
	l, err := on[httpwire.List[sandbox.Step]](ctx, c, http.MethodGet, "sandboxes", ref, "/timeline", nil, nil)
	return l.Items, err
}

// Rewind returns a sandbox to a step of its timeline.
func (c *Client) Rewind(ctx context.Context, ref string, step int) (*sandbox.Sandbox, error) {
	return on[*sandbox.Sandbox](ctx, c, http.MethodPost, "sandboxes", ref, "/rollback", nil, httpwire.RollbackRequest{Step: &step})
}

// Bisect finds the first step at which a command fails.
func (c *Client) Bisect(ctx context.Context, ref string, req sandbox.BisectRequest) (*sandbox.BisectResult, error) {
	return on[*sandbox.BisectResult](ctx, c, http.MethodPost, "sandboxes", ref, "/bisect", nil, req)
}
