package process

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestCancel cancels each operation at random moments. What was cancelled must
// leave nothing, and what was not must have happened.
func TestCancel(t *testing.T) {
	harness.OnlyOnce(t, "what is given up does not depend on who asked for it")
	n := harness.NewNode(t)
	n.Pool = 0
	n.Reopen() // so that all sentries are a sandbox's
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,files,child")
	if _, err := n.Machine.Snapshot(harness.AsOwner, "base", api.SnapshotRequest{Name: "start"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.Rollback(harness.AsOwner, "base", "start"); err != nil {
		t.Fatal(err) // from now on the snapshot's files are open
	}
	n.MustHold("base", "zero")
	idle := harness.OpenFiles(t)
	for _, op := range []struct {
		name string
		most harness.Window
		run  func(context.Context) error
	}{
		{"create", harness.Window(40 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.Machine.Create(ctx, api.CreateRequest{Image: "box", Name: "new"})
			return err
		}},
		{"fork", harness.Window(80 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.Machine.Fork(ctx, "base", api.ForkRequest{Count: 2, Names: []string{"new", "newer"}})
			return err
		}},
		{"restore", harness.Window(80 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.Machine.Restore(ctx, "start", api.RestoreRequest{Names: []string{"new"}})
			return err
		}},
		{"snapshot", harness.Window(60 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.Machine.Snapshot(ctx, "base", api.SnapshotRequest{Name: "new"})
			return err
		}},
		{"rollback", harness.Window(80 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.Machine.Rollback(ctx, "base", "start")
			return err
		}},
		{"commit", harness.Window(40 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.Machine.Commit(ctx, "base", api.CommitRequest{Name: "new"}, func(api.Progress) {})
			if err == nil {
				err = n.Machine.RemoveImage(harness.AsOwner, "new")
			} else if _, rerr := n.Machine.GetImage(harness.AsOwner, "new"); api.CodeOf(rerr) != api.CodeNotFound {
				t.Errorf("a cancelled commit left an image: %v", rerr)
			}
			return err
		}},
		{"export", harness.Window(20 * time.Millisecond), func(ctx context.Context) error {
			return n.Machine.Export(ctx, "base", api.ExportRequest{Format: api.ExportOCI}, io.Discard)
		}},
		{"exec", harness.Window(20 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.Machine.Exec(ctx, "base", api.ExecRequest{Argv: []string{"guest", "sleep", "1h"}}, harness.DiscardExec())
			return err
		}},
	} {
		t.Run(op.name, func(t *testing.T) { cancelOften(n, t, op.most, op.run, idle) })
	}
}

const cancelRounds = 12

func cancelOften(n *harness.Node, t *testing.T, most harness.Window, run func(context.Context) error, idle map[string]int) {
	rng := harness.Seeded(t)
	cancelled := 0
	for range cancelRounds {
		err := most.Cancelled(rng, run)
		snaps, listErr := n.Machine.Snapshots(harness.AsOwner)
		if listErr != nil {
			t.Fatal(listErr)
		}
		if err != nil {
			cancelled++
			harness.WantCode(t, err, api.CodeCanceled)
			if names := n.Names(t); len(names) != 1 || len(snaps) != 1 {
				t.Errorf("left sandboxes %v and %d snapshots", names, len(snaps))
			}
		}
		if err := n.Holds("base", "zero"); err != nil {
			t.Error(err)
		}
		destroyAllButStart(n)
		harness.Eventually(t, "sentries", func() error {
			if s := n.Sentries(); len(s) != 1 {
				return fmt.Errorf("%d are left", len(s))
			}
			return nil
		})
	}
	if cancelled == 0 {
		t.Error("nothing was cancelled: the test proves nothing")
	}
	harness.Eventually(t, "descriptors", func() error { return harness.MoreThan(idle, harness.OpenFiles(t)) })
	n.CheckSnapshots()
	harness.Eventually(t, "processes in the sandbox", func() error {
		list, err := n.Machine.Processes(harness.AsOwner, "base", false)
		if err != nil {
			return err
		}
		for _, p := range list {
			if p.Command == "guest sleep 1h" {
				return fmt.Errorf("a command is left: %+v", p)
			}
		}
		return nil
	})
}

// destroyAllButStart destroys all but the sandbox "base" and the snapshot
// "start".
func destroyAllButStart(n *harness.Node) {
	n.T.Helper()
	ctx := harness.AsOwner
	list, err := n.Machine.List(ctx, api.ListFilter{})
	if err != nil {
		n.T.Fatal(err)
	}
	for _, s := range list {
		if s.Name != "base" {
			n.Destroy(s.ID)
		}
	}
	snaps, err := n.Machine.Snapshots(ctx)
	if err != nil {
		n.T.Fatal(err)
	}
	for _, s := range slices.Backward(snaps) {
		if s.Name == "start" {
			continue
		}
		if err := n.Machine.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
			n.T.Error(err)
		}
	}
}
