package integration

import (
	"fmt"
	"path/filepath"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
)

// TestRestart opens a new node while sandboxes run: they must not notice, and
// everything must be as it was, the memory that relatives hold included.
func TestRestart(t *testing.T) {
	const size, slack = 64, 24 // MiB
	ctx := asOwner
	n := newNode(t)
	n.create("parent")
	n.hold("parent", "-value", "zero", "-bulk", fmt.Sprint(size))
	before := n.privateMiB("parent")
	r, err := n.m.Fork(ctx, "parent", api.ForkRequest{Names: []string{"child", "paused"}})
	if err != nil {
		t.Fatal(err)
	}
	n.children(r)
	n.fork("child", 1)
	n.change("parent", "zero", "one")
	for name, memory := range map[string]bool{"disk": false, "memory": true} {
		if _, err := n.m.Snapshot(ctx, "child", api.SnapshotRequest{Name: name, Memory: memory}); err != nil {
			t.Fatal(err)
		}
	}
	n.change("child", "zero", "two")
	if _, err := n.m.Pause(ctx, "paused"); err != nil {
		t.Fatal(err)
	}
	names := n.names(t)

	for range 2 {
		n.reopen()
	}
	if now := n.names(t); fmt.Sprint(now) != fmt.Sprint(names) {
		t.Errorf("sandboxes were %v, are %v", names, now)
	}
	n.mustHold("parent", "one")
	n.mustHold("child", "two")
	if s, err := n.m.Get(ctx, "paused"); err != nil || s.State != api.StatePaused {
		t.Fatalf("paused is %+v (%v)", s, err)
	}
	if _, err := n.m.Resume(ctx, "paused"); err != nil {
		t.Fatal(err)
	}
	n.mustHold("paused", "zero")
	n.mustHold(n.fork("child", 1)[0].ID, "two")

	_, err = n.m.Restore(ctx, "memory", api.RestoreRequest{})
	wantCode(t, err, api.CodeWrongState)
	if r, err = n.m.Restore(ctx, "disk", api.RestoreRequest{}); err != nil {
		t.Fatal(err)
	}
	restored := n.children(r)[0].ID
	n.mustHold(restored, "zero")
	n.reopen() // once more, now with one that lives from the disk
	n.mustHold(restored, "zero")
	n.mustHold(n.fork(restored, 1)[0].ID, "zero")

	// The pins were found again: what the parent froze for its children is
	// given back with the last of them.
	if p := n.privateMiB("parent"); p < before+size-slack {
		t.Errorf("parent has %v MiB: what its children need is not there", p)
	}
	n.destroyAllBut("parent")
	eventually(t, "frozen memory of the parent", func() error {
		if p := n.privateMiB("parent"); p > before+slack {
			return fmt.Errorf("it has %v MiB, had %v before the fork", p, before)
		}
		return nil
	})
	n.mustHold("parent", "one")
}

// TestRestartWithoutSentry opens a new node after a sentry died unseen.
func TestRestartWithoutSentry(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("gone")
	if _, err := n.m.Snapshot(ctx, "gone", api.SnapshotRequest{Name: "saved"}); err != nil {
		t.Fatal(err)
	}
	n.create("other")
	pid := n.sentryOf("gone")
	if err := n.m.Close(); err != nil {
		t.Fatal(err)
	}
	n.killSentry(pid)
	n.open()
	n.guest("other", "true")
	s, err := n.m.Get(ctx, "gone")
	if err != nil || s.State != api.StateFailed || s.Reason == "" {
		t.Fatalf("gone is %+v (%v)", s, err)
	}
	if _, err := n.exec("gone", "true"); api.CodeOf(err) != api.CodeSandboxDied {
		t.Errorf("exec: %v", err)
	}
	if _, err := n.m.Rollback(ctx, "gone", "saved"); err != nil {
		t.Fatal(err)
	}
	n.guest("gone", "true")
}

// TestRestartAfterHalfPromotion opens a new node after one that died when it
// had told a child that it is its parent, and not recorded it yet.
func TestRestartAfterHalfPromotion(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.pool = 0
	n.reopen()
	box := n.create("box")
	if err := n.m.Close(); err != nil {
		t.Fatal(err)
	}
	sockets, err := filepath.Glob(filepath.Join(n.paths.Sandboxes(), "*.sock"))
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
	n.open()
	s, err := n.m.Get(ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	n.mustBe(s, 0)
}

// TestRestartWithRestored restores from one snapshot on disk before and after a
// restart. What was made then must not lose its records with what was made
// before, and all must go in the end.
func TestRestartWithRestored(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	n.hold("box", "-value", "zero", "-only", "heap,bulk")
	if _, err := n.m.Snapshot(ctx, "box", api.SnapshotRequest{Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	n.destroy("box")
	restore := func(name string) {
		t.Helper()
		r, err := n.m.Restore(ctx, "disk", api.RestoreRequest{Names: []string{name}})
		if err != nil {
			t.Fatal(err)
		}
		n.children(r)
	}
	restore("before")
	n.reopen()
	restore("after")
	n.destroy("before")
	n.reopen()
	n.mustHold("after", "zero")
	restore("again")
	n.destroy("again")
	restore("last")
	if err := n.m.DeleteSnapshot(ctx, "disk", api.SnapshotDeletion{}); err != nil {
		t.Fatal(err)
	}
	n.destroy("after")
	n.reopen()
	n.mustHold("last", "zero")
	n.mustHold(n.fork("last", 1)[0].ID, "zero")
	n.destroyAll()
	if freezes := n.count("freezes"); freezes != 0 {
		t.Errorf("%d freezes are left in the records", freezes)
	}
}
