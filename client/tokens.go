package client

import (
	"context"
	"net/http"
	"net/url"

	"ramet.dev/ramet/api"
)

// CreateToken makes a token, and returns it with its secret.
func (c *Client) CreateToken(ctx context.Context, req api.TokenRequest) (*api.IssuedToken, error) {
	return call[*api.IssuedToken](ctx, c, http.MethodPost, "/v1/tokens", nil, req)
}

// Tokens returns all tokens, or those of one tenant, oldest first.
func (c *Client) Tokens(ctx context.Context, tenant string) ([]api.Token, error) {
	query := url.Values{}
	if tenant != "" {
		query.Set("tenant", tenant)
	}
	return all[api.Token](ctx, c, "/v1/tokens", query)
}

// RotateToken gives a token another secret.
func (c *Client) RotateToken(ctx context.Context, id string, req api.RotateRequest) (*api.IssuedToken, error) {
	return on[*api.IssuedToken](ctx, c, http.MethodPost, "tokens", id, "/rotate", nil, req)
}

// RemoveToken ends a token, and those that it made.
func (c *Client) RemoveToken(ctx context.Context, id string) error {
	_, err := on[struct{}](ctx, c, http.MethodDelete, "tokens", id, "", nil, nil)
	return err
}
