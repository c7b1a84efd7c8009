package token

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
)

// Bindings finds the sandboxes and snapshots that tokens are bound to.
type Bindings interface {
	// LineageID returns the id of the sandbox or snapshot that the caller calls ref.
	LineageID(ctx context.Context, ref string) (string, error)
	// SandboxID returns the id of the sandbox that the caller calls ref.
	SandboxID(ctx context.Context, ref string) (string, error)
}

// Service is the registry as servers call it: it implements service.Tokens.
type Service struct {
	*Registry
	bindings Bindings
}

// NewService returns the service of a registry.
func NewService(r *Registry, b Bindings) *Service { return &Service{r, b} }

// CreateToken makes a token. The thing that it is bound to must exist, and the caller must
// see it.
func (s *Service) CreateToken(ctx context.Context, req api.TokenRequest) (*api.IssuedToken, error) {
	look := ctx
	if c := access.From(ctx); c.Owner && req.Tenant != "" {
		look = access.With(ctx, access.Caller{Tenant: req.Tenant})
	}
	var err error
	if req.Tree != "" {
		if req.Tree, err = s.bindings.LineageID(look, req.Tree); err != nil {
			return nil, err
		}
	}
	if req.Sandbox != "" {
		if req.Sandbox, err = s.bindings.SandboxID(look, req.Sandbox); err != nil {
			return nil, err
		}
	}
	t, err := s.Issue(ctx, req)
	if err == nil {
		audit.Of(ctx).Set(func(d *api.AuditDetails) { d.Token = t.ID })
	}
	return t, err
}

// Tokens lists the tokens that the caller may see.
func (s *Service) Tokens(ctx context.Context) ([]api.Token, error) { return s.KnownTo(ctx), nil }
