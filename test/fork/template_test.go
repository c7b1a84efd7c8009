package fork

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// manyChildren is so many that one process loads the frozen state for all of them (internal/node/branching).
const manyChildren = 16

// TestTemplate forks a sandbox with every kind of state into many children, one of them again, and does to one what
// can be done to a sandbox. Each has all of the state, and none shares any. It takes 30 s, as the state of some
// hundred sandboxes is compared.
func TestTemplate(t *testing.T) {
	harness.OnlyOnce(t, "what is copied does not depend on who starts sandboxes")
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("parent")
	n.Hold("parent", "-value", "zero")
	children := n.Fork("parent", manyChildren)
	differ(n, children)
	two := twoOf(n, children)
	changeAll(n, two, "zero")
	n.MustHold("parent", "zero")
	one, other := two[0].ID, two[1].ID

	changeAll(n, twoOf(n, n.Fork(one, manyChildren)), own(one))
	n.MustHold(n.Fork(one, 1)[0].ID, own(one))

	n.Snapshot(one, api.SnapshotRequest{Name: "disk"})
	r, err := n.Machine.Restore(ctx, "disk", api.RestoreRequest{Count: manyChildren})
	if err != nil {
		t.Fatal(err)
	}
	changeAll(n, twoOf(n, n.Children(r)), own(one))
	n.Change(one, own(one), "two")
	if _, err := n.Machine.Rollback(ctx, one, "disk"); err != nil {
		t.Fatal(err)
	}
	n.MustHold(one, own(one))
	n.Hibernate(one)
	n.MustHold(one, own(one))
	if _, err := n.Machine.Promote(ctx, one); err != nil {
		t.Fatal(err)
	}
	n.MustHold("parent", own(one))
	n.MustHold(other, own(other))
}

// twoOf returns the first and the last of a list, and destroys the others: some kinds of state are threads that never
// wait, and many of those leave no time for anything else.
func twoOf(n *harness.Node, list []*api.Sandbox) []*api.Sandbox {
	n.T.Helper()
	last := len(list) - 1
	for _, s := range list[1:last] {
		n.Destroy(s.ID)
	}
	return []*api.Sandbox{list[0], list[last]}
}

// own is the state that a sandbox brings what it holds into, which has room for 16 bytes.
func own(id string) string { return id[len("sbx_"):] }

// changeAll brings what sandboxes hold, which is in the state from, into a state of each one's own, all at once.
func changeAll(n *harness.Node, list []*api.Sandbox, from string) {
	n.T.Helper()
	errs := make(chan error, len(list))
	var wg sync.WaitGroup
	for _, s := range list {
		wg.Go(func() {
			r, err := n.Ask(s.ID, "="+own(s.ID))
			if err == nil {
				err = r.Check(s.ID, from, own(s.ID))
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			n.T.Error(err)
		}
	}
	for _, s := range list {
		n.MustHold(s.ID, own(s.ID))
	}
}

// bootID is where a kernel says which start of it this is.
const bootID = "/proc/sys/kernel/random/boot_id"

// differ checks that sandboxes have names of their own, and keep them.
func differ(n *harness.Node, list []*api.Sandbox) {
	n.T.Helper()
	seen := map[string]string{}
	for _, s := range list {
		out, err := n.Run(s.ID, api.ExecRequest{Argv: []string{"guest", "cat", bootID, bootID}}, "")
		if err != nil || !out.OK {
			n.T.Fatalf("%s: %v: %s", s.ID, err, out.Stderr.String())
		}
		boot, again, _ := strings.Cut(out.Stdout.String(), "\n")
		if len(boot) != 36 || again != boot+"\n" {
			n.T.Errorf("the kernel of %s has the id %q, and then %q", s.ID, boot, again)
		}
		for _, its := range []string{s.ID, s.Identity.MachineID, fmt.Sprint(s.Identity.ForkIndex), boot} {
			if other, ok := seen[its]; ok && other != s.ID {
				n.T.Errorf("%s and %s both have %q", s.ID, other, its)
			}
			seen[its] = s.ID
		}
	}
}

// TestTemplateOfMuch forks a sandbox with so many objects that a copy of its sentry saves them, and then a child: a
// fork of a template can be copied.
func TestTemplateOfMuch(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("parent")
	n.Hold("parent", "-value", "zero", "-only", "crowd,twins,heap,files")
	children := twoOf(n, n.Fork("parent", manyChildren))
	for _, c := range append(children, twoOf(n, n.Fork(children[0].ID, manyChildren))...) {
		n.MustHold(c.ID, "zero")
	}
}

// TestTemplateInTheBackground makes many children that nobody waits for.
func TestTemplateInTheBackground(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("parent")
	n.Hold("parent", "-value", "zero", "-only", "heap,files,child,tcp")
	wait := false
	r, err := n.Machine.Fork(harness.AsOwner, "parent", api.ForkRequest{Count: manyChildren, Wait: &wait})
	if err != nil {
		t.Fatal(err)
	}
	changeAll(n, n.Children(r), "zero")
}

// TestTemplateWithLimits forks a sandbox with little memory and processor time: it is enough for what loads its state,
// and each child has as much.
func TestTemplateWithLimits(t *testing.T) {
	n := harness.NewNode(t)
	limits := api.Limits{MemoryMiB: 64, CPUs: 0.5, Pids: 64, DiskMiB: 64}
	if _, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Name: "parent", Limits: limits}); err != nil {
		if api.CodeOf(err) == api.CodeIsolation {
			t.Skipf("limits cannot be had here: %v", err)
		}
		t.Fatal(err)
	}
	n.Hold("parent", "-value", "zero", "-only", "heap,files,child")
	for _, c := range n.Fork("parent", manyChildren) {
		if c.Limits != limits {
			t.Errorf("%s has %+v", c.ID, c.Limits)
		}
		n.MustHold(c.ID, "zero")
	}
}

// TestTemplateWithNamespaces forks a sandbox whose processes have network namespaces with interfaces and connections
// into many children.
func TestTemplateWithNamespaces(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("parent")
	for name, what := range startKinds(n, "parent", "", "net-loopback", "net-links", "net-pair", "links", "pivot-root") {
		if what != "held" {
			t.Errorf("%s: %s", name, what)
		}
	}
	for _, c := range n.Fork("parent", manyChildren) {
		if said := strings.TrimSpace(n.Guest(c.ID, "check")); said != "5 work" {
			t.Errorf("%s: %s", c.ID, said)
		}
	}
}
