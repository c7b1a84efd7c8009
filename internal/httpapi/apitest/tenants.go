package apitest

import (
	"context"

	"ramet.dev/ramet/internal/sandbox"
)

// TenantFuncs are the functions of a Service that are about tenants.
type TenantFuncs struct {
	TenantsFunc      func(context.Context) ([]sandbox.Tenant, error)
	GetTenantFunc    func(context.Context, string) (*sandbox.Tenant, error)
	UpdateTenantFunc func(context.Context, string, sandbox.TenantUpdate) (*sandbox.Tenant, error)
	GiveImageFunc    func(context.Context, string, sandbox.GiveRequest) (*sandbox.Image, error)
}

// Tenants implements httpapi.TenantService.
func (s *TenantFuncs) Tenants(ctx context.Context) ([]sandbox.Tenant, error) {
	return call(s.TenantsFunc != nil, func() ([]sandbox.Tenant, error) { return s.TenantsFunc(ctx) })
}

// GetTenant implements httpapi.TenantService.
func (s *TenantFuncs) GetTenant(ctx context.Context, name string) (*sandbox.Tenant, error) {
	return call(s.GetTenantFunc != nil, func() (*sandbox.Tenant, error) { return s.GetTenantFunc(ctx, name) })
}

// UpdateTenant implements httpapi.TenantService.
func (s *TenantFuncs) UpdateTenant(ctx context.Context, name string, req sandbox.TenantUpdate) (*sandbox.Tenant, error) {
	return call(s.UpdateTenantFunc != nil, func() (*sandbox.Tenant, error) { return s.UpdateTenantFunc(ctx, name, req) })
}

// GiveImage implements httpapi.TenantService.
func (s *TenantFuncs) GiveImage(ctx context.Context, tenant string, req sandbox.GiveRequest) (*sandbox.Image, error) {
	return call(s.GiveImageFunc != nil, func() (*sandbox.Image, error) { return s.GiveImageFunc(ctx, tenant, req) })
}
