package client

import (
	"context"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Secrets manages texts that the daemon puts into requests of sandboxes, which never have them.
type Secrets struct{ conn *connection }

// List returns the secrets without their values, in the order of their names.
func (s *Secrets) List(ctx context.Context) ([]api.Secret, error) {
	l, err := get[httpwire.List[api.Secret]](ctx, s.conn, "/v1/secrets", nil)
	return l.Items, err
}

// Set makes a secret or replaces it.
func (s *Secrets) Set(ctx context.Context, name string, req api.SecretRequest) (*api.Secret, error) {
	return on[*api.Secret](ctx, s.conn, http.MethodPut, "secrets", name, "", nil, req)
}

// Remove removes a secret.
func (s *Secrets) Remove(ctx context.Context, name string) error {
	_, err := on[struct{}](ctx, s.conn, http.MethodDelete, "secrets", name, "", nil, nil)
	return err
}

// Held decides about requests of sandboxes that wait.
type Held struct{ conn *connection }

// List returns the requests of a sandbox that are or were held.
func (h *Held) List(ctx context.Context, ref string) ([]api.HeldRequest, error) {
	l, err := on[httpwire.List[api.HeldRequest]](ctx, h.conn, http.MethodGet, "sandboxes", ref, "/held", nil, nil)
	return l.Items, err
}

// Release sends one request or all that wait, and returns when the servers have answered.
func (h *Held) Release(ctx context.Context, ref string, req api.HeldRelease) ([]api.HeldRequest, error) {
	l, err := on[httpwire.List[api.HeldRequest]](ctx, h.conn, http.MethodPost, "sandboxes", ref, "/held/release", nil, req)
	return l.Items, err
}

// Drop makes sure that one request is never sent, or all that wait are not.
func (h *Held) Drop(ctx context.Context, ref string, req api.HeldDrop) ([]api.HeldRequest, error) {
	l, err := on[httpwire.List[api.HeldRequest]](ctx, h.conn, http.MethodPost, "sandboxes", ref, "/held/drop", nil, req)
	return l.Items, err
}
