package snapshots

import (
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/transition/transitiontest"
)

// TestStates walks the table: a snapshot changes its state as the table says, each state
// can be reached, and nothing follows the last one.
func TestStates(t *testing.T) {
	transitiontest.Walk(t, States, api.SnapshotStates(), api.SnapshotDeleted, func(from api.SnapshotState, reason string, to api.SnapshotState, newReason string) (api.SnapshotState, string, error) {
		c := condition{state: from, reason: reason}
		err := c.become("snap", to, newReason)
		return c.state, c.reason, err
	})
}

// TestStatesAreDrawn compares the drawing in the documents with the table.
func TestStatesAreDrawn(t *testing.T) {
	transitiontest.Drawn(t, States, "../../../docs/architecture/states.md")
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
