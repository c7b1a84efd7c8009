package integration

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/machine"
)

// TestImageIsRemovedMeanwhile removes an image while the only sandbox that needs
// it is being made: without it the sandbox could not be forked.
func TestImageIsRemovedMeanwhile(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.pool = 0 // so that the first sentry is that of the sandbox
	n.reopen()
	while := func(what string, begin func() error, meanwhile func()) {
		t.Helper()
		done := inBackground(begin)
		eventually(t, "a sentry", func() error {
			if len(n.sentries()) == 0 {
				return errors.New("there is none")
			}
			return nil
		})
		meanwhile()
		wantCode(t, n.m.RemoveImage(ctx, "box"), api.CodeConflict)
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		wantCode(t, n.m.RemoveImage(ctx, "box"), api.CodeConflict)
		n.destroy(n.fork(what, 1)[0].ID)
	}
	while("created", func() error {
		_, err := n.m.Create(ctx, api.CreateRequest{Image: "box", Name: "created"})
		return err
	}, func() {})
	if _, err := n.m.Snapshot(ctx, "created", api.SnapshotRequest{Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	n.destroy("created")
	while("restored", func() error {
		_, err := n.m.Restore(ctx, "disk", api.RestoreRequest{Names: []string{"restored"}})
		return err
	}, func() {
		if err := n.m.DeleteSnapshot(ctx, "disk", api.SnapshotDeletion{}); err != nil {
			t.Error(err)
		}
	})
	n.destroy("restored")
	if err := n.m.RemoveImage(ctx, "box"); err != nil {
		t.Errorf("nobody needs it any more: %v", err)
	}
}

// TestImagesWithoutANameArePruned has a name move to another image while a sandbox
// needs the one that had it.
func TestImagesWithoutANameArePruned(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("user")
	n.guest("user", "edit", "put /new x")
	old, err := n.m.GetImage(ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	now, err := n.m.Commit(ctx, "user", api.CommitRequest{Name: "box", Replace: true}, func(api.Progress) {})
	if err != nil || now.ID == old.ID {
		t.Fatalf("%+v, %v", now, err)
	}
	prune := func(want ...string) {
		t.Helper()
		p, err := n.m.PruneImages(ctx, api.PruneRequest{})
		if err != nil || !slices.Equal(p.Removed, append([]string{}, want...)) || (p.FreedBytes > 0) != (len(want) > 0) {
			t.Errorf("pruned are %+v, %v, not %q", p, err, want)
		}
	}
	prune()
	n.destroy("user")
	prune(old.ID)
	prune()
	_, err = n.m.GetImage(ctx, old.ID)
	wantCode(t, err, api.CodeNotFound)
	n.create("later")
	n.checkImages()
}

// inBackground runs f and passes on its result.
func inBackground(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// TestSecondDaemonTouchesNothing opens a node on the data directory of
// another one: it must be refused before it collects what looks abandoned.
func TestSecondDaemonTouchesNothing(t *testing.T) {
	n := newNode(t)
	abandoned := filepath.Join(n.paths.Images(), "blobs", ".tmp-import")
	if err := os.WriteFile(abandoned, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := machine.Open(asOwner, n.config())
	wantCode(t, err, api.CodeConflict)
	if _, err := os.Stat(abandoned); err != nil {
		t.Errorf("it was collected: %v", err)
	}
	n.reopen()
	if _, err := os.Stat(abandoned); err == nil {
		t.Error("nobody collects it")
	}
}
