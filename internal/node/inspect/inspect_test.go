package inspect_test

import (
	"slices"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/inspect"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/service/access"
)

// TestListByAncestor lists a tree in which a sandbox that has descendants is gone.
func TestListByAncestor(t *testing.T) {
	p := nodetest.New(t, nodetest.Options{})
	m := inspect.New(inspect.Config{Sandboxes: p.Sandboxes, Snapshots: p.Snapshots, Trees: p.Trees, Images: nodetest.Images{}, Clock: p.Clock})
	root := p.Add(t, nil)
	gone, snap := api.NewID(api.KindSandbox), api.NewID(api.KindSnapshot)
	if err := p.Sandboxes.Names.Reserve(access.DefaultTenant, []string{"base"}, []string{root.ID}); err != nil {
		t.Fatal(err)
	}
	snapshot := func(name string) *snapshots.Snapshot {
		return p.Snapshots.Load(snapshots.Record{
			Snapshot:  api.Snapshot{ID: api.NewID(api.KindSnapshot), Name: name, State: api.SnapshotReady},
			Ancestors: []string{root.ID},
		})
	}
	kept := snapshot("kept")
	snapshot("base") // of names that both have, the sandbox's counts
	names := map[string]string{root.ID: "base"}
	child := func(name, parent, from string, ancestors ...string) string {
		b := p.Add(t, nil)
		b.Amend(func(rec *sandboxes.Record) {
			rec.Sandbox.Parent, rec.Sandbox.Snapshot, rec.Ancestors = parent, from, ancestors
			rec.Sandbox.CreatedAt = time.Unix(int64(len(names)), 0)
		})
		names[b.ID] = name
		return b.ID
	}
	kid := child("kid", root.ID, "", root.ID)
	child("grandkid", kid, "", root.ID, kid)
	child("orphan", gone, "", root.ID, gone)
	child("restored", "", snap, root.ID, snap)
	child("again", "", kept.ID, root.ID, kept.ID)
	child("stranger", "", "")

	everything := access.Owner(0)
	inKid := access.Caller{Tenant: access.DefaultTenant, Scope: api.ScopeRead, Tree: kid}
	for _, c := range []struct {
		what   string
		caller access.Caller
		filter api.ListFilter
		want   []string // nil if there is no such ancestor
	}{
		{"children by name", everything, api.ListFilter{Parent: "base"}, []string{"kid"}},
		{"children by id", everything, api.ListFilter{Parent: root.ID}, []string{"kid"}},
		{"descendants", everything, api.ListFilter{Ancestor: "base"}, []string{"kid", "grandkid", "orphan", "restored", "again"}},
		{"of a snapshot by name", everything, api.ListFilter{Parent: "kept"}, []string{"again"}},
		{"descendants of a snapshot by name", everything, api.ListFilter{Ancestor: "kept"}, []string{"again"}},
		{"both", everything, api.ListFilter{Ancestor: root.ID, Parent: kid}, []string{"grandkid"}},
		{"of none", everything, api.ListFilter{Ancestor: kid, State: api.StateFailed}, []string{}},
		{"of one that is gone", everything, api.ListFilter{Parent: gone}, []string{"orphan"}},
		{"of a snapshot that is gone", everything, api.ListFilter{Parent: snap}, []string{"restored"}},
		{"of an unknown name", everything, api.ListFilter{Parent: "nobody"}, nil},
		{"of an unknown id", everything, api.ListFilter{Ancestor: api.NewID(api.KindSandbox)}, nil},
		{"in a tree", inKid, api.ListFilter{Ancestor: kid}, []string{"grandkid"}},
		{"above a tree", inKid, api.ListFilter{Ancestor: root.ID}, nil},
	} {
		list, err := m.List(access.With(t.Context(), c.caller), c.filter)
		if c.want == nil {
			if api.CodeOf(err) != api.CodeNotFound {
				t.Errorf("%s: %v, %v, want not_found", c.what, list, err)
			}
			continue
		}
		got := make([]string, len(list))
		for i, s := range list {
			got[i] = names[s.ID]
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.what, got, err, c.want)
		}
	}
}
