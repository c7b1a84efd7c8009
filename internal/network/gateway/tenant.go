package gateway

import (
	"cmp"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/share"
)

// Tenant is what bounds the sandboxes of a tenant.
type Tenant struct {
	Name string `json:"name"`
	// Bounds have to allow what the policy of each sandbox allows.
	Bounds []policy.Bound `json:"bounds,omitempty"`
	// Limits are of all its sandboxes together, and TreeLimits of those of each tree.
	Limits     share.Limits `json:"limits"`
	TreeLimits share.Limits `json:"tree_limits"`
}

// Bare reports whether nothing bounds the tenant.
func (t *Tenant) Bare() bool {
	return len(t.Bounds) == 0 && t.Limits == share.Limits{} && t.TreeLimits == share.Limits{}
}

// tenant is a tenant that has a sandbox or a bound.
type tenant struct {
	// changing is held by who registers a sandbox of the tenant, replaces a registration or changes
	// the bounds: so each sandbox has the bounds in force. It comes before all other locks.
	changing sync.Mutex
	name     string
	told     Tenant         // guarded by changing
	bounds   *policy.Bounds // of told; guarded by changing
	share    *share.Share

	// These are guarded by Gateway.mu.
	uses  int // sandboxes and changes under way
	kept  bool
	trees map[string]*tree
}

// tree is a tree of sandboxes.
type tree struct {
	*share.Share
	uses int // sandboxes
}

// acquire returns a tenant, which stays until it is released. No name is that of the default tenant.
func (g *Gateway) acquire(name string) *tenant {
	name = cmp.Or(name, api.DefaultTenant)
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tenants[name]
	if t == nil {
		t = &tenant{name: name, share: share.New("tenant "+name, share.Limits{}), trees: map[string]*tree{}}
		g.tenants[name] = t
	}
	t.uses++
	return t
}

func (g *Gateway) release(t *tenant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t.uses--; t.uses == 0 && !t.kept {
		delete(g.tenants, t.name)
	}
}

// acquireShares returns what a sandbox shares with others. The caller has acquired t, and holds
// changing.
func (g *Gateway) acquireShares(t *tenant, root string) share.Shares {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := t.trees[root]
	if of == nil {
		of = &tree{Share: share.New("tree "+root, t.told.TreeLimits)}
		t.trees[root] = of
	}
	of.uses++
	return share.Shares{of.Share, t.share}
}

func (g *Gateway) releaseShares(t *tenant, root string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := t.trees[root]
	if of.uses--; of.uses == 0 {
		delete(t.trees, root)
	}
}

// SetTenant puts what bounds a tenant in force, for all its sandboxes, those that come later as well.
// Flows that the bounds do not allow are cut before SetTenant returns; with an error nothing has
// changed.
func (g *Gateway) SetTenant(told Tenant) error {
	bounds, err := policy.CompileBounds(told.Bounds...)
	if err != nil {
		return err
	}
	t := g.acquire(told.Name)
	defer g.release(t)
	t.changing.Lock()
	defer t.changing.Unlock()
	t.told, t.bounds = told, bounds
	t.share.Set(told.Limits)
	var theirs []*sandbox
	g.mu.Lock()
	t.kept = !told.Bare()
	for _, of := range t.trees {
		of.Set(told.TreeLimits)
	}
	for _, s := range g.sandboxes {
		if s.tenant == t {
			theirs = append(theirs, s)
		}
	}
	g.mu.Unlock()
	for _, s := range theirs {
		s.rebound(bounds)
	}
	return nil
}

// bounded returns a policy within the bounds of a tenant that are in force.
func (g *Gateway) bounded(name string, p *policy.Policy) *policy.Policy {
	t := g.acquire(name)
	defer g.release(t)
	t.changing.Lock()
	defer t.changing.Unlock()
	return p.Under(t.bounds)
}

// Tenants returns the numbers of those that have a sandbox with a network, or something that bounds them.
func (g *Gateway) Tenants() map[string]share.Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[string]share.Stats{}
	for name, t := range g.tenants {
		out[name] = t.share.Stats()
	}
	return out
}
