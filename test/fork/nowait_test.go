package fork

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
	"ramet.dev/ramet/test/harness"
)

// forkWithoutWaiting makes count children that are still being made.
func forkWithoutWaiting(n *harness.Node, ref string, count int) []*api.Sandbox {
	n.T.Helper()
	wait := false
	r, err := n.Machine.Fork(harness.AsOwner, ref, api.ForkRequest{Count: count, Wait: &wait})
	if err != nil {
		n.T.Fatal(err)
	}
	children := n.Children(r)
	if len(children) != count {
		n.T.Fatalf("%d children, not %d", len(children), count)
	}
	for i, c := range children {
		if c.State != api.StateCreating || r.Children[i].ReadyMS != 0 || r.Children[i].Identity.MachineID == "" {
			n.T.Errorf("child %d is %s, ready after %v ms, with the identity %+v", i, c.State, r.Children[i].ReadyMS, r.Children[i].Identity)
		}
	}
	return children
}

// TestForkWithoutWaiting uses children at once that nobody waited for: each request
// waits until its child runs.
func TestForkWithoutWaiting(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,files,child,pipe")
	uses := map[string]func(id string) error{
		"exec": func(id string) error { return n.Holds(id, "zero") },
		"ps":   func(id string) error { _, err := n.Machine.Processes(ctx, id, false); return err },
		"diff": func(id string) error { _, err := n.Machine.Diff(ctx, "base", id, api.DiffRequest{}); return err },
		"fork": func(id string) error {
			r, err := n.Machine.Fork(ctx, id, api.ForkRequest{})
			if err == nil && r.Children[0].Error == nil {
				n.MustHold(r.Children[0].Sandbox.ID, "zero")
			}
			return err
		},
		"pause": func(id string) error { _, err := n.Machine.Pause(ctx, id); return err },
		"hibernate": func(id string) error {
			if _, err := n.Machine.Hibernate(ctx, id); err != nil {
				return err
			}
			return n.Holds(id, "zero")
		},
	}
	children := forkWithoutWaiting(n, "base", len(uses))
	for name, use := range uses {
		if err := use(children[0].ID); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		children = children[1:]
	}
	n.MustHold("base", "zero")

	// Where the parent ends before its children are there, running or on disk.
	n.Hook("base", "10-waits", "say sleep:300ms", "755")
	orphan := forkWithoutWaiting(n, "base", 1)[0]
	middle := n.Fork(orphan.ID, 1)[0].ID
	last := forkWithoutWaiting(n, middle, 1)[0]
	n.Destroy(middle)
	n.MustHold(last.ID, "zero")
	n.Reopen()
	n.MustHold(last.ID, "zero")
	n.MustHold(orphan.ID, "zero")
	n.Hibernate("base")
	child := forkWithoutWaiting(n, "base", 1)[0]
	n.Destroy("base")
	n.MustHold(child.ID, "zero")
	n.Reopen()
	n.MustHold(child.ID, "zero")
}

// slow makes a sandbox whose children take as long as a hook may.
func slow(n *harness.Node, name string) {
	n.T.Helper()
	n.Create(name)
	n.Hook(name, "10-hangs", "sleep 1h", "755")
}

// TestUnreadyChildIsRemoved destroys a child that is still being made, and has one be
// late: neither waits for the hook, and nothing is left of them.
func TestUnreadyChildIsRemoved(t *testing.T) {
	n := harness.NewNode(t)
	slow(n, "base")
	child := forkWithoutWaiting(n, "base", 1)[0]
	waits, cancel := context.WithCancelCause(harness.AsOwner)
	waiting := make(chan error, 1)
	go func() {
		_, err := n.Machine.Exec(waits, child.ID, api.ExecRequest{Argv: []string{"guest", "say", "x"}}, harness.DiscardExec())
		waiting <- err
	}()
	gone := api.Errorf(api.CodeCanceled, "the client is gone")
	cancel(gone)
	if err := <-waiting; api.CodeOf(err) != api.CodeCanceled {
		t.Errorf("who goes away while he waits is told %v", err)
	}
	list, err := n.Machine.List(harness.AsOwner, api.ListFilter{State: api.StateCreating})
	if err != nil || len(list) != 1 || list[0].ID != child.ID {
		t.Errorf("being made are %v, %v", list, err)
	}
	began := time.Now()
	n.Destroy(child.ID)
	if took := time.Since(began); took > 9*time.Second { // the hook has 10 s
		t.Errorf("to destroy it took %v", took)
	}

	wait := false
	r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Names: []string{"late"}, Wait: &wait, TimeoutMS: 200})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	n.MustFailWith("late", "not ready within")
	_, err = n.Exec("late", "say", "x")
	harness.WantCode(t, err, api.CodeSandboxDied)
	n.Destroy("late")
	n.CheckOwned()
	n.Destroy("base")
	n.CheckOwned()
}

// TestDaemonEndsWhileChildrenStart ends a daemon while a child is being made, for
// which it waits, and kills one, of whose children the next one finds that they failed,
// and nothing else of them.
func TestDaemonEndsWhileChildrenStart(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("soon")
	n.Hook("soon", "10-waits", "say sleep:500ms", "755")
	child := forkWithoutWaiting(n, "soon", 1)[0]
	slow(n, "base")
	if err := n.Machine.Close(); err != nil {
		t.Fatal(err)
	}
	n.Open()
	if s := n.Get(child.ID); s.State != api.StateRunning || len(s.Identity.Hooks) != 1 {
		t.Errorf("a child of a daemon that ended in peace is %s: %s, with hooks %+v", s.State, s.Reason, s.Identity.Hooks)
	}
	n.Close()
	p := harness.StartVictim(t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Work: harness.Serves})
	if line := p.Next(); line != "serving" {
		t.Fatalf("the daemon says %q", line)
	}
	c, err := client.New("unix:" + n.Paths.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	wait := false
	r, err := c.Sandboxes.Fork(harness.AsOwner, "base", api.ForkRequest{Names: []string{"a", "b", "c"}, Wait: &wait})
	if err != nil {
		t.Fatal(err)
	}
	n.Children(r)
	p.Kill()
	n.Open()
	for _, name := range []string{"a", "b", "c"} {
		n.MustFailWith(name, "the daemon ended before it ran")
	}
	n.CheckOwned()
	n.Destroy("a", "b", "c")
	n.Guest("base", "say", "x")
}

// TestDaemonDiesAfterForks kills a daemon at random moments while children are made
// that nobody waits for: each runs and is whole, or has failed.
func TestDaemonDiesAfterForks(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,files,child,pipe")
	n.Close()
	ran, failed := 0, 0
	for range harness.Kills(t, 8, 4) {
		p := harness.StartVictim(t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Seed: rng.Uint64(), Work: "fork"})
		for p.Next() != "forked" {
		}
		harness.RandomPause(rng, 100*time.Millisecond)
		p.Kill()
		n.Open()
		list, err := n.Machine.List(harness.AsOwner, api.ListFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			// One that was being removed has the other reason for a moment, until its record is gone.
			gone := strings.Contains(s.Reason, "the daemon ended before it ran") || strings.Contains(s.Reason, "it was removed before it ran")
			if s.State == api.StateFailed && gone {
				failed++
				n.Destroy(s.ID)
			} else {
				ran++
			}
		}
		n.CheckWhole("base", "zero")
		n.CheckOwned()
		n.DestroyAllBut("base")
		n.Close()
	}
	t.Logf("%d children ran, %d did not", ran, failed)
	n.Open()
}

// TestClientDiesAfterForks kills a client at random moments of forks that it does not
// wait for: what it asked for is there as a whole, or not at all.
func TestClientDiesAfterForks(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,files,child")
	socket := n.Serve()
	for range harness.Kills(t, 8, 4) {
		p := harness.StartVictim(t, harness.Victim{Socket: socket, Seed: rng.Uint64(), Unawaited: true})
		p.Next()
		harness.RandomPause(rng, 60*time.Millisecond)
		p.Kill()
		for _, do := range []func(context.Context, string) (*api.Sandbox, error){n.Machine.Pause, n.Machine.Resume} {
			if _, err := do(harness.AsOwnerIn(t), "base"); err != nil { // waits for forks that are under way
				t.Fatal(err)
			}
		}
		harness.Eventually(t, "what is being made", func() error {
			list, err := n.Machine.List(harness.AsOwner, api.ListFilter{State: api.StateCreating})
			if err == nil && len(list) > 0 {
				err = fmt.Errorf("%d sandboxes", len(list))
			}
			return err
		})
		n.CheckWhole("base", "zero")
		n.DestroyAllBut("base")
	}
	n.CheckOwned()
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
