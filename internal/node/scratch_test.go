package node

import (
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/nodetest"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/service/access"
)

// TestUsersOfAnImage has an image used by what the caller sees, and by what it does not.
func TestUsersOfAnImage(t *testing.T) {
	m, named := nodeOf(t, nil)
	unnamed, other := nodetest.Add(t, m.sandboxes, nil), nodetest.Add(t, m.sandboxes, nil)
	for _, b := range []*sandboxes.Instance{named, unnamed, other} {
		b.Amend(func(rec *sandboxes.Record) { rec.Sandbox.Image = "img" })
	}
	named.Amend(func(rec *sandboxes.Record) { rec.Sandbox.Name = "agent" })
	other.Amend(func(rec *sandboxes.Record) { rec.Sandbox.Tenant = "other" })
	for id, private := range map[string]string{"snap_kept": "", "snap_hibernated": named.ID} {
		m.snapshots.Load(snapshots.Record{Snapshot: api.Snapshot{ID: id, Image: "img"}, Ancestors: []string{named.ID}, Private: private})
	}
	for caller, want := range map[access.Caller][]string{
		access.Owner(0):    {"sandbox " + unnamed.ID, "sandbox agent", "snapshot snap_kept"},
		{Tenant: "other"}:  {"sandbox " + other.ID},
		{Tenant: "nobody"}: nil,
	} {
		used, by := m.imageUsers(caller, "img")
		slices.Sort(by)
		slices.Sort(want)
		if !used || !slices.Equal(by, want) {
			t.Errorf("tenant %s: used %t, by %q, not %q", caller.Tenant, used, by, want)
		}
	}
	if used, _ := m.imageUsers(access.Owner(0), "another"); used {
		t.Error("an image that nothing is made of is used")
	}
}
