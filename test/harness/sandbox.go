package harness

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

// Create makes a sandbox of the image "box".
func (n *Node) Create(name string) *api.Sandbox {
	n.T.Helper()
	s, err := n.Machine.Create(AsOwner, api.CreateRequest{Image: "box", Name: name})
	if err != nil {
		n.T.Fatalf("create: %v", err)
	}
	return s
}

// Get returns a sandbox, which must exist.
func (n *Node) Get(ref string) *api.Sandbox {
	n.T.Helper()
	s, err := n.Machine.Get(AsOwner, ref)
	if err != nil {
		n.T.Fatal(err)
	}
	return s
}

// Fork makes count children, all of which must succeed.
func (n *Node) Fork(ref string, count int) []*api.Sandbox {
	n.T.Helper()
	r, err := n.Machine.Fork(AsOwner, ref, api.ForkRequest{Count: count})
	if err != nil {
		n.T.Fatalf("fork %s: %v", ref, err)
	}
	return n.Children(r)
}

// Children returns the children of a fork, all of which must have been made.
func (n *Node) Children(r *api.ForkResult) []*api.Sandbox {
	n.T.Helper()
	var out []*api.Sandbox
	for i, c := range r.Children {
		if c.Error != nil {
			n.T.Fatalf("child %d: %v", i, c.Error)
		}
		out = append(out, c.Sandbox)
	}
	return out
}

// ForkNamed makes children of these names.
func (n *Node) ForkNamed(ref string, names ...string) {
	n.T.Helper()
	r, err := n.Machine.Fork(AsOwner, ref, api.ForkRequest{Names: names})
	if err != nil {
		n.T.Fatalf("fork %s: %v", ref, err)
	}
	n.Children(r)
}

// Hibernate hibernates a sandbox and checks that it rests.
func (n *Node) Hibernate(ref string) {
	n.T.Helper()
	s, err := n.Machine.Hibernate(AsOwner, ref)
	if err != nil {
		n.T.Fatal(err)
	}
	if s.State != api.StateHibernated || s.Memory != nil {
		n.T.Fatalf("%s is %s", ref, s.State)
	}
}

// Snapshot takes a snapshot of a sandbox.
func (n *Node) Snapshot(ref string, req api.SnapshotRequest) *api.Snapshot {
	n.T.Helper()
	s, err := n.Machine.Snapshot(AsOwner, ref, req)
	if err != nil {
		n.T.Fatal(err)
	}
	return s
}

// RestoredHolds checks that what is restored from a snapshot holds value.
func (n *Node) RestoredHolds(snap, value string) {
	n.T.Helper()
	r, err := n.Machine.Restore(AsOwner, snap, api.RestoreRequest{})
	if err != nil {
		n.T.Fatalf("restore %s: %v", snap, err)
	}
	id := n.Children(r)[0].ID
	n.MustHold(id, value)
	n.Destroy(id)
}

// Names returns the names or ids of all sandboxes.
func (n *Node) Names(t testing.TB) []string {
	t.Helper()
	list, err := n.Machine.List(AsOwner, api.ListFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range list {
		names = append(names, s.Name+"/"+s.ID)
	}
	return names
}

// MustFailWith waits until ref has failed and says why.
func (n *Node) MustFailWith(ref, why string) {
	n.T.Helper()
	Eventually(n.T, "state of "+ref, func() error {
		s, err := n.Machine.Get(AsOwner, ref)
		if err != nil {
			return err
		}
		if s.State != api.StateFailed || !strings.Contains(s.Reason, why) {
			return fmt.Errorf("it is %s with the reason %q", s.State, s.Reason)
		}
		return nil
	})
}

// Destroy destroys sandboxes.
func (n *Node) Destroy(refs ...string) {
	n.T.Helper()
	for _, ref := range refs {
		if err := n.Machine.Destroy(AsOwner, ref); err != nil {
			n.T.Fatalf("destroy %s: %v", ref, err)
		}
	}
}

// DestroyAllBut destroys all sandboxes but those of names, and deletes all snapshots.
func (n *Node) DestroyAllBut(names ...string) {
	n.T.Helper()
	ctx := AsOwner
	list, err := n.Machine.List(ctx, api.ListFilter{})
	if err != nil {
		n.T.Fatal(err)
	}
	for _, s := range list {
		if !slices.Contains(names, s.Name) {
			n.Destroy(s.ID)
		}
	}
	snaps, err := n.Machine.Snapshots(ctx)
	if err != nil {
		n.T.Fatal(err)
	}
	n.deleteAll(snaps)
}

// HasGroups says whether this machine and user have control groups.
func (n *Node) HasGroups() bool {
	s := n.Create("probe")
	defer n.Destroy("probe")
	return s.Isolation.Cgroup == api.LayerOn
}

// PrivateMiB returns how much memory only ref has.
func (n *Node) PrivateMiB(ref string) float64 {
	n.T.Helper()
	st, err := n.Machine.Stats(AsOwner, ref)
	if err != nil {
		n.T.Fatal(err)
	}
	return st.Memory.PrivateMiB
}
