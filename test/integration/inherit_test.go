package integration

import (
	"testing"

	"ramet.dev/ramet/internal/sandbox"
)

// TestInherit forks, forks the fork, snapshots to disk and restores, rolls back
// and promotes a sandbox with every kind of state, and checks after each step
// that all of it is there and that no two sandboxes share any.
func TestInherit(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("parent")
	n.hold("parent", "-value", "zero")
	r, err := n.ask("parent")
	if err != nil {
		t.Fatal(err)
	}
	const kinds = 35 // of state, see the guest program
	if err := r.check("parent", "", "zero"); err != nil || len(r.Values) != kinds {
		t.Fatalf("parent holds %d kinds of state, not %d: %v", len(r.Values), kinds, err)
	}

	child := n.fork("parent", 2)
	one, other := child[0].ID, child[1].ID
	n.change(one, "zero", "one")
	n.change("parent", "zero", "two")
	n.mustHold(other, "zero")

	grandchild := n.fork(one, 1)[0].ID
	n.change(grandchild, "one", "three")
	n.change(one, "one", "four")

	if _, err := n.m.Snapshot(ctx, grandchild, sandbox.SnapshotRequest{Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	n.change(grandchild, "three", "five")
	fromDisk, err := n.m.Restore(ctx, "disk", sandbox.RestoreRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	restored := n.children(fromDisk)
	n.change(restored[0].ID, "three", "six")
	n.mustHold(n.fork(restored[0].ID, 1)[0].ID, "six")

	for ref, want := range map[string]string{
		"parent": "two", one: "four", other: "zero",
		grandchild: "five", restored[0].ID: "six", restored[1].ID: "three",
	} {
		n.mustHold(ref, want)
	}

	if _, err := n.m.Rollback(ctx, grandchild, "disk"); err != nil {
		t.Fatal(err)
	}
	n.change(grandchild, "three", "seven")
	for _, c := range []struct{ child, parent string }{{grandchild, one}, {one, "parent"}} {
		if _, err := n.m.Promote(ctx, c.child); err != nil {
			t.Fatal(err)
		}
		n.mustHold(c.parent, "seven")
	}
	n.mustHold(n.fork("parent", 1)[0].ID, "seven")
}

// TestForkUnderLoad forks a sandbox while a command of it is being talked to:
// the caller must see neither a gap nor an echo.
func TestForkUnderLoad(t *testing.T) {
	n := newNode(t)
	n.create("busy")
	talk := n.converse("busy")
	for range 5 {
		forked := make(chan *sandbox.ForkResult, 1)
		go func() {
			defer close(forked)
			r, err := n.m.Fork(asOwner, "busy", sandbox.ForkRequest{Count: 2})
			if err != nil {
				t.Error(err)
				return
			}
			forked <- r
		}()
		var r *sandbox.ForkResult
		for r == nil && !t.Failed() {
			talk.next()
			select {
			case r = <-forked:
			default:
			}
		}
		talk.next()
		for _, c := range n.children(r) {
			if out := n.guest(c.ID, "say", "hello"); out != "hello\n" {
				t.Errorf("child says %q", out)
			}
			n.destroy(c.ID)
		}
	}
	if talk.said < 20 {
		t.Errorf("only %d lines were exchanged: the test proves nothing", talk.said)
	}
	talk.end()
}
