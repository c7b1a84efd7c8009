package node

import (
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/service/access"
)

// TestUsersOfAnImage has an image used by what the caller sees, and by what it does not.
func TestUsersOfAnImage(t *testing.T) {
	m, named := nodeOf(t, nil)
	unnamed, other := boxIn(t, m, nil), boxIn(t, m, nil)
	for _, b := range []*instance{named, unnamed, other} {
		b.rec.Sandbox.Image = "img"
	}
	named.rec.Sandbox.Name, other.rec.Sandbox.Tenant = "agent", "other"
	for id, private := range map[string]string{"snap_kept": "", "snap_hibernated": named.id} {
		m.snapshots.Load(snapshots.Record{Snapshot: api.Snapshot{ID: id, Image: "img"}, Ancestors: []string{named.id}, Private: private})
	}
	for caller, want := range map[access.Caller][]string{
		access.Owner(0):    {"sandbox " + unnamed.id, "sandbox agent", "snapshot snap_kept"},
		{Tenant: "other"}:  {"sandbox " + other.id},
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
