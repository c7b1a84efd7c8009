package service

import (
	"context"

	"ramet.dev/ramet/api"
)

// Tenants is the tenants, their quotas and the images that they share.
type Tenants interface {
	Tenants(ctx context.Context) ([]api.Tenant, error)
	GetTenant(ctx context.Context, name string) (*api.Tenant, error)
	UpdateTenant(ctx context.Context, name string, req api.TenantUpdate) (*api.Tenant, error)
	// GiveImage lets a tenant use an image that the caller has.
	GiveImage(ctx context.Context, tenant string, req api.GiveRequest) (*api.Image, error)
}
