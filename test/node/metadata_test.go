package node

import (
	"maps"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestMetadata follows the metadata and the name of a sandbox through changes,
// forks, snapshots and a restart of the daemon.
func TestMetadata(t *testing.T) {
	n := harness.NewNode(t)
	ctx := harness.AsOwner
	if _, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Metadata: map[string]string{"a b": ""}}); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("create with a bad key: %v", err)
	}
	root, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "root", Metadata: map[string]string{"who": "root", "all": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	forked, err := n.Machine.Fork(ctx, "root", api.ForkRequest{Metadata: map[string]string{"who": "kid"}})
	if err != nil {
		t.Fatal(err)
	}
	kid := n.Children(forked)[0].ID
	value := "2"
	if _, err := n.Machine.Update(ctx, kid, api.UpdateRequest{Metadata: map[string]*string{"step": &value, "all": nil}}); err != nil {
		t.Fatal(err)
	}
	snap, err := n.Machine.Snapshot(ctx, kid, api.SnapshotRequest{Metadata: map[string]string{"kept": ""}})
	if err != nil {
		t.Fatal(err)
	}
	restored, err := n.Machine.Restore(ctx, snap.ID, api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	again := n.Children(restored)[0].ID

	taken, free := "root", "main"
	if _, err := n.Machine.Update(ctx, kid, api.UpdateRequest{Name: &taken}); api.CodeOf(err) != api.CodeNameTaken {
		t.Errorf("rename to a taken name: %v", err)
	}
	if _, err := n.Machine.Update(ctx, "root", api.UpdateRequest{Name: &free}); err != nil {
		t.Error(err)
	}
	if _, err := n.Machine.Update(ctx, "root", api.UpdateRequest{Name: &free}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("the old name is still known: %v", err)
	}
	if _, err := n.Machine.Update(ctx, kid, api.UpdateRequest{Name: &taken}); err != nil {
		t.Errorf("the old name is not free: %v", err)
	}

	n.Reopen()
	for id, want := range map[string]map[string]string{
		root.ID: {"who": "root", "all": "1"}, kid: {"who": "kid", "step": "2"}, again: {"who": "kid", "step": "2", "kept": ""},
	} {
		if sb, err := n.Machine.Get(ctx, id); err != nil || !maps.Equal(sb.Metadata, want) {
			t.Errorf("%s has %v (%v), want %v", id, sb.Metadata, err, want)
		}
	}
	for name, id := range map[string]string{"main": root.ID, "root": kid} {
		if sb, err := n.Machine.Get(ctx, name); err != nil || sb.ID != id {
			t.Errorf("%s is not %s: %v", name, id, err)
		}
	}
	for filter, want := range map[string]int{"who=kid": 2, "who=root": 1, "kept=": 1, "all=": 0} {
		k, v, _ := strings.Cut(filter, "=")
		list, err := n.Machine.List(ctx, api.ListFilter{Metadata: map[string]string{k: v}})
		if err != nil || len(list) != want {
			t.Errorf("%s lists %d (%v), want %d", filter, len(list), err, want)
		}
	}
}
