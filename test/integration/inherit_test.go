package integration

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
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
	const kinds = 37 // of state, see the guest program
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

	if _, err := n.m.Snapshot(ctx, grandchild, api.SnapshotRequest{Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	n.change(grandchild, "three", "five")
	fromDisk, err := n.m.Restore(ctx, "disk", api.RestoreRequest{Count: 2})
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
		forked := make(chan *api.ForkResult, 1)
		go func() {
			defer close(forked)
			r, err := n.m.Fork(asOwner, "busy", api.ForkRequest{Count: 2})
			if err != nil {
				t.Error(err)
				return
			}
			forked <- r
		}()
		var r *api.ForkResult
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

// TestForkWhileMemoryIsWritten forks a sandbox with a process that writes to all of its
// memory all the time. Its mappings are taken away while it does so: no store may be lost,
// in it and in children, nor be seen in the other.
func TestForkWhileMemoryIsWritten(t *testing.T) {
	n := newNode(t)
	n.create("busy")
	n.guest("busy", "sweep", "64", "/tmp/round")
	rounds := func(ref string) int {
		t.Helper()
		text := strings.TrimSpace(n.guest(ref, "cat", "/tmp/round"))
		round, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %s", ref, text)
		}
		return round
	}
	goesOn := func(ref string, from int) {
		t.Helper()
		eventually(t, ref+" goes on", func() error {
			if now := rounds(ref); now < from+3 {
				return fmt.Errorf("it is in round %d, and was in %d", now, from)
			}
			return nil
		})
	}
	eventually(t, "the first round is over", func() error {
		out, err := n.exec("busy", "cat", "/tmp/round")
		if err == nil && out.ExitCode != 0 {
			err = errors.New(out.stderr.String())
		}
		return err
	})
	for range 4 {
		before := rounds("busy")
		r, err := n.m.Fork(asOwner, "busy", api.ForkRequest{Count: 2})
		if err != nil {
			t.Fatal(err)
		}
		goesOn("busy", rounds("busy"))
		for _, c := range n.children(r) {
			goesOn(c.ID, before)
			n.destroy(c.ID)
		}
	}
}

// TestClosedConnectionsAreForgotten looks at how much a snapshot has of connections that
// were closed: with each the pause of a fork would be longer, for a minute.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	n := newNode(t)
	n.create("box")
	snapshot := func() int64 {
		t.Helper()
		s, err := n.m.Snapshot(asOwner, "box", api.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return s.SizeBytes
	}
	n.guest("box", "calls", "1")
	snapshot()
	before := snapshot() // what differs from the first
	n.guest("box", "calls", "500")
	eventually(t, "connections are forgotten", func() error {
		if now := snapshot(); now > before+200<<10 {
			return fmt.Errorf("a snapshot has %d KiB, and had %d", now>>10, before>>10)
		}
		return nil
	})
}

// TestConnectionsAreCountedOnce compares how many connections there are, as programs are
// told, in generations of a sandbox.
func TestConnectionsAreCountedOnce(t *testing.T) {
	n := newNode(t)
	n.create("box")
	n.hold("box", "-value", "one", "-only", "tcp")
	established := func(ref string) string {
		t.Helper()
		lines := strings.Split(n.guest(ref, "cat", "/proc/net/snmp"), "\n")
		for i, l := range lines {
			if names := strings.Fields(l); i+1 < len(lines) && slices.Contains(names, "CurrEstab") {
				return strings.Fields(lines[i+1])[slices.Index(names, "CurrEstab")]
			}
		}
		t.Fatalf("%s: %q", ref, lines)
		return ""
	}
	want := established("box")
	if want == "0" {
		t.Fatal("the holder has no connection")
	}
	ref := "box"
	for generation := range 3 {
		ref = n.fork(ref, 1)[0].ID
		if got := established(ref); got != want {
			t.Errorf("generation %d has %s connections, the first %s", generation+1, got, want)
		}
	}
}
