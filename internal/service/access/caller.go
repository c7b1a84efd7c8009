package access

import (
	"cmp"
	"context"
	"slices"

	"ramet.dev/ramet/api"
)

// DefaultTenant is the tenant of things that the owner of the daemon makes.
const DefaultTenant = api.DefaultTenant

// Recorded returns how records name a tenant, and OfRecord the tenant that a record names.
// Records of versions without tenants name none and belong to DefaultTenant.
func Recorded(tenant string) string {
	if tenant == DefaultTenant {
		return ""
	}
	return tenant
}

// OfRecord is the inverse of Recorded.
func OfRecord(recorded string) string { return cmp.Or(recorded, DefaultTenant) }

// Caller is the user or program on whose behalf a request is served. A caller without a
// tenant sees nothing, and may do nothing.
type Caller struct {
	Tenant string
	Scope  api.Scope
	// Tree and Sandbox, if one is set, bound the things of the tenant that the caller sees:
	// a sandbox with its descendants, or a sandbox alone.
	Tree, Sandbox string
	// Owner says that the caller is the user of the daemon, at its socket.
	Owner bool
	// AllTenants is set for the length of a request in which an operator asked to see
	// the things of all tenants.
	AllTenants bool
	// UID is the owner's or root's; Token is the id of the token of another caller; By is
	// the sandbox that made a self-request. They are for the audit log.
	UID   uint32
	Token string
	By    string
}

// Owner returns the user of the daemon as a caller.
func Owner(uid uint32) Caller {
	return Caller{Tenant: DefaultTenant, Scope: api.ScopeAdmin, Owner: true, UID: uid}
}

// Itself returns a sandbox with self-control as a caller. Its budget bounds it, and not a
// scope.
func Itself(tenant, id string) Caller {
	return Caller{Tenant: tenant, Scope: api.ScopeAdmin, By: id}
}

type key struct{}

// With returns a context in which c is the caller.
func With(ctx context.Context, c Caller) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns the caller in ctx. Without one it returns a caller that may do nothing: parts
// of the daemon that act without a request set a caller.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(key{}).(Caller)
	return c
}

// OwnerOnly refuses all callers but the owner of the daemon. does is the refused action, for
// example "changes quotas".
func (c Caller) OwnerOnly(does string) error {
	if !c.Owner {
		return api.Errorf(api.CodeForbidden, "only the owner of the daemon %s, at its socket", does)
	}
	return nil
}

// Operator reports whether c answers for the whole daemon: its owner, or the holder
// of a token of the default tenant with scope admin that is bound to nothing.
func (c Caller) Operator() bool {
	return c.Owner || c.Tenant == DefaultTenant && c.Token != "" && c.Scope.Covers(api.ScopeAdmin) && !c.Bound()
}

// WithAllTenants returns a context in which the caller, who must be an operator,
// sees the things of all tenants.
func WithAllTenants(ctx context.Context) (context.Context, error) {
	c := From(ctx)
	if !c.Operator() {
		return nil, api.Errorf(api.CodeForbidden, "all_tenants: only the owner of the daemon, at its socket, or a token of tenant %s with scope admin that is bound to nothing may ask about all tenants", DefaultTenant)
	}
	c.AllTenants = true
	return With(ctx, c), nil
}

// Known refuses a caller without a tenant.
func (c Caller) Known() error {
	if c.Tenant == "" {
		return api.Errorf(api.CodeUnknownUser, "nobody knows on whose behalf this is to be done")
	}
	return nil
}

// Bound reports whether c sees only a part of its tenant's things.
func (c Caller) Bound() bool { return c.Tree != "" || c.Sandbox != "" }

// Sees reports whether c sees a sandbox. line has the ids of its ancestors, the oldest first,
// and its own id last. A tree is named by
// any sandbox or snapshot in it, and is all that descends from that.
func (c Caller) Sees(tenant string, line []string) bool {
	switch {
	case c.Tenant == "", len(line) == 0:
		return false
	case c.AllTenants:
		return true
	case tenant != c.Tenant:
		return false
	case c.Sandbox != "":
		return line[len(line)-1] == c.Sandbox
	case c.Tree != "":
		return slices.Contains(line, c.Tree)
	}
	return true
}

// MayMake refuses callers without a tenant, and callers that would not see the thing that
// they make.
func (c Caller) MayMake(what string) error {
	if err := c.Known(); err != nil {
		return err
	}
	if c.Sandbox != "" {
		return api.Errorf(api.CodeForbidden, "this token is bound to sandbox %s: it cannot make %s", c.Sandbox, what)
	}
	return nil
}

// MayMakeTree refuses bound callers. It is for things that begin a tree or belong to no tree.
func (c Caller) MayMakeTree(what string) error {
	if c.Tree != "" {
		return api.Errorf(api.CodeForbidden, "this token is bound to the tree of %s: it cannot make %s", c.Tree, what)
	}
	return c.MayMake(what)
}
