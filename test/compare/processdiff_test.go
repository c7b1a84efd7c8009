package compare

import (
	"fmt"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// Two children have an inherited process in common, and differ by the one that each
// started, by one that one of them ended and by nothing else. A restored sandbox has
// the processes of the one that was frozen.
func TestDiffProcesses(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	start := func(ref, time string) int { return n.Start(ref, api.StartRequest{}, "sleep", time) }
	start("base", "1h")
	ended := start("base", "1h")
	snap := n.Snapshot("base", api.SnapshotRequest{})
	n.ForkNamed("base", "left", "right")
	r, err := n.Machine.Restore(harness.AsOwner, snap.ID, api.RestoreRequest{Names: []string{"again"}})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	for _, other := range []string{"left", "again"} {
		if got := processDiff(n, "base", other); len(got) != 0 {
			t.Errorf("a copy differs: %q", got)
		}
	}

	one, other := start("left", "2h"), start("right", "3h")
	if err := n.Machine.SignalProcess(harness.AsOwner, "right", ended, api.SignalRequest{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("deleted %d guest sleep 1h", ended), fmt.Sprintf("deleted %d guest sleep 2h", one), fmt.Sprintf("added %d guest sleep 3h", other),
	}
	slices.Sort(want)
	harness.Eventually(t, "the diff", func() error { // the killed process is about to end
		if got := processDiff(n, "left", "right"); !slices.Equal(got, want) {
			return fmt.Errorf("%q, not %q", got, want)
		}
		return nil
	})
	if d, err := n.Machine.Diff(harness.AsOwner, "left", "right", api.DiffRequest{}); err != nil || d.Processes != nil {
		t.Errorf("nobody asked for processes: %+v, %v", d, err)
	}
	_, err = n.Machine.Diff(harness.AsOwner, snap.ID, "left", api.DiffRequest{Processes: true})
	harness.WantCode(t, err, api.CodeInvalid)
}

// processDiff returns how the processes of two sandboxes differ, in any order.
func processDiff(n *harness.Node, from, to string) []string {
	n.T.Helper()
	d, err := n.Machine.Diff(harness.AsOwner, from, to, api.DiffRequest{Processes: true})
	if err != nil {
		n.T.Fatalf("diff %s %s: %v", from, to, err)
	}
	var all []string
	for _, c := range d.Processes {
		all = append(all, fmt.Sprintf("%s %d %s", c.Kind, c.PID, c.Command))
	}
	slices.Sort(all)
	return all
}
