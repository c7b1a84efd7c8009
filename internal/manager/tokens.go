package manager

import (
	"context"

	"ramet.dev/ramet/internal/access"
	"ramet.dev/ramet/internal/audit"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/sandbox"
)

// Authenticate implements httpapi.TokenService.
func (m *Manager) Authenticate(_ context.Context, secret string, inURL bool) (*httpapi.Session, error) {
	s, err := m.tokens.Authenticate(secret, inURL)
	if err != nil {
		return nil, err
	}
	return &httpapi.Session{Caller: s.Caller, Until: s.Until, Gone: s.Gone}, nil
}

// CreateToken makes a token. What it is bound to must be there, and be seen by the
// caller.
func (m *Manager) CreateToken(ctx context.Context, req sandbox.TokenRequest) (*sandbox.IssuedToken, error) {
	look := ctx
	if c := access.From(ctx); c.Owner && req.Tenant != "" {
		look = access.With(ctx, access.Caller{Tenant: req.Tenant})
	}
	var err error
	if req.Tree != "" {
		if req.Tree, err = m.lineageID(look, req.Tree); err != nil {
			return nil, err
		}
	}
	if req.Sandbox != "" {
		b, err := m.resolve(look, req.Sandbox)
		if err != nil {
			return nil, err
		}
		req.Sandbox = b.id
	}
	t, err := m.tokens.Create(ctx, req)
	if err == nil {
		audit.Of(ctx).Set(func(d *sandbox.AuditDetails) { d.Token = t.ID })
	}
	return t, err
}

// Tokens lists the tokens that the caller may know of.
func (m *Manager) Tokens(ctx context.Context) ([]sandbox.Token, error) {
	return m.tokens.List(ctx), nil
}

// RotateToken gives a token another secret.
func (m *Manager) RotateToken(ctx context.Context, id string, req sandbox.RotateRequest) (*sandbox.IssuedToken, error) {
	return m.tokens.Rotate(ctx, id, req)
}

// RemoveToken ends a token and those that it made.
func (m *Manager) RemoveToken(ctx context.Context, id string) error { return m.tokens.Remove(ctx, id) }
