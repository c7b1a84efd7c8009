package apitest

import (
	"context"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// Owner makes every caller the owner of the daemon.
func Owner(*http.Request) (access.Caller, bool) { return access.Owner(0), true }

// TokenFuncs are the functions of a Service that are about tokens.
type TokenFuncs struct {
	AuthenticateFunc func(context.Context, string, bool) (*service.Session, error)
	SessionOfFunc    func(context.Context, string) (*service.Session, error)
	SessionsFunc     func(context.Context, string) []*service.Session
	CreateTokenFunc  func(context.Context, api.TokenRequest) (*api.IssuedToken, error)
	TokensFunc       func(context.Context) ([]api.Token, error)
	RotateTokenFunc  func(context.Context, string, api.RotateRequest) (*api.IssuedToken, error)
	RemoveTokenFunc  func(context.Context, string) error
}

// Authenticate implements service.Tokens.
func (s *TokenFuncs) Authenticate(ctx context.Context, secret string, inURL bool) (*service.Session, error) {
	if s.AuthenticateFunc == nil {
		return nil, api.Errorf(api.CodeUnknownUser, "the test knows no tokens")
	}
	return s.AuthenticateFunc(ctx, secret, inURL)
}

// SessionOf implements service.Tokens.
func (s *TokenFuncs) SessionOf(ctx context.Context, key string) (*service.Session, error) {
	if s.SessionOfFunc == nil {
		return nil, api.Errorf(api.CodeUnknownUser, "the test knows no tokens")
	}
	return s.SessionOfFunc(ctx, key)
}

// Sessions implements service.Tokens.
func (s *TokenFuncs) Sessions(ctx context.Context, tenant string) []*service.Session {
	if s.SessionsFunc == nil {
		return nil
	}
	return s.SessionsFunc(ctx, tenant)
}

// CreateToken implements service.Tokens.
func (s *TokenFuncs) CreateToken(ctx context.Context, req api.TokenRequest) (*api.IssuedToken, error) {
	return call(s.CreateTokenFunc != nil, func() (*api.IssuedToken, error) { return s.CreateTokenFunc(ctx, req) })
}

// Tokens implements service.Tokens.
func (s *TokenFuncs) Tokens(ctx context.Context) ([]api.Token, error) {
	return call(s.TokensFunc != nil, func() ([]api.Token, error) { return s.TokensFunc(ctx) })
}

// RotateToken implements service.Tokens.
func (s *TokenFuncs) RotateToken(ctx context.Context, id string, req api.RotateRequest) (*api.IssuedToken, error) {
	return call(s.RotateTokenFunc != nil, func() (*api.IssuedToken, error) { return s.RotateTokenFunc(ctx, id, req) })
}

// RemoveToken implements service.Tokens.
func (s *TokenFuncs) RemoveToken(ctx context.Context, id string) error {
	if s.RemoveTokenFunc == nil {
		return errUnset
	}
	return s.RemoveTokenFunc(ctx, id)
}
