package integration

import (
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// TestInitExits kills the first process of sandboxes. That must be their end,
// with that as the reason, and nobody else's.
func TestInitExits(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	n.hold("box", "-value", "zero", "-only", "heap,bulk")
	if _, err := n.m.Snapshot(ctx, "box", api.SnapshotRequest{Name: "start"}); err != nil {
		t.Fatal(err)
	}
	child := n.fork("box", 1)[0].ID
	adopted := n.fork("box", 1)[0].ID
	if _, err := n.exec("box", "kill", "9", "1"); err != nil { // it may end before its sandbox does
		wantCode(t, err, api.CodeSandboxDied)
	}
	n.mustFailWith("box", "init exited: SIGKILL")
	n.mustHold(child, "zero")
	n.mustHold(n.fork(child, 1)[0].ID, "zero")

	n.reopen() // to a node that is not the parent of its sentries
	_, _ = n.exec(adopted, "kill", "9", "1")
	n.mustFailWith(adopted, "init exited: SIGKILL")
	n.mustHold(child, "zero")

	if _, err := n.m.Rollback(ctx, "box", "start"); err != nil {
		t.Fatal(err)
	}
	n.mustHold("box", "zero")
}

// TestHookEndsInit forks a sandbox that has a hook which ends its init: the
// child must fail for that reason, and the parent not notice.
func TestHookEndsInit(t *testing.T) {
	n := newNode(t)
	n.create("box")
	n.guest("box", "write", "/etc/ramet/fork.d/10-end", "#!/bin/guest kill 9 1\n", "755")
	n.guest("box", "write", "/etc/ramet/fork.d/20-more", "#!/bin/guest say sleep:10s\n", "755")
	r, err := n.m.Fork(asOwner, "box", api.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Children {
		if c.Error == nil || c.Error.Code != api.CodeSandboxDied || !strings.Contains(c.Error.Detail, "init exited") {
			t.Errorf("child is %+v", c)
		}
	}
	n.guest("box", "true")
}
