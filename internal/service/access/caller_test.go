package access

import (
	"context"
	"testing"

	"ramet.dev/ramet/api"
)

func TestWhoSeesWhat(t *testing.T) {
	root, child := []string{"r"}, []string{"r", "snap", "c"}
	for name, c := range map[string]struct {
		caller Caller
		tenant string
		line   []string
		want   bool
	}{
		"own":                       {Caller{Tenant: "a"}, "a", child, true},
		"another's":                 {Caller{Tenant: "a"}, "b", child, false},
		"the owner, another's":      {Owner(0), "b", child, false},
		"nobody's":                  {Caller{}, "a", child, false},
		"nobody, what has no owner": {Caller{}, "", child, false},
		"in the tree":               {Caller{Tenant: "a", Tree: "r"}, "a", child, true},
		"the tree's first":          {Caller{Tenant: "a", Tree: "r"}, "a", root, true},
		"above the tree":            {Caller{Tenant: "a", Tree: "c"}, "a", root, false},
		"a tree of another tenant":  {Caller{Tenant: "a", Tree: "r"}, "b", child, false},
		"the sandbox":               {Caller{Tenant: "a", Sandbox: "c"}, "a", child, true},
		"a child of the sandbox":    {Caller{Tenant: "a", Sandbox: "r"}, "a", child, false},
		"what descends from nobody": {Caller{Tenant: "a"}, "a", nil, false},
	} {
		if got := c.caller.Sees(c.tenant, c.line); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestOnlyOperatorsSeeAllTenants(t *testing.T) {
	for name, c := range map[string]struct {
		caller   Caller
		operator bool
	}{
		"the owner":                        {Owner(0), true},
		"an unbound admin of default":      {Caller{Tenant: DefaultTenant, Scope: api.ScopeAdmin, Token: "tok"}, true},
		"an exec token of default":         {Caller{Tenant: DefaultTenant, Scope: api.ScopeExec, Token: "tok"}, false},
		"an admin of a tree":               {Caller{Tenant: DefaultTenant, Scope: api.ScopeAdmin, Token: "tok", Tree: "r"}, false},
		"an admin of a sandbox":            {Caller{Tenant: DefaultTenant, Scope: api.ScopeAdmin, Token: "tok", Sandbox: "r"}, false},
		"an admin of another tenant":       {Caller{Tenant: "a", Scope: api.ScopeAdmin, Token: "tok"}, false},
		"a sandbox of default, for itself": {Itself(DefaultTenant, "r"), false},
		"nobody":                           {Caller{}, false},
	} {
		ctx, err := WithAllTenants(With(context.Background(), c.caller))
		if (err == nil) != c.operator || err != nil && api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil && !From(ctx).Sees("b", []string{"r"}) {
			t.Errorf("%s does not see another tenant's", name)
		}
		if c.caller.Sees("b", []string{"r"}) {
			t.Errorf("%s sees another tenant's without having asked to", name)
		}
	}
}

func TestBoundCallersCannotMakeWhatTheyWouldNotSee(t *testing.T) {
	for name, c := range map[string]struct {
		caller             Caller
		children, newTrees bool
	}{
		"tenant":  {Caller{Tenant: "a"}, true, true},
		"tree":    {Caller{Tenant: "a", Tree: "r"}, true, false},
		"sandbox": {Caller{Tenant: "a", Sandbox: "r"}, false, false},
	} {
		if err := c.caller.MayMake("x"); (err == nil) != c.children || err != nil && api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("%s: children: %v", name, err)
		}
		if err := c.caller.MayMakeTree("x"); (err == nil) != c.newTrees || err != nil && api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("%s: trees: %v", name, err)
		}
	}
}

func TestCallerTravelsWithTheContext(t *testing.T) {
	ctx := context.Background()
	nobody := From(ctx)
	if nobody != (Caller{}) {
		t.Errorf("without a caller: %+v", nobody)
	}
	for what, err := range map[string]error{"asks": nobody.Known(), "makes": nobody.MayMake("x"), "makes a tree": nobody.MayMakeTree("x")} {
		if api.CodeOf(err) != api.CodeUnknownUser {
			t.Errorf("nobody %s: %v", what, err)
		}
	}
	if got := From(With(ctx, Caller{Tenant: "a"})); got.Tenant != "a" || got.Owner {
		t.Errorf("%+v", got)
	}
}
