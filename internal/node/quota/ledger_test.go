package quota

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/storage/store"
)

func TestCheck(t *testing.T) {
	full := api.Consumption{Sandboxes: 5, MemoryMiB: 100.5, DiskMiB: 100, CPUSeconds: 60}
	for name, c := range map[string]struct {
		q     api.Quota
		ask   Ask
		limit string
	}{
		"no quota":                 {api.Quota{}, Ask{Sandboxes: 1000, Depth: 100}, ""},
		"room for one":             {api.Quota{Sandboxes: 6}, Ask{Sandboxes: 1}, ""},
		"room for one of two":      {api.Quota{Sandboxes: 6}, Ask{Sandboxes: 2}, "sandboxes"},
		"full, and none asked for": {api.Quota{Sandboxes: 5}, Ask{}, ""},
		"deep":                     {api.Quota{Depth: 3}, Ask{Sandboxes: 1, Depth: 3}, ""},
		"too deep":                 {api.Quota{Depth: 3}, Ask{Sandboxes: 1, Depth: 4}, "depth"},
		"memory":                   {api.Quota{MemoryMiB: 100}, Ask{Sandboxes: 1}, "memory_mib"},
		"memory left":              {api.Quota{MemoryMiB: 101}, Ask{Sandboxes: 1}, ""},
		"disk":                     {api.Quota{DiskMiB: 100}, Ask{Disk: true}, "disk_mib"},
		"disk, and none written":   {api.Quota{DiskMiB: 100}, Ask{}, ""},
		"processor":                {api.Quota{CPUSeconds: 60}, Ask{}, "cpu_seconds"},
		"processor left":           {api.Quota{CPUSeconds: 61}, Ask{Sandboxes: 1}, ""},
	} {
		err := Check("tenant a", c.q, full, c.ask)
		var e *api.Error
		if got := ""; err != nil {
			if errors.As(err, &e) && e.Code == api.CodeLimit && e.Exceeded != nil && e.Exceeded.Of == "tenant a" {
				got = e.Exceeded.Limit
			}
			if got != c.limit || got == "" {
				t.Errorf("%s: %v", name, err)
			}
		} else if c.limit != "" {
			t.Errorf("%s: it was allowed", name)
		}
	}
}

func TestLedgerOutlivesTheDaemon(t *testing.T) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "db")
	s, err := store.Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Set(ctx, "a", api.TenantUpdate{Quota: &api.Quota{Sandboxes: 3}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Set(ctx, "a", api.TenantUpdate{Tree: &api.Quota{Depth: 2}}, nil); err != nil {
		t.Fatal(err)
	}
	max := policy.Bound{Of: "tenant a", Document: api.NetworkPolicy{Allow: []api.NetworkRule{{Profile: "git-hosts"}}}, Profiles: map[string]api.NetworkPolicy{"git-hosts": {Allow: []api.NetworkRule{{Address: "git.example.com"}}}}}
	if err := l.Set(ctx, "a", api.TenantUpdate{NetworkMax: &api.NetworkRequest{}}, &max); err != nil {
		t.Fatal(err)
	}
	if err := l.Set(ctx, "a", api.TenantUpdate{Quota: &api.Quota{Sandboxes: 3, NetworkMbit: 4}}, nil); err != nil { // the bound stays
		t.Fatal(err)
	}
	l.Spend("a", "t1", "p1", 2)
	l.Spend("a", "t1", "p1", 3)
	l.Spend("a", "t2", "p2", 1)
	l.Spend("a", "t2", "p2", 0.5) // it cannot become less
	alive := map[string]bool{"t1": true, "p1": true}
	lives := func(id string) bool { return alive[id] }
	if err := l.Save(ctx, lives, lives); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if s, err = store.Open(ctx, path); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if l, err = Open(ctx, s); err != nil {
		t.Fatal(err)
	}
	all, tree := l.Quotas("a")
	if all != (api.Quota{Sandboxes: 3, NetworkMbit: 4}) || tree != (api.Quota{Depth: 2}) {
		t.Errorf("quotas %+v, %+v", all, tree)
	}
	if got := l.NetworkMax("a"); !reflect.DeepEqual(got, &max) || l.NetworkMax("b") != nil {
		t.Errorf("the bound is %+v", got)
	}
	if err := l.Set(ctx, "a", api.TenantUpdate{NoNetworkMax: true}, nil); err != nil || l.NetworkMax("a") != nil {
		t.Errorf("the bound is %+v, %v", l.NetworkMax("a"), err)
	}
	l.Spend("a", "t1", "p1", 4)
	if all, tree := l.Spent("a", "t1"); all != 5 || tree != 4 {
		t.Errorf("spent %v, %v", all, tree)
	}
	if _, gone := l.Spent("a", "t2"); gone != 0 {
		t.Errorf("a tree that is gone has %v", gone)
	}
}
