package apitest

import (
	"context"
	"net/http"

	"ramet.dev/ramet/internal/access"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// Owner makes everybody the owner of the daemon.
func Owner(*http.Request) (access.Caller, bool) { return access.Owner(0), true }

// TokenFuncs are the functions of a Service that are about tokens.
type TokenFuncs struct {
	AuthenticateFunc func(context.Context, string, bool) (*httpapi.Session, error)
	CreateTokenFunc  func(context.Context, sandbox.TokenRequest) (*sandbox.IssuedToken, error)
	TokensFunc       func(context.Context) ([]sandbox.Token, error)
	RotateTokenFunc  func(context.Context, string, sandbox.RotateRequest) (*sandbox.IssuedToken, error)
	RemoveTokenFunc  func(context.Context, string) error
}

// Authenticate implements httpapi.TokenService.
func (s *TokenFuncs) Authenticate(ctx context.Context, secret string, inURL bool) (*httpapi.Session, error) {
	if s.AuthenticateFunc == nil {
		return nil, sandbox.Errorf(sandbox.CodeUnknownUser, "the test knows no tokens")
	}
	return s.AuthenticateFunc(ctx, secret, inURL)
}

// CreateToken implements httpapi.TokenService.
func (s *TokenFuncs) CreateToken(ctx context.Context, req sandbox.TokenRequest) (*sandbox.IssuedToken, error) {
	return call(s.CreateTokenFunc != nil, func() (*sandbox.IssuedToken, error) { return s.CreateTokenFunc(ctx, req) })
}

// Tokens implements httpapi.TokenService.
func (s *TokenFuncs) Tokens(ctx context.Context) ([]sandbox.Token, error) {
	return call(s.TokensFunc != nil, func() ([]sandbox.Token, error) { return s.TokensFunc(ctx) })
}

// RotateToken implements httpapi.TokenService.
func (s *TokenFuncs) RotateToken(ctx context.Context, id string, req sandbox.RotateRequest) (*sandbox.IssuedToken, error) {
	return call(s.RotateTokenFunc != nil, func() (*sandbox.IssuedToken, error) { return s.RotateTokenFunc(ctx, id, req) })
}

// RemoveToken implements httpapi.TokenService.
func (s *TokenFuncs) RemoveToken(ctx context.Context, id string) error {
	if s.RemoveTokenFunc == nil {
		return errUnset
	}
	return s.RemoveTokenFunc(ctx, id)
}
