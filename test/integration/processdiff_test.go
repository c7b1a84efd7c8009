package integration

import (
	"fmt"
	"slices"
	"testing"

	"ramet.dev/ramet/api"
)

// Two children have an inherited process in common, and differ by the one that each
// started, by one that one of them ended and by nothing else. A restored sandbox has
// the processes of the one that was frozen.
func TestDiffProcesses(t *testing.T) {
	n := newNode(t)
	n.create("base")
	start := func(ref, time string) int { return n.start(ref, api.StartRequest{}, "sleep", time) }
	start("base", "1h")
	ended := start("base", "1h")
	snap := n.snapshot("base", api.SnapshotRequest{})
	n.forkNamed("base", "left", "right")
	r, err := n.m.Restore(asOwner, snap.ID, api.RestoreRequest{Names: []string{"again"}})
	if err != nil {
		t.Fatal(err)
	}
	n.children(r)
	for _, other := range []string{"left", "again"} {
		if got := n.processDiff("base", other); len(got) != 0 {
			t.Errorf("a copy differs: %q", got)
		}
	}

	one, other := start("left", "2h"), start("right", "3h")
	if err := n.m.SignalProcess(asOwner, "right", ended, api.SignalRequest{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	want := []string{
		fmt.Sprintf("deleted %d guest sleep 1h", ended), fmt.Sprintf("deleted %d guest sleep 2h", one), fmt.Sprintf("added %d guest sleep 3h", other),
	}
	slices.Sort(want)
	eventually(t, "the diff", func() error { // the killed process is about to end
		if got := n.processDiff("left", "right"); !slices.Equal(got, want) {
			return fmt.Errorf("%q, not %q", got, want)
		}
		return nil
	})
	if d, err := n.m.Diff(asOwner, "left", "right", api.DiffRequest{}); err != nil || d.Processes != nil {
		t.Errorf("nobody asked for processes: %+v, %v", d, err)
	}
	_, err = n.m.Diff(asOwner, snap.ID, "left", api.DiffRequest{Processes: true})
	wantCode(t, err, api.CodeInvalid)
}

// processDiff returns how the processes of two sandboxes differ, in any order.
func (n *testNode) processDiff(from, to string) []string {
	n.t.Helper()
	d, err := n.m.Diff(asOwner, from, to, api.DiffRequest{Processes: true})
	if err != nil {
		n.t.Fatalf("diff %s %s: %v", from, to, err)
	}
	var all []string
	for _, c := range d.Processes {
		all = append(all, fmt.Sprintf("%s %d %s", c.Kind, c.PID, c.Command))
	}
	slices.Sort(all)
	return all
}
