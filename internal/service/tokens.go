package service

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// Tokens is the access tokens and the callers that they stand for.
type Tokens interface {
	// Authenticate returns the session of a secret, or a CodeUnknownUser error. inURL says
	// that the secret was found in the URL.
	Authenticate(ctx context.Context, secret string, inURL bool) (*Session, error)
	CreateToken(ctx context.Context, req api.TokenRequest) (*api.IssuedToken, error)
	Tokens(ctx context.Context) ([]api.Token, error)
	RotateToken(ctx context.Context, id string, req api.RotateRequest) (*api.IssuedToken, error)
	RemoveToken(ctx context.Context, id string) error
}

// Session is the caller that a secret stands for, and how long it does.
type Session struct {
	Caller access.Caller
	Until  time.Time       // zero is without end
	Gone   <-chan struct{} // closed if it ends before; nil if it cannot
}
