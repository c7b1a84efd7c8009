package access

import (
	"cmp"
	"context"
	"slices"

	"ramet.dev/ramet/api"
)

// DefaultTenant is whose things are that the owner of the daemon makes.
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

// Caller is on whose behalf something is done. The one without a tenant is nobody:
// it sees nothing, and may do nothing.
type Caller struct {
	Tenant string
	Scope  api.Scope
	// Tree and Sandbox, if they are set, are all of the tenant's things that the
	// caller sees: what descends from one sandbox, or one sandbox alone.
	Tree, Sandbox string
	// Owner says that it is the user whose daemon it is, at its socket.
	Owner bool
	// AllTenants is set for the length of a request in which an operator asked to see
	// the things of all tenants.
	AllTenants bool
	// UID is the owner's or root's; Token the id of another caller's token; By the
	// sandbox that asks for something by itself. They say who it was.
	UID   uint32
	Token string
	By    string
}

// Owner returns the user whose daemon it is.
func Owner(uid uint32) Caller {
	return Caller{Tenant: DefaultTenant, Scope: api.ScopeAdmin, Owner: true, UID: uid}
}

// Itself returns a sandbox that asks for something by itself. It is bound by what
// it was allowed and not by a scope.
func Itself(tenant, id string) Caller {
	return Caller{Tenant: tenant, Scope: api.ScopeAdmin, By: id}
}

type key struct{}

// With returns a context in which c is the caller.
func With(ctx context.Context, c Caller) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns the caller. Without one it is nobody: a part of the daemon that does
// something by itself says on whose behalf.
func From(ctx context.Context) Caller {
	c, _ := ctx.Value(key{}).(Caller)
	return c
}

// OwnerOnly refuses everybody but the owner of the daemon. does is what only the owner
// does, such as "changes quotas".
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

// Known refuses nobody.
func (c Caller) Known() error {
	if c.Tenant == "" {
		return api.Errorf(api.CodeUnknownUser, "nobody knows on whose behalf this is to be done")
	}
	return nil
}

// Bound reports whether c sees only a part of its tenant's things.
func (c Caller) Bound() bool { return c.Tree != "" || c.Sandbox != "" }

// Sees reports whether c may know of a sandbox: line are the ids of what it
// descends from, the first one created first and itself the last. A tree is named
// by any sandbox or snapshot in it, and is all that is below.
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

// MayMake refuses nobody, and callers whose view is too narrow to have what they make
// in it.
func (c Caller) MayMake(what string) error {
	if err := c.Known(); err != nil {
		return err
	}
	if c.Sandbox != "" {
		return api.Errorf(api.CodeForbidden, "this token is bound to sandbox %s: it cannot make %s", c.Sandbox, what)
	}
	return nil
}

// MayMakeTree refuses callers that are bound, for what begins a tree or belongs to
// none.
func (c Caller) MayMakeTree(what string) error {
	if c.Tree != "" {
		return api.Errorf(api.CodeForbidden, "this token is bound to the tree of %s: it cannot make %s", c.Tree, what)
	}
	return c.MayMake(what)
}
