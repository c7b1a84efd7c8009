package process

import (
	"strconv"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestInitExits ends the first process of sandboxes. That must be their end,
// with that as the reason, and nobody else's.
func TestInitExits(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	n.Hold("box", "-value", "zero", "-only", "heap,bulk")
	if _, err := n.Machine.Snapshot(ctx, "box", api.SnapshotRequest{Name: "start"}); err != nil {
		t.Fatal(err)
	}
	child := n.Fork("box", 1)[0].ID
	adopted := n.Fork("box", 1)[0].ID
	if _, err := n.Exec("box", "endinit"); err != nil { // it may end before its sandbox does
		harness.WantCode(t, err, api.CodeSandboxDied)
	}
	n.MustFailWith("box", "init exited: SIGKILL")
	n.MustHold(child, "zero")
	n.MustHold(n.Fork(child, 1)[0].ID, "zero")

	n.Reopen() // to a node that is not the parent of its sentries
	_, _ = n.Exec(adopted, "endinit")
	n.MustFailWith(adopted, "init exited: SIGKILL")
	n.MustHold(child, "zero")

	if _, err := n.Machine.Rollback(ctx, "box", "start"); err != nil {
		t.Fatal(err)
	}
	n.MustHold("box", "zero")
}

// TestHookEndsInit forks a sandbox that has a hook which ends its init: the
// child must fail for that reason, and the parent not notice.
func TestHookEndsInit(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	n.Guest("box", "write", "/etc/ramet/fork.d/10-end", "#!/bin/guest endinit\n", "755")
	n.Guest("box", "write", "/etc/ramet/fork.d/20-more", "#!/bin/guest say sleep:10s\n", "755")
	r, err := n.Machine.Fork(harness.AsOwner, "box", api.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Children {
		if c.Error == nil || c.Error.Code != api.CodeSandboxDied || !strings.Contains(c.Error.Detail, "init exited") {
			t.Errorf("child is %+v", c)
		}
	}
	n.Guest("box", "true")
}

// TestInitIgnoresSignals sends every signal to the first process, and has the kernel send one, also after a
// fork: as on Linux, it ignores those that it has no handler for.
func TestInitIgnoresSignals(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	for signal := 1; signal <= 64; signal++ {
		n.Guest("box", "kill", strconv.Itoa(signal), "1")
	}
	n.Guest("box", "pollinit")
	child := n.Fork("box", 1)[0].ID
	for _, signal := range []string{"1", "9", "15", "19", "34"} {
		n.Guest(child, "kill", signal, "1")
	}
	n.Guest(child, "pollinit")
	n.Guest(child, "true")
	n.Guest("box", "true")
}
