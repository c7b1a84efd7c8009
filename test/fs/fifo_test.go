package fs

import (
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestFifosInTheWay replaces what a command needs by fifos, which nobody writes to:
// opening them would wait for ever, with the sandbox's locks held.
func TestFifosInTheWay(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	n.Guest("base", "fifo", "/tool", "/dev/shm/tool")
	for _, name := range []string{"/tool", "/dev/shm/tool"} {
		out, err := n.Run("base", api.ExecRequest{Argv: []string{name}}, "")
		if err != nil || out.ExitCode != 126 {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
	n.Guest("base", "fifo", "/dev/other")
	n.Guest("base", "mv", "/dev/other", "/dev/null")
	if out, err := n.Exec("base", "true"); err != nil || out.ExitCode != 0 {
		t.Errorf("with a fifo for /dev/null: %+v, %v", out, err)
	}
	n.Fork("base", 1)
	n.DestroyAllBut("base")
	n.Destroy("base")
}
