package integration

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// TestCancel cancels each operation at random moments. What was cancelled must
// leave nothing, and what was not must have happened.
func TestCancel(t *testing.T) {
	n := newNode(t)
	n.pool = 0
	n.reopen() // so that all sentries are a sandbox's
	n.create("base")
	n.hold("base", "-value", "zero", "-only", "heap,files,child")
	if _, err := n.m.Snapshot(asOwner, "base", api.SnapshotRequest{Name: "start"}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.m.Rollback(asOwner, "base", "start"); err != nil {
		t.Fatal(err) // from now on the snapshot's files are open
	}
	n.mustHold("base", "zero")
	idle := openFiles(t)
	for _, op := range []struct {
		name string
		most window
		run  func(context.Context) error
	}{
		{"create", window(40 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.m.Create(ctx, api.CreateRequest{Image: "box", Name: "new"})
			return err
		}},
		{"fork", window(80 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.m.Fork(ctx, "base", api.ForkRequest{Count: 2, Names: []string{"new", "newer"}})
			return err
		}},
		{"restore", window(80 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.m.Restore(ctx, "start", api.RestoreRequest{Names: []string{"new"}})
			return err
		}},
		{"snapshot", window(60 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.m.Snapshot(ctx, "base", api.SnapshotRequest{Name: "new"})
			return err
		}},
		{"rollback", window(80 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.m.Rollback(ctx, "base", "start")
			return err
		}},
		{"commit", window(40 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.m.Commit(ctx, "base", api.CommitRequest{Name: "new"}, func(api.Progress) {})
			if err == nil {
				err = n.m.RemoveImage(asOwner, "new")
			} else if _, rerr := n.m.GetImage(asOwner, "new"); api.CodeOf(rerr) != api.CodeNotFound {
				t.Errorf("a cancelled commit left an image: %v", rerr)
			}
			return err
		}},
		{"export", window(20 * time.Millisecond), func(ctx context.Context) error {
			return n.m.Export(ctx, "base", api.ExportRequest{Format: api.ExportOCI}, io.Discard)
		}},
		{"exec", window(20 * time.Millisecond), func(ctx context.Context) error {
			_, err := n.m.Exec(ctx, "base", api.ExecRequest{Argv: []string{"guest", "sleep", "1h"}}, discard())
			return err
		}},
	} {
		t.Run(op.name, func(t *testing.T) { n.cancelOften(t, op.most, op.run, idle) })
	}
}

const cancelRounds = 12

func (n *testNode) cancelOften(t *testing.T, most window, run func(context.Context) error, idle map[string]int) {
	rng := seeded(t)
	cancelled := 0
	for range cancelRounds {
		err := most.cancelled(rng, run)
		snaps, listErr := n.m.Snapshots(asOwner)
		if listErr != nil {
			t.Fatal(listErr)
		}
		if err != nil {
			cancelled++
			wantCode(t, err, api.CodeCanceled)
			if names := n.names(t); len(names) != 1 || len(snaps) != 1 {
				t.Errorf("left sandboxes %v and %d snapshots", names, len(snaps))
			}
		}
		if err := n.holds("base", "zero"); err != nil {
			t.Error(err)
		}
		n.destroyAllButStart()
		eventually(t, "sentries", func() error {
			if s := n.sentries(); len(s) != 1 {
				return fmt.Errorf("%d are left", len(s))
			}
			return nil
		})
	}
	if cancelled == 0 {
		t.Error("nothing was cancelled: the test proves nothing")
	}
	eventually(t, "descriptors", func() error { return moreThan(idle, openFiles(t)) })
	n.checkSnapshots()
	eventually(t, "processes in the sandbox", func() error {
		list, err := n.m.Processes(asOwner, "base", false)
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

// window is how long an operation takes at most, about: it comes closer with each run.
type window time.Duration

// cancelled cancels an operation at a random moment within the window.
func (w *window) cancelled(rng *rand.Rand, run func(context.Context) error) error {
	ctx, cancel := context.WithCancel(asOwner)
	defer cancel()
	defer time.AfterFunc(time.Duration(rng.Int64N(int64(*w))), cancel).Stop()
	err := run(ctx)
	if err == nil {
		*w = max(*w*3/4, window(time.Millisecond))
	} else {
		*w = *w * 4 / 3
	}
	return err
}

// names returns the names or ids of all sandboxes.
func (n *testNode) names(t testing.TB) []string {
	t.Helper()
	list, err := n.m.List(asOwner, api.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list {
		names = append(names, s.Name+"/"+s.ID)
	}
	return names
}

// destroyAllButStart destroys all but the sandbox "base" and the snapshot
// "start".
func (n *testNode) destroyAllButStart() {
	n.t.Helper()
	ctx := asOwner
	list, err := n.m.List(ctx, api.ListFilter{})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, s := range list {
		if s.Name != "base" {
			n.destroy(s.ID)
		}
	}
	snaps, err := n.m.Snapshots(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, s := range slices.Backward(snaps) {
		if s.Name == "start" {
			continue
		}
		if err := n.m.DeleteSnapshot(ctx, s.ID, api.SnapshotDeletion{}); err != nil {
			n.t.Error(err)
		}
	}
}
