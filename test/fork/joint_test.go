package fork

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestForksAtOnce forks one sandbox from many sides. They may share moments of it,
// but none that is before a fork's own call.
func TestForksAtOnce(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("base")
	n.Create("other")
	const sides, rounds = 12, 3
	var wg sync.WaitGroup
	fail := make(chan error, sides*rounds+1)
	for side := range sides {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for round := range rounds {
				if err := forkSees(n, "base", fmt.Sprintf("/tmp/%d-%d", side, round)); err != nil {
					fail <- fmt.Errorf("side %d, round %d: %w", side, round, err)
				}
			}
		}()
	}
	// One that does not wait for its fork harms no other.
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := n.Machine.Fork(gone, "base", api.ForkRequest{Count: 1}); err == nil {
		t.Error("a fork that nobody waited for was made")
	}
	if err := forkSees(n, "other", "/tmp/x"); err != nil {
		fail <- err
	}
	wg.Wait()
	close(fail)
	for err := range fail {
		t.Error(err)
	}
	list, err := n.Machine.List(ctx, api.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Parent != "" {
			t.Errorf("sandbox %s is left", s.ID)
		}
	}
}

// forkSees writes a file, forks, and looks for the file in the child.
func forkSees(n *harness.Node, ref, path string) error {
	ctx := harness.AsOwner
	if out, err := n.Exec(ref, "edit", "put "+path+" "+path); err != nil || !out.OK {
		return fmt.Errorf("write: %v, %v", out, err)
	}
	r, err := n.Machine.Fork(ctx, ref, api.ForkRequest{Count: 1})
	if err != nil {
		return err
	}
	if e := r.Children[0].Error; e != nil {
		return e
	}
	child := r.Children[0].Sandbox.ID
	out, err := n.Exec(child, "say", "file:"+path)
	if err != nil || !out.OK {
		return fmt.Errorf("the child does not have %s: %v, %v", path, out, err)
	}
	return n.Machine.Destroy(ctx, child)
}
