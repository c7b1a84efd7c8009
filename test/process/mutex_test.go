package process

import (
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestInheritingMutexes interrupts threads that wait for priority-inheriting mutexes.
func TestInheritingMutexes(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	out, err := n.Run("box", api.ExecRequest{Argv: []string{"guest", "inherit"}}, "")
	if err != nil || !out.OK {
		t.Fatalf("%v: %s%s", err, out.Stdout.String(), out.Stderr.String())
	}
}
