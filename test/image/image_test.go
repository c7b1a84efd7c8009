package image

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/test/harness"
)

// TestImageIsRemovedMeanwhile removes an image while the only sandbox that needs
// it is being made: without it the sandbox could not be forked.
func TestImageIsRemovedMeanwhile(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Pool = 0 // so that the first sentry is that of the sandbox
	n.Reopen()
	while := func(what string, begin func() error, meanwhile func()) {
		t.Helper()
		done := harness.InBackground(begin)
		harness.Eventually(t, "a sentry", func() error {
			if len(n.Sentries()) == 0 {
				return errors.New("there is none")
			}
			return nil
		})
		meanwhile()
		harness.WantCode(t, n.Machine.RemoveImage(ctx, "box"), api.CodeConflict)
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		harness.WantCode(t, n.Machine.RemoveImage(ctx, "box"), api.CodeConflict)
		n.Destroy(n.Fork(what, 1)[0].ID)
	}
	while("created", func() error {
		_, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "created"})
		return err
	}, func() {})
	if _, err := n.Machine.Snapshot(ctx, "created", api.SnapshotRequest{Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	n.Destroy("created")
	while("restored", func() error {
		_, err := n.Machine.Restore(ctx, "disk", api.RestoreRequest{Names: []string{"restored"}})
		return err
	}, func() {
		if err := n.Machine.DeleteSnapshot(ctx, "disk", api.SnapshotDeletion{}); err != nil {
			t.Error(err)
		}
	})
	n.Destroy("restored")
	if err := n.Machine.RemoveImage(ctx, "box"); err != nil {
		t.Errorf("nobody needs it any more: %v", err)
	}
}

// TestImagesWithoutANameArePruned has a name move to another image while a sandbox
// needs the one that had it.
func TestImagesWithoutANameArePruned(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("user")
	n.Guest("user", "edit", "put /new x")
	old, err := n.Machine.GetImage(ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	now, err := n.Machine.Commit(ctx, "user", api.CommitRequest{Name: "box", Replace: true}, func(api.Progress) {})
	if err != nil || now.ID == old.ID {
		t.Fatalf("%+v, %v", now, err)
	}
	prune := func(want ...string) {
		t.Helper()
		p, err := n.Machine.PruneImages(ctx, api.PruneRequest{})
		if err != nil || !slices.Equal(p.Removed, append([]string{}, want...)) || (p.FreedBytes > 0) != (len(want) > 0) {
			t.Errorf("pruned are %+v, %v, not %q", p, err, want)
		}
	}
	prune()
	n.Destroy("user")
	prune(old.ID)
	prune()
	_, err = n.Machine.GetImage(ctx, old.ID)
	harness.WantCode(t, err, api.CodeNotFound)
	n.Create("later")
	n.CheckImages()
}

// TestSecondDaemonTouchesNothing opens a node on the data directory of
// another one: it must be refused before it collects what looks abandoned.
func TestSecondDaemonTouchesNothing(t *testing.T) {
	n := harness.NewNode(t)
	abandoned := filepath.Join(n.Paths.Images(), "blobs", ".tmp-import")
	if err := os.WriteFile(abandoned, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := machine.Open(harness.AsOwner, n.Config())
	harness.WantCode(t, err, api.CodeConflict)
	if _, err := os.Stat(abandoned); err != nil {
		t.Errorf("it was collected: %v", err)
	}
	n.Reopen()
	if _, err := os.Stat(abandoned); err == nil {
		t.Error("nobody collects it")
	}
}
