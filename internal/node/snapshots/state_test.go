package snapshots

import (
	"os"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestStates walks the table: a snapshot changes its state as the table says, each state
// can be reached, and nothing follows the last one.
func TestStates(t *testing.T) {
	all := append([]api.SnapshotState{"", api.SnapshotDeleted}, api.SnapshotStates()...)
	reached := []api.SnapshotState{""}
	for range all {
		for _, s := range States.Steps() {
			if slices.Contains(reached, s.From) && !slices.Contains(reached, s.To) {
				reached = append(reached, s.To)
			}
		}
	}
	for _, from := range all {
		if !slices.Contains(reached, from) {
			t.Errorf("no transitions lead to %q", from)
		}
		for _, to := range all {
			c := condition{state: from, reason: "before"}
			err := c.become("snap", to, "after")
			want := condition{state: from, reason: "before"}
			if err == nil {
				want = condition{state: to, reason: "after"}
			}
			if (err == nil) != States.Allows(from, to) || c.state != want.state || c.reason != want.reason {
				t.Errorf("%q to %q: %v, %q because of %q", from, to, err, c.state, c.reason)
			}
			if err == nil && (from == api.SnapshotDeleted || to == "") {
				t.Errorf("%q becomes %q", from, to)
			}
		}
	}
}

// TestStatesAreDrawn compares the drawing in the documents with the table.
func TestStatesAreDrawn(t *testing.T) {
	text, err := os.ReadFile("../../../docs/architecture/states.md")
	if err != nil {
		t.Fatal(err)
	}
	if drawing := "```mermaid\n" + States.String() + "```\n"; !strings.Contains(string(text), drawing) {
		t.Errorf("docs/architecture/states.md does not have the drawing\n%s", drawing)
	}
}

// TestUnfinishedSnapshotsFail loads what an earlier daemon was making, and removes one that
// nobody needs.
func TestUnfinishedSnapshotsFail(t *testing.T) {
	ctx, before := t.Context(), setOf(t)
	for id, snap := range map[string]api.Snapshot{
		"snap_creating":  {State: api.SnapshotCreating},
		"snap_uploading": {State: api.SnapshotUploading, OnDisk: true},
		"snap_memory":    {State: api.SnapshotReady},
		"snap_disk":      {State: api.SnapshotReady, OnDisk: true},
	} {
		snap.ID = id
		if err := before.store.Apply(ctx, before.Load(Record{Snapshot: snap, Ancestors: []string{"sbx"}}).Stored()); err != nil {
			t.Fatal(err)
		}
	}
	set := setOf(t)
	set.store = before.store
	changes, err := set.Recover(ctx)
	if err != nil || len(changes) != 3 {
		t.Errorf("%d records change: %v", len(changes), err)
	}
	for _, s := range set.All() {
		v := s.View()
		want := api.SnapshotFailed
		if s.ID == "snap_disk" {
			want = api.SnapshotReady
		}
		if v.State != want || (v.Reason == "") != (want == api.SnapshotReady) {
			t.Errorf("%s is %s: %s", s.ID, v.State, v.Reason)
		}
	}
	s := set.Get("snap_disk")
	set.Expire(s.ID)
	if set.Get(s.ID) != nil || s.State() != api.SnapshotDeleted {
		t.Errorf("an expired snapshot that nobody needs is %s", s.State())
	}
	if _, err := s.Open(ctx); api.CodeOf(err) != api.CodeWrongState {
		t.Errorf("it is opened: %v", err)
	}
}
