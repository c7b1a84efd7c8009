package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
)

// TestForksAtOnce forks one sandbox from many sides. They may share moments of it,
// but none that is before a fork's own call.
func TestForksAtOnce(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("base")
	n.create("other")
	const sides, rounds = 12, 3
	var wg sync.WaitGroup
	fail := make(chan error, sides*rounds+1)
	for side := range sides {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for round := range rounds {
				if err := n.forkSees("base", fmt.Sprintf("/tmp/%d-%d", side, round)); err != nil {
					fail <- fmt.Errorf("side %d, round %d: %w", side, round, err)
				}
			}
		}()
	}
	// One that does not wait for its fork harms no other.
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := n.m.Fork(gone, "base", api.ForkRequest{Count: 1}); err == nil {
		t.Error("a fork that nobody waited for was made")
	}
	if err := n.forkSees("other", "/tmp/x"); err != nil {
		fail <- err
	}
	wg.Wait()
	close(fail)
	for err := range fail {
		t.Error(err)
	}
	list, err := n.m.List(ctx, api.ListFilter{})
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
func (n *testNode) forkSees(ref, path string) error {
	ctx := asOwner
	if out, err := n.exec(ref, "edit", "put "+path+" "+path); err != nil || !out.OK {
		return fmt.Errorf("write: %v, %v", out, err)
	}
	r, err := n.m.Fork(ctx, ref, api.ForkRequest{Count: 1})
	if err != nil {
		return err
	}
	if e := r.Children[0].Error; e != nil {
		return e
	}
	child := r.Children[0].Sandbox.ID
	out, err := n.exec(child, "say", "file:"+path)
	if err != nil || !out.OK {
		return fmt.Errorf("the child does not have %s: %v, %v", path, out, err)
	}
	return n.m.Destroy(ctx, child)
}
