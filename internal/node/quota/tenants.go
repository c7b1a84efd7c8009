package quota

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
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
	traffic := a.cfg.Networks.Traffic(ctx)
	for name := range names {
		list = append(list, *a.tenant(name, traffic[name]))
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

// tenant describes a tenant whose network does what traffic says.
func (a *Admission) tenant(name string, traffic api.Consumption) *api.Tenant {
	t := &api.Tenant{Name: name, Usage: a.consumption(name, "")}
	t.Usage.NetworkConnections, t.Usage.NetworkMbit, t.Usage.NetworkDNSPerS = traffic.NetworkConnections, traffic.NetworkMbit, traffic.NetworkDNSPerS
	t.Quota, t.Tree = a.cfg.Ledger.Quotas(name)
	if max := a.cfg.Ledger.NetworkMax(name); max != nil {
		t.NetworkMax = &max.Document
	}
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
	return a.tenant(name, a.cfg.Networks.Traffic(ctx)[name]), nil
}

// UpdateTenant changes the quotas of a tenant, and the upper bound of its networks. What it has already
// stays, but for connections that the bound does not allow.
func (a *Admission) UpdateTenant(ctx context.Context, name string, req api.TenantUpdate) (*api.Tenant, error) {
	if err := access.From(ctx).OwnerOnly("changes quotas"); err != nil {
		return nil, err
	}
	if err := api.ValidTenant(name); err != nil {
		return nil, err
	}
	var max *policy.Bound
	switch {
	case req.NetworkMax != nil && req.NoNetworkMax:
		return nil, api.Invalid("no_network_max", "it takes away the bound that network_max sets: give one of them")
	case req.NetworkMax != nil:
		var err error
		if max, err = a.cfg.Networks.Bound(ctx, name, req.NetworkMax); err != nil {
			return nil, err
		}
	}
	audit.Of(ctx).Object(name)
	a.updating.Lock() // what is stored last is in force last
	defer a.updating.Unlock()
	if err := a.cfg.Ledger.Set(ctx, name, req, max); err != nil {
		return nil, err
	}
	if err := a.cfg.Networks.Enforce(ctx, name); err != nil {
		return nil, err
	}
	return a.tenant(name, a.cfg.Networks.Traffic(ctx)[name]), nil
}
