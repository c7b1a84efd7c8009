package networks

import (
	"context"
	"fmt"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/share"
)

// Accounts has what tenants may have.
type Accounts interface {
	// Tenants returns the names of those that have an account.
	Tenants() []string
	Quotas(tenant string) (all, tree api.Quota)
	// NetworkMax returns the upper bound of the networks of a tenant, or nil.
	NetworkMax(tenant string) *policy.Bound
}

// bound returns the upper bound that a request asks for, with its profiles as they are now. One that
// cannot be enforced is refused.
func (n *Networks) bound(ctx context.Context, of string, req *api.NetworkRequest) (*policy.Bound, error) {
	doc, err := n.document(ctx, req)
	if err != nil {
		return nil, err
	}
	spec, err := n.cfg.Profiles.Spec(ctx, doc)
	if err != nil {
		return nil, err
	}
	b := policy.Bound{Of: of, Document: *doc, Profiles: spec.Profiles}
	if _, err := policy.CompileBounds(b); err != nil {
		return nil, err
	}
	return &b, nil
}

// Tenants is the networks of tenants. It is safe for concurrent use.
type Tenants struct{ n *Networks }

// NewTenants returns the tenants of n.
func NewTenants(n *Networks) Tenants { return Tenants{n} }

// Bound returns the upper bound that is asked for the networks of a tenant.
func (t Tenants) Bound(ctx context.Context, tenant string, req *api.NetworkRequest) (*policy.Bound, error) {
	return t.n.bound(ctx, "tenant "+tenant, req)
}

// tenantOf returns what the gateway is told of a tenant.
func tenantOf(accounts Accounts, name string) gateway.Tenant {
	all, tree := accounts.Quotas(name)
	t := gateway.Tenant{Name: name, Limits: limitsOf(&all), TreeLimits: limitsOf(&tree)}
	if max := accounts.NetworkMax(name); max != nil {
		t.Bounds = []policy.Bound{*max}
	}
	return t
}

func limitsOf(q *api.Quota) share.Limits {
	return share.Limits{Connections: int(q.NetworkConnections), RateMbit: int(q.NetworkMbit), DNSPerS: int(q.NetworkDNSPerS)}
}

// bounded returns the tenants whose networks are bounded.
func bounded(accounts Accounts) (list []gateway.Tenant) {
	for _, name := range accounts.Tenants() {
		if t := tenantOf(accounts, name); !t.Bare() {
			list = append(list, t)
		}
	}
	return list
}

// Enforce puts what the account of a tenant says in force, for the sandboxes that it has and for those
// that come: connections that it does not allow are cut when Enforce returns. It does so also if ctx ends
// meanwhile. With an error the gateway does not answer, and is told as soon as it does.
func (t Tenants) Enforce(ctx context.Context, tenant string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.n.cfg.Timeout)
	defer cancel()
	if err := t.n.host.SetTenant(ctx, tenantOf(t.n.cfg.Accounts, tenant)); err != nil {
		return fmt.Errorf("the quota is kept, and the gateway, which does not answer, is told as soon as it does: %w", err)
	}
	return nil
}

// Traffic returns what the networks of tenants do now, of those that have one.
func (t Tenants) Traffic(ctx context.Context) map[string]api.Consumption {
	out := map[string]api.Consumption{}
	for _, st := range traffic(ctx, t.n.host) {
		out[st.Name] = api.Consumption{NetworkConnections: int64(st.Connections), NetworkMbit: st.MbitPerS, NetworkDNSPerS: st.QuestionsPerS}
	}
	return out
}
