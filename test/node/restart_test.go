package node

import (
	"fmt"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/test/harness"
)

// TestRestart opens a new node while sandboxes run: they must not notice, and
// everything must be as it was, the memory that relatives hold included.
func TestRestart(t *testing.T) {
	const size, slack = 64, 24 // MiB
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("parent")
	n.Hold("parent", "-value", "zero", "-bulk", fmt.Sprint(size))
	before := n.PrivateMiB("parent")
	r, err := n.Machine.Fork(ctx, "parent", api.ForkRequest{Names: []string{"child", "paused"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	n.Fork("child", 1)
	n.Change("parent", "zero", "one")
	for name, memory := range map[string]bool{"disk": false, "memory": true} {
		if _, err := n.Machine.Snapshot(ctx, "child", api.SnapshotRequest{Name: name, Memory: memory}); err != nil {
			t.Fatal(err)
		}
	}
	n.Change("child", "zero", "two")
	if _, err := n.Machine.Pause(ctx, "paused"); err != nil {
		t.Fatal(err)
	}
	names := n.Names(t)

	for range 2 {
		n.Reopen()
	}
	if now := n.Names(t); fmt.Sprint(now) != fmt.Sprint(names) {
		t.Errorf("sandboxes were %v, are %v", names, now)
	}
	n.MustHold("parent", "one")
	n.MustHold("child", "two")
	if s, err := n.Machine.Get(ctx, "paused"); err != nil || s.State != api.StatePaused {
		t.Fatalf("paused is %+v (%v)", s, err)
	}
	if _, err := n.Machine.Resume(ctx, "paused"); err != nil {
		t.Fatal(err)
	}
	n.MustHold("paused", "zero")
	n.MustHold(n.Fork("child", 1)[0].ID, "two")

	_, err = n.Machine.Restore(ctx, "memory", api.RestoreRequest{})
	harness.WantCode(t, err, api.CodeWrongState)
	if r, err = n.Machine.Restore(ctx, "disk", api.RestoreRequest{}); err != nil {
		t.Fatal(err)
	}
	restored := n.Children(r)[0].ID
	n.MustHold(restored, "zero")
	n.Reopen() // once more, now with one that lives from the disk
	n.MustHold(restored, "zero")
	n.MustHold(n.Fork(restored, 1)[0].ID, "zero")

	// The pins were found again: what the parent froze for its children is
	// given back with the last of them.
	if p := n.PrivateMiB("parent"); p < before+size-slack {
		t.Errorf("parent has %v MiB: what its children need is not there", p)
	}
	n.DestroyAllBut("parent")
	harness.Eventually(t, "frozen memory of the parent", func() error {
		if p := n.PrivateMiB("parent"); p > before+slack {
			return fmt.Errorf("it has %v MiB, had %v before the fork", p, before)
		}
		return nil
	})
	n.MustHold("parent", "one")
}

// TestRestartWithoutSentry opens a new node after a sentry died unseen.
func TestRestartWithoutSentry(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("gone")
	if _, err := n.Machine.Snapshot(ctx, "gone", api.SnapshotRequest{Name: "saved"}); err != nil {
		t.Fatal(err)
	}
	n.Create("other")
	pid := sentryOf(n, "gone")
	if err := n.Machine.Close(); err != nil {
		t.Fatal(err)
	}
	killSentry(n, pid)
	n.Open()
	n.Guest("other", "true")
	s, err := n.Machine.Get(ctx, "gone")
	if err != nil || s.State != api.StateFailed || s.Reason == "" {
		t.Fatalf("gone is %+v (%v)", s, err)
	}
	if _, err := n.Exec("gone", "true"); api.CodeOf(err) != api.CodeSandboxDied {
		t.Errorf("exec: %v", err)
	}
	if _, err := n.Machine.Rollback(ctx, "gone", "saved"); err != nil {
		t.Fatal(err)
	}
	n.Guest("gone", "true")
}

// TestRestartAfterHalfPromotion opens a new node after one that died when it
// had told a child that it is its parent, and not recorded it yet.
func TestRestartAfterHalfPromotion(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Pool = 0
	n.Reopen()
	box := n.Create("box")
	if err := n.Machine.Close(); err != nil {
		t.Fatal(err)
	}
	sockets, err := filepath.Glob(filepath.Join(n.Paths.Sandboxes(), "*.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets are %v (%v)", sockets, err)
	}
	c, err := wire.Dial(sockets[0])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Finish()
	other := wire.Common{ID: api.NewID(api.KindSandbox), Hostname: "other", MachineID: box.Identity.MachineID}
	if err := c.SendJSON(wire.TypeCall, wire.Call{Op: wire.OpIdentify, Identify: &other}); err != nil {
		t.Fatal(err)
	}
	if p, err := c.Receive(); err != nil || p.Type != wire.TypeReply {
		t.Fatalf("identify: %+v %v", p, err)
	}
	n.Open()
	s, err := n.Machine.Get(ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	n.MustBe(s, 0)
}

// TestRestartWithRestored restores from one snapshot on disk before and after a
// restart. What was made then must not lose its records with what was made
// before, and all must go in the end.
func TestRestartWithRestored(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	n.Hold("box", "-value", "zero", "-only", "heap,bulk")
	if _, err := n.Machine.Snapshot(ctx, "box", api.SnapshotRequest{Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	n.Destroy("box")
	restore := func(name string) {
		t.Helper()
		r, err := n.Machine.Restore(ctx, "disk", api.RestoreRequest{Names: []string{name}})
		if err != nil {
			t.Fatal(err)
		}
		n.Children(r)
	}
	restore("before")
	n.Reopen()
	restore("after")
	n.Destroy("before")
	n.Reopen()
	n.MustHold("after", "zero")
	restore("again")
	n.Destroy("again")
	restore("last")
	if err := n.Machine.DeleteSnapshot(ctx, "disk", api.SnapshotDeletion{}); err != nil {
		t.Fatal(err)
	}
	n.Destroy("after")
	n.Reopen()
	n.MustHold("last", "zero")
	n.MustHold(n.Fork("last", 1)[0].ID, "zero")
	n.DestroyAll()
	if freezes := n.Count("freezes"); freezes != 0 {
		t.Errorf("%d freezes are left in the records", freezes)
	}
}
