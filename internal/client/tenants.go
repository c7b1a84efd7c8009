package client

import (
	"context"
	"net/http"

	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/sandbox"
)

// Tenants returns all tenants.
func (c *Client) Tenants(ctx context.Context) ([]sandbox.Tenant, error) {
	l, err := get[httpwire.List[sandbox.Tenant]](ctx, c, "/v1/tenants", nil)
	return l.Items, err
}

// GetTenant looks at a tenant.
func (c *Client) GetTenant(ctx context.Context, name string) (*sandbox.Tenant, error) {
	return on[*sandbox.Tenant](ctx, c, http.MethodGet, "tenants", name, "", nil, nil)
}

// UpdateTenant changes what a tenant may have.
func (c *Client) UpdateTenant(ctx context.Context, name string, req sandbox.TenantUpdate) (*sandbox.Tenant, error) {
	return on[*sandbox.Tenant](ctx, c, http.MethodPatch, "tenants", name, "", nil, req)
}

// GiveImage lets a tenant use an image.
func (c *Client) GiveImage(ctx context.Context, tenant string, req sandbox.GiveRequest) (*sandbox.Image, error) {
	return on[*sandbox.Image](ctx, c, http.MethodPost, "tenants", tenant, "/images", nil, req)
}
