package node

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
	who "ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/test/harness"
)

// TestTenantsHaveNamesOfTheirOwn makes things of the same names for two tenants and
// the owner. Nobody sees another's, before and after a restart of the daemon.
func TestTenantsHaveNamesOfTheirOwn(t *testing.T) {
	n := harness.NewNode(t)
	for _, tenant := range []string{"a", "b"} {
		if _, err := n.Machine.Create(harness.AsTenant(tenant), api.CreateRequest{Image: "box"}); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("%s creates of another's image: %v", tenant, err)
		}
		n.GiveImage(tenant)
	}
	owners := map[string]context.Context{"owner": harness.AsOwner, "a": harness.AsTenant("a"), "b": harness.AsTenant("b")}
	boxes, snaps := map[string]string{}, map[string]string{}
	for name, ctx := range owners {
		boxes[name] = n.CreateAs(ctx, "main").ID
		s, err := n.Machine.Snapshot(ctx, "main", api.SnapshotRequest{Name: "kept"})
		if err != nil {
			t.Fatal(err)
		}
		snaps[name] = s.ID
		forked, err := n.Machine.Fork(ctx, "main", api.ForkRequest{Names: []string{"kid"}})
		if err != nil {
			t.Fatal(err)
		}
		n.Children(forked)
	}
	for range 2 {
		for name, ctx := range owners {
			seesOnly(n, ctx, name, boxes, snaps)
		}
		n.Reopen()
	}
	for _, ctx := range owners {
		for _, ref := range []string{"main", "kid"} {
			if err := n.Machine.Destroy(ctx, ref); err != nil {
				t.Error(err)
			}
		}
		if err := n.Machine.DeleteSnapshot(ctx, "kept", api.SnapshotDeletion{}); err != nil {
			t.Error(err)
		}
	}
}

// seesOnly looks as one of several at what all of them have.
func seesOnly(n *harness.Node, ctx context.Context, me string, boxes, snaps map[string]string) {
	n.T.Helper()
	for name, id := range boxes {
		_, err := n.Machine.Get(ctx, id)
		_, serr := n.Machine.GetSnapshot(ctx, snaps[name])
		if own := name == me; (err == nil) != own || (serr == nil) != own {
			n.T.Errorf("%s looks at the things of %s: %v, %v", me, name, err, serr)
		}
		if name != me && (api.CodeOf(err) != api.CodeNotFound || err.Error() != api.NotFound("sandbox", id).Error()) {
			n.T.Errorf("%s is told of %s's: %v", me, name, err)
		}
	}
	if s, err := n.Machine.Get(ctx, "main"); err != nil || s.ID != boxes[me] {
		n.T.Errorf("main is %v for %s: %v", s, me, err)
	}
	list, err := n.Machine.List(ctx, api.ListFilter{})
	if err != nil || len(list) != 2 {
		n.T.Errorf("%s lists %d sandboxes: %v", me, len(list), err)
	}
	if list, err := n.Machine.Snapshots(ctx); err != nil || len(list) != 1 {
		n.T.Errorf("%s lists %d snapshots: %v", me, len(list), err)
	}
	if roots, err := n.Machine.Tree(ctx, ""); err != nil || len(roots) != 1 || len(roots[0].Children) != 2 {
		n.T.Errorf("%s has %d trees: %v", me, len(roots), err)
	}
	stop := context.AfterFunc(ctx, func() {})
	defer stop()
	err = n.Machine.Events(ctx, api.EventRequest{}, func() {}, func(e api.Event) error {
		if e.Name != "main" && e.Name != "kid" || e.Name == "main" && e.SandboxID != boxes[me] {
			n.T.Errorf("%s is told of %s of %s", me, e.Kind, e.SandboxID)
		}
		return nil
	})
	if err != nil {
		n.T.Error(err)
	}
}

// TestBoundCallers looks at a tree with the eyes of those who may see a part of it.
func TestBoundCallers(t *testing.T) {
	n := harness.NewNode(t)
	root, other := n.Create("root"), n.Create("other")
	kid := n.Fork("root", 1)[0]
	grandchild := n.Fork(kid.ID, 1)[0]
	tree := who.With(harness.AsOwner, who.Caller{Tenant: who.DefaultTenant, Scope: api.ScopeAdmin, Tree: kid.ID})
	alone := who.With(harness.AsOwner, who.Caller{Tenant: who.DefaultTenant, Scope: api.ScopeAdmin, Sandbox: kid.ID})
	for name, c := range map[string]struct {
		ctx  context.Context
		sees map[string]bool
	}{
		"tree":    {tree, map[string]bool{kid.ID: true, grandchild.ID: true}},
		"sandbox": {alone, map[string]bool{kid.ID: true}},
	} {
		for _, s := range []*api.Sandbox{root, other, kid, grandchild} {
			if _, err := n.Machine.Get(c.ctx, s.ID); (err == nil) != c.sees[s.ID] {
				t.Errorf("%s: %s: %v", name, s.ID, err)
			}
		}
		if list, err := n.Machine.List(c.ctx, api.ListFilter{}); err != nil || len(list) != len(c.sees) {
			t.Errorf("%s lists %d: %v", name, len(list), err)
		}
		if roots, err := n.Machine.Tree(c.ctx, ""); err != nil || len(roots) != 1 || roots[0].ID != kid.ID {
			t.Errorf("%s has the trees %+v: %v", name, roots, err)
		}
		if _, err := n.Machine.Create(c.ctx, api.CreateRequest{Image: "box"}); api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("%s creates: %v", name, err)
		}
		if _, err := n.Machine.Promote(c.ctx, kid.ID); api.CodeOf(err) != api.CodeConflict {
			t.Errorf("%s promotes to what it does not see: %v", name, err)
		}
	}
	if _, err := n.Machine.Fork(alone, kid.ID, api.ForkRequest{}); api.CodeOf(err) != api.CodeForbidden {
		t.Errorf("a caller bound to a sandbox forks it: %v", err)
	}
	forked, err := n.Machine.Fork(tree, kid.ID, api.ForkRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.Get(tree, n.Children(forked)[0].ID); err != nil {
		t.Errorf("a child is not in its tree: %v", err)
	}
}

// TestOperatorsReachAllTenants asks as the owner, and with a token of the default tenant
// that is bound to nothing, for the things of all tenants, and removes a tenant's. The
// tenant is told of that in its audit.
func TestOperatorsReachAllTenants(t *testing.T) {
	n := harness.NewNode(t)
	owner := who.With(harness.AsOwner, who.Owner(0))
	n.GiveImage("acme")
	theirs, err := n.Machine.Create(harness.AsTenant("acme"), api.CreateRequest{Image: "box", Name: "main", Env: map[string]string{"KEY": "secret"}})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := n.Machine.Snapshot(harness.AsTenant("acme"), "main", api.SnapshotRequest{Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	own := n.Create("main")
	secret := func(req api.TokenRequest) string {
		tok, err := n.Machine.CreateToken(owner, req)
		if err != nil {
			t.Fatal(err)
		}
		return tok.Secret
	}
	admin := secret(api.TokenRequest{Scope: api.ScopeAdmin})
	remote := rest.New(rest.Config{Service: n.Machine, Version: "test"})
	local := rest.New(rest.Config{Service: n.Machine, Version: "test", Identify: apitest.Owner})

	for by, ask := range map[string]func(method, target string) *httptest.ResponseRecorder{
		"owner": func(method, target string) *httptest.ResponseRecorder { return askAs(local, "", method, target, "") },
		"admin": func(method, target string) *httptest.ResponseRecorder {
			return askAs(remote, admin, method, target, "")
		},
	} {
		for target, want := range map[string][2]bool{ // the own, the tenant's
			"/v1/sandboxes":                                    {true, false},
			"/v1/sandboxes?all_tenants=true":                   {true, true},
			"/v1/tree?all_tenants=true":                        {true, true},
			"/v1/tree":                                         {true, false},
			"/v1/snapshots?all_tenants=true":                   {false, true},
			"/v1/snapshots":                                    {false, false},
			"/v1/sandboxes/main?all_tenants=true":              {true, false}, // a name is the own
			"/v1/sandboxes/" + theirs.ID + "?all_tenants=true": {false, true},
			"/v1/snapshots/" + snap.ID + "?all_tenants=true":   {false, true},
		} {
			w := ask("GET", target)
			body := w.Body.String()
			if w.Code != http.StatusOK || strings.Contains(body, own.ID) != want[0] || strings.Contains(body, theirs.ID) != want[1] || want[1] != strings.Contains(body, `"acme"`) {
				t.Errorf("%s: GET %s: status %d %s", by, target, w.Code, body)
			}
			if strings.Contains(body, "KEY") {
				t.Errorf("%s: GET %s tells a tenant's environment: %s", by, target, body)
			}
		}
		w := ask("GET", "/v1/images?all_tenants=true")
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"tenants":{"acme":["box"]}`) {
			t.Errorf("%s: images of all: status %d %s", by, w.Code, w.Body)
		}
		if w := ask("GET", "/v1/images"); w.Code != http.StatusOK || strings.Contains(w.Body.String(), "acme") {
			t.Errorf("%s: own images: status %d %s", by, w.Code, w.Body)
		}
		if w := ask("DELETE", "/v1/sandboxes/"+theirs.ID); w.Code != http.StatusNotFound {
			t.Errorf("%s: a tenant's sandbox is removed by who did not ask to reach it: status %d", by, w.Code)
		}
	}
	for name, token := range map[string]string{
		"a tenant": secret(api.TokenRequest{Tenant: "acme", Scope: api.ScopeAdmin}), "reader": secret(api.TokenRequest{Scope: api.ScopeRead}),
		"bound": secret(api.TokenRequest{Scope: api.ScopeAdmin, Tree: "main"}),
	} {
		for _, target := range []string{"/v1/sandboxes", "/v1/tree", "/v1/snapshots", "/v1/images", "/v1/sandboxes/" + theirs.ID, "/v1/snapshots/" + snap.ID} {
			if w := askAs(remote, token, "GET", target+"?all_tenants=true", ""); w.Code != http.StatusForbidden {
				t.Errorf("%s: GET %s of all tenants: status %d %s", name, target, w.Code, w.Body)
			}
		}
	}
	if w := askAs(local, "", "DELETE", "/v1/sandboxes/"+theirs.ID+"?all_tenants=true", ""); w.Code != http.StatusNoContent {
		t.Errorf("the owner removes a tenant's sandbox: status %d %s", w.Code, w.Body)
	}
	if w := askAs(remote, admin, "DELETE", "/v1/snapshots/"+snap.ID+"?all_tenants=true", ""); w.Code != http.StatusNoContent {
		t.Errorf("an operator removes a tenant's snapshot: status %d %s", w.Code, w.Body)
	}
	if list, err := n.Machine.List(harness.AsTenant("acme"), api.ListFilter{}); err != nil || len(list) != 0 {
		t.Errorf("the tenant still has %+v, %v", list, err)
	}
	entries, err := n.Machine.AuditEntries(harness.AsTenant("acme"), 0, 1000)
	told := func(action, object string) bool {
		return slices.ContainsFunc(entries, func(e api.AuditEntry) bool {
			return e.Action == action && e.Object == object && e.Of == "acme" && e.Tenant == who.DefaultTenant && e.Result == "ok"
		})
	}
	if err != nil || !told("destroy-sandbox", theirs.ID) || !told("delete-snapshot", snap.ID) {
		t.Errorf("the tenant's audit is %+v, %v", entries, err)
	}
}

// TestExportsCallImagesAsTheTenantDoes has another tenant and the owner call an image
// otherwise, and the tenant lose its name.
func TestExportsCallImagesAsTheTenantDoes(t *testing.T) {
	n := harness.NewNode(t)
	n.GiveImageAs("a", "ours")
	n.GiveImageAs("b", "theirs")
	ctx := harness.AsTenant("a")
	s, err := n.Machine.Create(ctx, api.CreateRequest{Image: "ours"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ours", s.Image} {
		var out bytes.Buffer
		if err := n.Machine.Export(ctx, s.ID, api.ExportRequest{Format: api.ExportOCI}, &out); err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(`"ramet image ([^"]*)"`).FindSubmatch(out.Bytes())
		if found == nil || string(found[1]) != want {
			t.Errorf("the image is called %q, not %q", found, want)
		}
		if want == s.Image {
			break
		}
		if err := n.Machine.RemoveImage(ctx, "ours"); err != nil { // the sandbox keeps the image itself
			t.Fatal(err)
		}
	}
	if err := n.Machine.Destroy(ctx, s.ID); err != nil {
		t.Error(err)
	}
}
