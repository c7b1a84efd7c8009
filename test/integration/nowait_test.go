package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/machine"
)

// forkWithoutWaiting makes count children that are still being made.
func (n *testNode) forkWithoutWaiting(ref string, count int) []*api.Sandbox {
	n.t.Helper()
	wait := false
	r, err := n.m.Fork(asOwner, ref, api.ForkRequest{Count: count, Wait: &wait})
	if err != nil {
		n.t.Fatal(err)
	}
	children := n.children(r)
	if len(children) != count {
		n.t.Fatalf("%d children, not %d", len(children), count)
	}
	for i, c := range children {
		if c.State != api.StateCreating || r.Children[i].ReadyMS != 0 || r.Children[i].Identity.MachineID == "" {
			n.t.Errorf("child %d is %s, ready after %v ms, with the identity %+v", i, c.State, r.Children[i].ReadyMS, r.Children[i].Identity)
		}
	}
	return children
}

// TestForkWithoutWaiting uses children at once that nobody waited for: each request
// waits until its child runs.
func TestForkWithoutWaiting(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("base")
	n.hold("base", "-value", "zero", "-only", "heap,files,child,pipe")
	uses := map[string]func(id string) error{
		"exec": func(id string) error { return n.holds(id, "zero") },
		"ps":   func(id string) error { _, err := n.m.Processes(ctx, id, false); return err },
		"diff": func(id string) error { _, err := n.m.Diff(ctx, "base", id, api.DiffRequest{}); return err },
		"fork": func(id string) error {
			r, err := n.m.Fork(ctx, id, api.ForkRequest{})
			if err == nil && r.Children[0].Error == nil {
				n.mustHold(r.Children[0].Sandbox.ID, "zero")
			}
			return err
		},
		"pause": func(id string) error { _, err := n.m.Pause(ctx, id); return err },
		"hibernate": func(id string) error {
			if _, err := n.m.Hibernate(ctx, id); err != nil {
				return err
			}
			return n.holds(id, "zero")
		},
	}
	children := n.forkWithoutWaiting("base", len(uses))
	for name, use := range uses {
		if err := use(children[0].ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		children = children[1:]
	}
	n.mustHold("base", "zero")

	// Where the parent ends before its children are there, running or on disk.
	n.hook("base", "10-waits", "say sleep:300ms", "755")
	orphan := n.forkWithoutWaiting("base", 1)[0]
	middle := n.fork(orphan.ID, 1)[0].ID
	last := n.forkWithoutWaiting(middle, 1)[0]
	n.destroy(middle)
	n.mustHold(last.ID, "zero")
	n.reopen()
	n.mustHold(last.ID, "zero")
	n.mustHold(orphan.ID, "zero")
	n.hibernate("base")
	child := n.forkWithoutWaiting("base", 1)[0]
	n.destroy("base")
	n.mustHold(child.ID, "zero")
	n.reopen()
	n.mustHold(child.ID, "zero")
}

// slow makes a sandbox whose children take as long as a hook may.
func (n *testNode) slow(name string) {
	n.t.Helper()
	n.create(name)
	n.hook(name, "10-hangs", "sleep 1h", "755")
}

// TestUnreadyChildIsRemoved destroys a child that is still being made, and has one be
// late: neither waits for the hook, and nothing is left of them.
func TestUnreadyChildIsRemoved(t *testing.T) {
	n := newNode(t)
	n.slow("base")
	child := n.forkWithoutWaiting("base", 1)[0]
	waits, cancel := context.WithCancelCause(asOwner)
	waiting := make(chan error, 1)
	go func() {
		_, err := n.m.Exec(waits, child.ID, api.ExecRequest{Argv: []string{"guest", "say", "x"}}, discard())
		waiting <- err
	}()
	gone := api.Errorf(api.CodeCanceled, "the client is gone")
	cancel(gone)
	if err := <-waiting; api.CodeOf(err) != api.CodeCanceled {
		t.Errorf("who goes away while he waits is told %v", err)
	}
	list, err := n.m.List(asOwner, api.ListFilter{State: api.StateCreating})
	if err != nil || len(list) != 1 || list[0].ID != child.ID {
		t.Errorf("being made are %v, %v", list, err)
	}
	began := time.Now()
	n.destroy(child.ID)
	if took := time.Since(began); took > 9*time.Second { // the hook has 10 s
		t.Errorf("to destroy it took %v", took)
	}

	wait := false
	r, err := n.m.Fork(asOwner, "base", api.ForkRequest{Names: []string{"late"}, Wait: &wait, TimeoutMS: 200})
	if err != nil {
		t.Fatal(err)
	}
	n.children(r)
	n.mustFailWith("late", "not ready within")
	_, err = n.exec("late", "say", "x")
	wantCode(t, err, api.CodeSandboxDied)
	n.destroy("late")
	n.checkOwned()
	n.destroy("base")
	n.checkOwned()
}

// TestDaemonEndsWhileChildrenStart ends a daemon while a child is being made, for
// which it waits, and kills one, of whose children the next one finds that they failed,
// and nothing else of them.
func TestDaemonEndsWhileChildrenStart(t *testing.T) {
	n := newNode(t)
	n.create("soon")
	n.hook("soon", "10-waits", "say sleep:500ms", "755")
	child := n.forkWithoutWaiting("soon", 1)[0]
	n.slow("base")
	if err := n.m.Close(); err != nil {
		t.Fatal(err)
	}
	n.open()
	if s := n.get(child.ID); s.State != api.StateRunning || len(s.Identity.Hooks) != 1 {
		t.Errorf("a child of a daemon that ended in peace is %s: %s, with hooks %+v", s.State, s.Reason, s.Identity.Hooks)
	}
	n.close()
	p := startVictim(t, victim{Runtime: n.paths.RuntimeDir(), Data: n.paths.DataDir(), Engine: n.build, Serves: true})
	if line := p.next(); line != "serving" {
		t.Fatalf("the daemon says %q", line)
	}
	c, err := client.New("unix:" + n.paths.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wait := false
	r, err := c.Sandboxes.Fork(asOwner, "base", api.ForkRequest{Names: []string{"a", "b", "c"}, Wait: &wait})
	if err != nil {
		t.Fatal(err)
	}
	n.children(r)
	p.kill()
	n.open()
	for _, name := range []string{"a", "b", "c"} {
		n.mustFailWith(name, "the daemon ended before it ran")
	}
	n.checkOwned()
	n.destroy("a", "b", "c")
	n.guest("base", "say", "x")
}

// TestDaemonDiesAfterForks kills a daemon at random moments while children are made
// that nobody waits for: each runs and is whole, or has failed.
func TestDaemonDiesAfterForks(t *testing.T) {
	rng := seeded(t)
	n := newNode(t)
	n.create("base")
	n.hold("base", "-value", "zero", "-only", "heap,files,child,pipe")
	n.close()
	ran, failed := 0, 0
	for range kills(t, 8, 4) {
		p := startVictim(t, victim{Runtime: n.paths.RuntimeDir(), Data: n.paths.DataDir(), Engine: n.build, Seed: rng.Uint64(), Unawaited: true})
		for p.next() != "forked" {
		}
		moment(rng, 100*time.Millisecond)
		p.kill()
		n.open()
		list, err := n.m.List(asOwner, api.ListFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			if s.State == api.StateFailed && strings.Contains(s.Reason, "the daemon ended before it ran") {
				failed++
				n.destroy(s.ID)
			} else {
				ran++
			}
		}
		n.checkWhole("base", "zero")
		n.checkOwned()
		n.destroyAllBut("base")
		n.close()
	}
	t.Logf("%d children ran, %d did not", ran, failed)
	n.open()
}

// TestClientDiesAfterForks kills a client at random moments of forks that it does not
// wait for: what it asked for is there as a whole, or not at all.
func TestClientDiesAfterForks(t *testing.T) {
	rng := seeded(t)
	n := newNode(t)
	n.create("base")
	n.hold("base", "-value", "zero", "-only", "heap,files,child")
	socket := n.serve()
	for range kills(t, 8, 4) {
		p := startVictim(t, victim{Socket: socket, Seed: rng.Uint64(), Unawaited: true})
		p.next()
		moment(rng, 60*time.Millisecond)
		p.kill()
		for _, do := range []func(context.Context, string) (*api.Sandbox, error){n.m.Pause, n.m.Resume} {
			if _, err := do(asOwnerIn(t), "base"); err != nil { // waits for forks that are under way
				t.Fatal(err)
			}
		}
		eventually(t, "what is being made", func() error {
			list, err := n.m.List(asOwner, api.ListFilter{State: api.StateCreating})
			if err == nil && len(list) > 0 {
				err = fmt.Errorf("%d sandboxes", len(list))
			}
			return err
		})
		n.checkWhole("base", "zero")
		n.destroyAllBut("base")
	}
	n.checkOwned()
}

// forkOnce makes children that it does not wait for, and removes some.
func forkOnce(ctx context.Context, m *machine.Machine, rng *rand.Rand) error {
	wait := false
	fmt.Println("fork")
	r, err := m.Fork(ctx, "base", api.ForkRequest{Count: 1 + rng.IntN(4), Wait: &wait})
	if err != nil {
		return err
	}
	fmt.Println("forked")
	first := r.Children[0].Sandbox.ID
	switch rng.IntN(3) {
	case 0:
		if _, err := m.Fork(ctx, first, api.ForkRequest{Wait: &wait}); err != nil {
			return err
		}
	case 1:
		return m.Destroy(ctx, first)
	}
	return nil
}
