package fork

import (
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestVectorRegisters stops a process that keeps values in vector registers, two thousand
// times by a signal, and then another one by forks, which its children inherit. Without
// package fpstate some are lost in nearly each run.
func TestVectorRegisters(t *testing.T) {
	harness.OnlyOnce(t, "registers do not depend on who starts sandboxes")
	n := harness.NewNode(t)
	n.Create("box")
	n.Long("box", "vectors", "2000")

	const kept = "keeping\n" // and nothing of registers
	pid := n.Start("box", api.StartRequest{}, "vectors", "keep")
	n.Follow("box", pid, 0).Await(kept)
	mustKeep := func(ref string) {
		t.Helper()
		f := n.Follow(ref, pid, 0)
		err := n.Machine.SignalProcess(harness.AsOwner, ref, pid, api.SignalRequest{Signal: "KILL"})
		x := f.Exit()
		if out, _ := f.Text(); err != nil || x.ExitCode != 128+9 || out != kept {
			t.Errorf("%s: %v; before it was killed it ended with %+v: %s", ref, err, x, out)
		}
	}
	for range harness.Count(5, 5, 100) {
		child := n.Fork("box", 1)[0].ID
		n.Long(child, "vectors", "20") // meanwhile the inherited process goes on
		mustKeep(child)
		n.Destroy(child)
	}
	mustKeep("box")
}
