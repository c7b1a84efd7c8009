package client

import (
	"context"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Tenants returns all tenants.
func (c *Client) Tenants(ctx context.Context) ([]api.Tenant, error) {
	l, err := get[httpwire.List[api.Tenant]](ctx, c, "/v1/tenants", nil)
	return l.Items, err
}

// GetTenant looks at a tenant.
func (c *Client) GetTenant(ctx context.Context, name string) (*api.Tenant, error) {
	return on[*api.Tenant](ctx, c, http.MethodGet, "tenants", name, "", nil, nil)
}

// UpdateTenant changes what a tenant may have.
func (c *Client) UpdateTenant(ctx context.Context, name string, req api.TenantUpdate) (*api.Tenant, error) {
	return on[*api.Tenant](ctx, c, http.MethodPatch, "tenants", name, "", nil, req)
}

// GiveImage lets a tenant use an image.
func (c *Client) GiveImage(ctx context.Context, tenant string, req api.GiveRequest) (*api.Image, error) {
	return on[*api.Image](ctx, c, http.MethodPost, "tenants", tenant, "/images", nil, req)
}
