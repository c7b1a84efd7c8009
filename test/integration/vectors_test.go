package integration

import (
	"testing"

	"ramet.dev/ramet/api"
)

// TestVectorRegisters stops a process that keeps values in vector registers, two thousand
// times by a signal, and then another one by forks, which its children inherit. Without
// package fpstate some are lost in nearly each run.
func TestVectorRegisters(t *testing.T) {
	n := newNode(t)
	n.create("box")
	n.long("box", "vectors", "2000")

	const kept = "keeping\n" // and nothing of registers
	pid := n.start("box", api.StartRequest{}, "vectors", "keep")
	n.follow("box", pid, 0).await(kept)
	mustKeep := func(ref string) {
		t.Helper()
		f := n.follow(ref, pid, 0)
		err := n.m.SignalProcess(asOwner, ref, pid, api.SignalRequest{Signal: "KILL"})
		x := f.exit()
		if out, _ := f.text(); err != nil || x.ExitCode != 128+9 || out != kept {
			t.Errorf("%s: %v; before it was killed it ended with %+v: %s", ref, err, x, out)
		}
	}
	for range 10 {
		child := n.fork("box", 1)[0].ID
		n.long(child, "vectors", "20") // meanwhile the inherited process goes on
		mustKeep(child)
		n.destroy(child)
	}
	mustKeep("box")
}
