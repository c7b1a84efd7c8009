package network

import (
	"context"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// toSandbox returns a rule about a sandbox by its metadata.
func toSandbox(metadata map[string]string) api.NetworkRule {
	return api.NetworkRule{Sandbox: &api.SandboxSelector{Metadata: metadata}}
}

// accept asks for a network that lets sandboxes in.
func accept(rules ...api.NetworkRule) *api.NetworkRequest {
	return &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Accept: rules}}
}

// byName returns a rule about a sandbox by its name.
func byName(name string) api.NetworkRule {
	return api.NetworkRule{Sandbox: &api.SandboxSelector{Name: name}}
}

// createAs makes a sandbox for a caller.
func createAs(n *harness.Node, ctx context.Context, req api.CreateRequest) *api.Sandbox {
	n.T.Helper()
	req.Image = "box"
	s, err := n.Machine.Create(ctx, req)
	if err != nil {
		n.T.Fatal(err)
	}
	return s
}

// noName is what guests say of names that are not there.
const noName = "dial tcp: lookup "

// TestSandboxToSandbox connects sandboxes by name, when the documents of both say so.
func TestSandboxToSandbox(t *testing.T) {
	n := newNode(t)
	n.GiveImage("other")
	other := harness.AsTenant("other")
	t.Cleanup(func() {
		for _, ref := range []string{"db", "web"} {
			if err := n.Machine.Destroy(other, ref); err != nil {
				t.Error(err)
			}
		}
	})
	create(n, "db", accept(byName("web")))
	create(n, "web", allow(t, "sandbox=db"))
	create(n, "third", allow(t, "sandbox=db"))
	createAs(n, other, api.CreateRequest{Name: "db", Network: allow(t, "sandbox=web")})
	stranger := createAs(n, other, api.CreateRequest{Name: "web", Network: allow(t, "sandbox=*")})
	n.StartServer("db", "echo", ":5432")
	n.StartServer("db", "echo", ":80")
	n.StartServer("web", "echo", ":80")

	mustReach(n, "web", map[string]string{"db.sandbox:5432": connected, "db.sandbox:80": connected, "db.sandbox:81": refused, n.Get("db").ID + ".sandbox:80": connected})
	mustReach(n, "db", map[string]string{"web.sandbox:80": refused})   // the other direction
	mustReach(n, "third", map[string]string{"db.sandbox:80": refused}) // whom db does not accept
	if line := lastLine(n, "third"); line.Verdict != api.NetworkDenied || line.Name != "db.sandbox" {
		t.Errorf("what db does not accept is logged as %+v", line)
	}
	// Another tenant reaches neither, by name or by the address that the gateway gave.
	address := addressOf(n, "web", "db.sandbox")
	mustReachAs(n, other, stranger.ID, map[string]string{n.Get("db").ID + ".sandbox:80": noName, address + ":80": refused})

	// A child of the one that is accepted is not: it has another name.
	child := n.Fork("web", 1)[0]
	mustReach(n, child.ID, map[string]string{"db.sandbox:80": refused})
	// Nor does anything answer at the name of a sandbox that is gone.
	web := hold(n, "web", "db.sandbox:80", 2)
	n.Destroy("db")
	web.ask("whole 0 reset 2\n")
	mustReach(n, "web", map[string]string{"db.sandbox:80": noName, address + ":80": refused})
}

// addressOf returns the address that a name has in a sandbox.
func addressOf(n *harness.Node, ref, name string) string {
	n.T.Helper()
	show := n.Guest(ref, "outside", "show", name)
	_, list, found := strings.Cut(show, name+" [")
	address, _, closed := strings.Cut(list, "]")
	if !found || !closed || address == "" {
		n.T.Fatalf("%s has no address: %s", name, show)
	}
	return address
}

// TestSandboxesByMetadata connects all those with an entry, and follows changes of names and metadata.
func TestSandboxesByMetadata(t *testing.T) {
	n := newNode(t)
	db := accept(toSandbox(map[string]string{"role": "web"}))
	createAs(n, harness.AsOwner, api.CreateRequest{Name: "db", Metadata: map[string]string{"role": "db"}, Network: db})
	to := &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: []api.NetworkRule{toSandbox(map[string]string{"role": "db"})}}}
	createAs(n, harness.AsOwner, api.CreateRequest{Name: "web", Metadata: map[string]string{"role": "web"}, Network: to})
	createAs(n, harness.AsOwner, api.CreateRequest{Name: "job", Metadata: map[string]string{"role": "job"}, Network: to})
	n.StartServer("db", "echo", ":80")
	mustReach(n, "web", map[string]string{"db.sandbox:80": connected})
	mustReach(n, "job", map[string]string{"db.sandbox:80": refused})

	// Another value ends what it allowed, and allows what it did not.
	web := hold(n, "web", "db.sandbox:80", 2)
	tag := func(ref, role string) {
		t.Helper()
		if _, err := n.Machine.Update(harness.AsOwner, ref, api.UpdateRequest{Metadata: map[string]*string{"role": &role}}); err != nil {
			t.Fatal(err)
		}
	}
	tag("job", "web")
	mustReach(n, "job", map[string]string{"db.sandbox:80": connected})
	web.ask("whole 2 reset 0\n")
	tag("web", "none")
	web.ask("whole 0 reset 2\n")
	mustReach(n, "web", map[string]string{"db.sandbox:80": refused})

	// So does another name, from the moment that it is given.
	to = allow(t, "sandbox=store")
	if _, err := n.Machine.SetNetwork(harness.AsOwner, "job", *to); err != nil {
		t.Fatal(err)
	}
	mustReach(n, "job", map[string]string{"db.sandbox:80": refused, "store.sandbox:80": noName})
	rename(n, "db", "store")
	mustReach(n, "job", map[string]string{"db.sandbox:80": noName, "store.sandbox:80": connected})
	job := hold(n, "job", "store.sandbox:80", 1)
	rename(n, "store", "shop")
	job.ask("whole 0 reset 1\n")
	mustReach(n, "job", map[string]string{"store.sandbox:80": noName, "shop.sandbox:80": refused})
	// The daemon that comes next knows the same.
	rename(n, "shop", "store")
	n.Reopen()
	mustReach(n, "job", map[string]string{"store.sandbox:80": connected})
}

// rename gives a sandbox another name.
func rename(n *harness.Node, from, to string) {
	n.T.Helper()
	if _, err := n.Machine.Update(harness.AsOwner, from, api.UpdateRequest{Name: &to}); err != nil {
		n.T.Fatal(err)
	}
}

// TestForkBetweenSandboxes forks either end of connections: those of the parents go on.
func TestForkBetweenSandboxes(t *testing.T) {
	n := newNode(t)
	create(n, "db", accept(byName("*")))
	create(n, "web", allow(t, "sandbox=*"))
	n.StartServer("db", "echo", ":80")
	web := hold(n, "web", "db.sandbox:80", 3)
	pid := processOf(n, "web", "hold db.sandbox:80")
	for _, ref := range []string{"web", "db"} {
		child := n.Fork(ref, 1)[0]
		web.ask("whole 3 reset 0\n")
		if ref == "web" {
			theirs := &held{n.Follow(child.ID, pid, 0), "held\n"}
			theirs.ask("whole 0 reset 3\n")
			mustReach(n, child.ID, map[string]string{"db.sandbox:80": connected})
		} else {
			mustReach(n, "web", map[string]string{child.ID + ".sandbox:80": connected}) // the child listens, too
		}
		n.Destroy(child.ID)
		web.ask("whole 3 reset 0\n")
	}
}
