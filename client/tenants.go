package client

import (
	"context"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Tenants manages tenants and their quotas.
type Tenants struct{ conn *connection }

// List returns all tenants.
func (s *Tenants) List(ctx context.Context) ([]api.Tenant, error) {
	l, err := get[httpwire.List[api.Tenant]](ctx, s.conn, "/v1/tenants", nil)
	return l.Items, err
}

// Get returns a tenant, with its quotas and what it uses.
func (s *Tenants) Get(ctx context.Context, name string) (*api.Tenant, error) {
	return on[*api.Tenant](ctx, s.conn, http.MethodGet, "tenants", name, "", nil, nil)
}

// Update changes the quotas of a tenant.
func (s *Tenants) Update(ctx context.Context, name string, req api.TenantUpdate) (*api.Tenant, error) {
	return on[*api.Tenant](ctx, s.conn, http.MethodPatch, "tenants", name, "", nil, req)
}

// GiveImage gives a tenant an image of the caller.
func (s *Tenants) GiveImage(ctx context.Context, tenant string, req api.GiveRequest) (*api.Image, error) {
	return on[*api.Image](ctx, s.conn, http.MethodPost, "tenants", tenant, "/images", nil, req)
}
