package apitest

import (
	"context"

	"ramet.dev/ramet/api"
)

// TenantFuncs are the functions of a Service that are about tenants.
type TenantFuncs struct {
	TenantsFunc      func(context.Context) ([]api.Tenant, error)
	GetTenantFunc    func(context.Context, string) (*api.Tenant, error)
	UpdateTenantFunc func(context.Context, string, api.TenantUpdate) (*api.Tenant, error)
	GiveImageFunc    func(context.Context, string, api.GiveRequest) (*api.Image, error)
}

// Tenants implements service.Tenants.
func (s *TenantFuncs) Tenants(ctx context.Context) ([]api.Tenant, error) {
	return call(s.TenantsFunc != nil, func() ([]api.Tenant, error) { return s.TenantsFunc(ctx) })
}

// GetTenant implements service.Tenants.
func (s *TenantFuncs) GetTenant(ctx context.Context, name string) (*api.Tenant, error) {
	return call(s.GetTenantFunc != nil, func() (*api.Tenant, error) { return s.GetTenantFunc(ctx, name) })
}

// UpdateTenant implements service.Tenants.
func (s *TenantFuncs) UpdateTenant(ctx context.Context, name string, req api.TenantUpdate) (*api.Tenant, error) {
	return call(s.UpdateTenantFunc != nil, func() (*api.Tenant, error) { return s.UpdateTenantFunc(ctx, name, req) })
}

// GiveImage implements service.Tenants.
func (s *TenantFuncs) GiveImage(ctx context.Context, tenant string, req api.GiveRequest) (*api.Image, error) {
	return call(s.GiveImageFunc != nil, func() (*api.Image, error) { return s.GiveImageFunc(ctx, tenant, req) })
}
