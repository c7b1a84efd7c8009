package quota

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/internal/service/audit"
)

// Tenants returns all tenants that have anything.
func (a *Admission) Tenants(ctx context.Context) ([]api.Tenant, error) {
	names, err := a.names(ctx)
	if err != nil {
		return nil, err
	}
	var list []api.Tenant
	for name := range names {
		list = append(list, *a.tenant(name))
	}
	return list, nil
}

// names returns the tenants that have a quota or own anything, and the default one.
func (a *Admission) names(ctx context.Context) (map[string]bool, error) {
	names, err := a.cfg.Owners(ctx)
	if err != nil {
		return nil, err
	}
	names[access.DefaultTenant] = true
	for _, t := range a.cfg.Ledger.Tenants() {
		names[t] = true
	}
	return names, nil
}

func (a *Admission) tenant(name string) *api.Tenant {
	t := &api.Tenant{Name: name, Usage: a.consumption(name, "")}
	t.Quota, t.Tree = a.cfg.Ledger.Quotas(name)
	return t
}

// GetTenant returns the caller's own tenant, or any for the owner of the daemon.
func (a *Admission) GetTenant(ctx context.Context, name string) (*api.Tenant, error) {
	if c := access.From(ctx); !c.Owner && (c.Tenant != name || c.Bound()) {
		return nil, api.NotFound("tenant", name)
	}
	if err := api.ValidTenant(name); err != nil {
		return nil, err
	}
	names, err := a.names(ctx)
	if err != nil {
		return nil, err
	}
	if !names[name] {
		return nil, api.NotFound("tenant", name)
	}
	return a.tenant(name), nil
}

// UpdateTenant changes the quotas of a tenant. What it has already stays.
func (a *Admission) UpdateTenant(ctx context.Context, name string, req api.TenantUpdate) (*api.Tenant, error) {
	if err := access.From(ctx).OwnerOnly("changes quotas"); err != nil {
		return nil, err
	}
	if err := api.ValidTenant(name); err != nil {
		return nil, err
	}
	audit.Of(ctx).Object(name)
	if err := a.cfg.Ledger.Set(ctx, name, req); err != nil {
		return nil, err
	}
	return a.tenant(name), nil
}
