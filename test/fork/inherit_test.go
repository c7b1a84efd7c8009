package fork

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestInherit forks, forks the fork, snapshots to disk and restores, rolls back
// and promotes a sandbox with every kind of state, and checks after each step
// that all of it is there and that no two sandboxes share any.
func TestInherit(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("parent")
	n.Hold("parent", "-value", "zero")
	r, err := n.Ask("parent")
	if err != nil {
		t.Fatal(err)
	}
	const kinds = 39 // of state, see the guest program
	if err := r.Check("parent", "", "zero"); err != nil || len(r.Values) != kinds {
		t.Fatalf("parent holds %d kinds of state, not %d: %v", len(r.Values), kinds, err)
	}

	child := n.Fork("parent", 2)
	one, other := child[0].ID, child[1].ID
	n.Change(one, "zero", "one")
	n.Change("parent", "zero", "two")
	n.MustHold(other, "zero")

	grandchild := n.Fork(one, 1)[0].ID
	n.Change(grandchild, "one", "three")
	n.Change(one, "one", "four")

	if _, err := n.Machine.Snapshot(ctx, grandchild, api.SnapshotRequest{Name: "disk"}); err != nil {
		t.Fatal(err)
	}
	n.Change(grandchild, "three", "five")
	fromDisk, err := n.Machine.Restore(ctx, "disk", api.RestoreRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	restored := n.Children(fromDisk)
	n.Change(restored[0].ID, "three", "six")
	n.MustHold(n.Fork(restored[0].ID, 1)[0].ID, "six")

	for ref, want := range map[string]string{
		"parent": "two", one: "four", other: "zero",
		grandchild: "five", restored[0].ID: "six", restored[1].ID: "three",
	} {
		n.MustHold(ref, want)
	}

	if _, err := n.Machine.Rollback(ctx, grandchild, "disk"); err != nil {
		t.Fatal(err)
	}
	n.Change(grandchild, "three", "seven")
	for _, c := range []struct{ child, parent string }{{grandchild, one}, {one, "parent"}} {
		if _, err := n.Machine.Promote(ctx, c.child); err != nil {
			t.Fatal(err)
		}
		n.MustHold(c.parent, "seven")
	}
	n.MustHold(n.Fork("parent", 1)[0].ID, "seven")
}

// TestForkUnderLoad forks a sandbox while a command of it is being talked to:
// the caller must see neither a gap nor an echo.
func TestForkUnderLoad(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("busy")
	talk := n.Converse("busy")
	for range 5 {
		forked := make(chan *api.ForkResult, 1)
		go func() {
			defer close(forked)
			r, err := n.Machine.Fork(harness.AsOwner, "busy", api.ForkRequest{Count: 2})
			if err != nil {
				t.Error(err)
				return
			}
			forked <- r
		}()
		var r *api.ForkResult
		for r == nil && !t.Failed() {
			talk.Next()
			select {
			case r = <-forked:
			default:
			}
		}
		talk.Next()
		for _, c := range n.Children(r) {
			if out := n.Guest(c.ID, "say", "hello"); out != "hello\n" {
				t.Errorf("child says %q", out)
			}
			n.Destroy(c.ID)
		}
	}
	if talk.Said < 10 {
		t.Errorf("only %d lines were exchanged: the test proves nothing", talk.Said)
	}
	talk.End()
}

// TestForkWhileMemoryIsWritten forks a sandbox with a process that writes to all of its
// memory all the time. Its mappings are taken away while it does so: no store may be lost,
// in it and in children, nor be seen in the other.
func TestForkWhileMemoryIsWritten(t *testing.T) {
	harness.OnlyOnce(t, "memory of sandboxes does not depend on who starts them")
	n := harness.NewNode(t)
	n.Create("busy")
	n.Guest("busy", "sweep", "64", "/tmp/round")
	rounds := func(ref string) int {
		t.Helper()
		text := strings.TrimSpace(n.Guest(ref, "cat", "/tmp/round"))
		round, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %s", ref, text)
		}
		return round
	}
	goesOn := func(ref string, from int) {
		t.Helper()
		harness.Eventually(t, ref+" goes on", func() error {
			if now := rounds(ref); now < from+3 {
				return fmt.Errorf("it is in round %d, and was in %d", now, from)
			}
			return nil
		})
	}
	harness.Eventually(t, "the first round is over", func() error {
		out, err := n.Exec("busy", "cat", "/tmp/round")
		if err == nil && out.ExitCode != 0 {
			err = errors.New(out.Stderr.String())
		}
		return err
	})
	for range 4 {
		before := rounds("busy")
		r, err := n.Machine.Fork(harness.AsOwner, "busy", api.ForkRequest{Count: 2})
		if err != nil {
			t.Fatal(err)
		}
		goesOn("busy", rounds("busy"))
		for _, c := range n.Children(r) {
			goesOn(c.ID, before)
			n.Destroy(c.ID)
		}
	}
}

// TestClosedConnectionsAreForgotten looks at how much a snapshot has of connections that
// were closed: with each the pause of a fork would be longer, for a minute.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	snapshot := func() int64 {
		t.Helper()
		s, err := n.Machine.Snapshot(harness.AsOwner, "box", api.SnapshotRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return s.SizeBytes
	}
	n.Guest("box", "calls", "1")
	snapshot()
	before := snapshot() // what differs from the first
	n.Guest("box", "calls", "500")
	harness.Eventually(t, "connections are forgotten", func() error {
		if now := snapshot(); now > before+200<<10 {
			return fmt.Errorf("a snapshot has %d KiB, and had %d", now>>10, before>>10)
		}
		return nil
	})
}

// TestConnectionsAreCountedOnce compares how many connections there are, as programs are
// told, in generations of a sandbox.
func TestConnectionsAreCountedOnce(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	n.Hold("box", "-value", "one", "-only", "tcp")
	established := func(ref string) string {
		t.Helper()
		lines := strings.Split(n.Guest(ref, "cat", "/proc/net/snmp"), "\n")
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
		ref = n.Fork(ref, 1)[0].ID
		if got := established(ref); got != want {
			t.Errorf("generation %d has %s connections, the first %s", generation+1, got, want)
		}
	}
}
