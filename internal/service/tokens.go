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
	// SessionOf returns the session of the secret that Session.Key names, or a CodeUnknownUser error once that
	// secret is not valid.
	SessionOf(ctx context.Context, key string) (*Session, error)
	// Sessions returns the sessions of all valid secrets of a tenant. No request reaches it.
	Sessions(ctx context.Context, tenant string) []*Session
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
	// Key names the secret, and tells nothing of it. What is derived from a key is checked with SessionOf, and so
	// ends with the key: when its token is removed, expires or is rotated. It is empty without a token.
	Key string
}

// As returns the session with another caller: one that acts by what was derived from the key.
func (s *Session) As(c access.Caller) *Session {
	out := *s
	out.Caller = c
	return &out
}
