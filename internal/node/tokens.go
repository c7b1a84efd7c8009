package node

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/audit"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// Authenticate implements service.Tokens.
func (m *Node) Authenticate(_ context.Context, secret string, inURL bool) (*service.Session, error) {
	s, err := m.tokens.Authenticate(secret, inURL)
	if err != nil {
		return nil, err
	}
	return &service.Session{Caller: s.Caller, Until: s.Until, Gone: s.Gone}, nil
}

// CreateToken makes a token. What it is bound to must be there, and be seen by the
// caller.
func (m *Node) CreateToken(ctx context.Context, req api.TokenRequest) (*api.IssuedToken, error) {
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
		audit.Of(ctx).Set(func(d *api.AuditDetails) { d.Token = t.ID })
	}
	return t, err
}

// Tokens lists the tokens that the caller may know of.
func (m *Node) Tokens(ctx context.Context) ([]api.Token, error) {
	return m.tokens.List(ctx), nil
}

// RotateToken gives a token another secret.
func (m *Node) RotateToken(ctx context.Context, id string, req api.RotateRequest) (*api.IssuedToken, error) {
	return m.tokens.Rotate(ctx, id, req)
}

// RemoveToken ends a token and those that it made.
func (m *Node) RemoveToken(ctx context.Context, id string) error { return m.tokens.Remove(ctx, id) }
