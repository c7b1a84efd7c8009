package integration

import (
	"testing"

	"ramet.dev/ramet/api"
)

// TestFifosInTheWay replaces what a command needs by fifos, which nobody writes to:
// opening them would wait for ever, with the sandbox's locks held.
func TestFifosInTheWay(t *testing.T) {
	n := newNode(t)
	n.create("base")
	n.guest("base", "fifo", "/tool", "/dev/shm/tool")
	for _, name := range []string{"/tool", "/dev/shm/tool"} {
		out, err := n.run("base", api.ExecRequest{Argv: []string{name}}, "")
		if err != nil || out.ExitCode != 126 {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
	n.guest("base", "fifo", "/dev/other")
	n.guest("base", "mv", "/dev/other", "/dev/null")
	if out, err := n.exec("base", "true"); err != nil || out.ExitCode != 0 {
		t.Errorf("with a fifo for /dev/null: %+v, %v", out, err)
	}
	n.fork("base", 1)
	n.destroyAllBut("base")
	n.destroy("base")
}
