package node

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"ramet.dev/ramet/test/harness"
)

// TestSandboxesAreKilledBeforeTheDaemon reads how likely the host is to kill each process
// of a sandbox when memory runs out.
func TestSandboxesAreKilledBeforeTheDaemon(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	n.Hold("box", "-only", "heap") // a process of the platform
	own, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	processes := append([]int{sentryOf(n, "box")}, childrenOf(t, sentryOf(n, "box"))...)
	if len(processes) < 2 {
		t.Fatal("the sentry has no process of its platform")
	}
	for _, pid := range processes {
		adj, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		if got := strings.TrimSpace(string(adj)); err != nil || got != "500" {
			t.Errorf("process %d has %q, %v; this one has %s", pid, got, err, own)
		}
	}
}
