package client

import (
	"context"
	"net/http"
	"net/url"

	"ramet.dev/ramet/api"
)

// Tokens manages access tokens.
type Tokens struct{ conn *connection }

// Create makes a token and returns it with its secret, which is told only here.
func (s *Tokens) Create(ctx context.Context, req api.TokenRequest) (*api.IssuedToken, error) {
	return call[*api.IssuedToken](ctx, s.conn, http.MethodPost, "/v1/tokens", nil, req)
}

// List returns all tokens, or those of one tenant, the oldest first.
func (s *Tokens) List(ctx context.Context, tenant string) ([]api.Token, error) {
	query := url.Values{}
	if tenant != "" {
		query.Set("tenant", tenant)
	}
	return all[api.Token](ctx, s.conn, "/v1/tokens", query)
}

// Rotate gives a token a new secret and returns it.
func (s *Tokens) Rotate(ctx context.Context, id string, req api.RotateRequest) (*api.IssuedToken, error) {
	return on[*api.IssuedToken](ctx, s.conn, http.MethodPost, "tokens", id, "/rotate", nil, req)
}

// Remove ends a token and the tokens that it made.
func (s *Tokens) Remove(ctx context.Context, id string) error {
	_, err := on[struct{}](ctx, s.conn, http.MethodDelete, "tokens", id, "", nil, nil)
	return err
}
