package network

import (
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// treating asks for a network with a server whose authority only the host knows, and with a name whose
// TLS the gateway ends.
func treating(t testing.TB) *api.NetworkRequest {
	req := allow(t, "198.51.100.1:443")
	req.Rules = map[string]api.NetworkTreatment{"other.example.org": {Methods: []string{"GET"}}}
	return req
}

// mustTrust checks that a guest trusts the authorities of the host and of its tree.
func mustTrust(n *harness.Node, what, ref string) {
	n.T.Helper()
	n.T.Log(what)
	mustVerify(n, ref, true)
	if out := n.Guest(ref, "outside", "verify", "other.example.org:443", "other.example.org"); strings.TrimSpace(out) != "verified" {
		n.T.Errorf("%s: it says of the gateway %q", what, out)
	}
}

// TestTrustOfFirstNetworks has sandboxes get their first network in all ways but that of a running one.
func TestTrustOfFirstNetworks(t *testing.T) {
	bundle := serveTLS(t)
	serve(t, "198.51.100.2:443", echoes)
	n := newNode(t)
	n.Close()
	n.HostCAs = bundle
	n.Open()
	req := treating(t)
	fork := func(ref string, req api.ForkRequest) []*api.Sandbox {
		t.Helper()
		r, err := n.Machine.Fork(harness.AsOwner, ref, req)
		if err != nil {
			t.Fatal(err)
		}
		return n.Children(r)
	}
	set := func(ref string) {
		t.Helper()
		if _, err := n.Machine.SetNetwork(harness.AsOwner, ref, *req); err != nil {
			t.Fatal(err)
		}
	}
	promote := func(ref string) {
		t.Helper()
		if _, err := n.Machine.Promote(harness.AsOwner, ref); err != nil {
			t.Fatal(err)
		}
	}

	create(n, "base", nil)
	snap := n.Snapshot("base", api.SnapshotRequest{Memory: true})
	for _, c := range fork("base", api.ForkRequest{Count: 2, Network: req}) {
		mustTrust(n, "a child", c.ID)
	}
	wait := false
	r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Network: req, Wait: &wait})
	if err != nil {
		t.Fatal(err)
	}
	mustTrust(n, "a child that nobody waits for", r.Children[0].Sandbox.ID)
	if r, err = n.Machine.Restore(harness.AsOwner, snap.ID, api.RestoreRequest{Count: 1, Network: req}); err != nil {
		t.Fatal(err)
	}
	mustTrust(n, "what is restored", n.Children(r)[0].ID)
	if got, err := n.Machine.StatFile(harness.AsOwner, "base", api.FileRef{Path: "/etc/ssl/certs/ca-certificates.crt"}); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a parent without a network has certificates: %v, %v", got, err)
	}

	// A child without a network gives its parent no authority, and takes none away.
	child := fork("base", api.ForkRequest{})[0].ID
	set("base")
	mustTrust(n, "a parent", "base")
	promote(child)
	mustTrust(n, "a parent that has the files of a child without certificates", "base")

	// The certificates of a snapshot from before are written again.
	if _, err := n.Machine.Rollback(harness.AsOwner, "base", snap.ID); err != nil {
		t.Fatal(err)
	}
	mustTrust(n, "a sandbox after a rollback", "base")

	create(n, "sleeper", nil)
	n.Hibernate("sleeper")
	set("sleeper")
	mustTrust(n, "a child of a hibernated sandbox", fork("sleeper", api.ForkRequest{})[0].ID)
	n.Reopen()
	if _, err := n.Machine.Wake(harness.AsOwner, "sleeper"); err != nil {
		t.Fatal(err)
	}
	mustTrust(n, "a sandbox that is woken", "sleeper")

	// A parent without a network has the files of its child, and says so.
	create(n, "late", nil)
	child = fork("late", api.ForkRequest{Network: req})[0].ID
	promote(child)
	if s := n.Get("late"); s.TrustedCAs != 1 || s.Env["SSL_CERT_FILE"] == "" {
		t.Errorf("a parent trusts %d authorities of the host, its environment is %v", s.TrustedCAs, s.Env)
	}
	set("late")
	mustTrust(n, "a parent that had no network", "late")
}

// TestHeldInBranchesOfBranches promotes a branch of a branch whose writes are held, and rolls one back.
func TestHeldInBranchesOfBranches(t *testing.T) {
	n := newNode(t)
	w := newWorld(t)
	create(n, "base", allow(t, "files.example.org"))
	r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Hold: api.HoldWrites})
	if err != nil {
		t.Fatal(err)
	}
	branch := n.Children(r)[0].ID
	write := func(ref, path string) {
		t.Helper()
		n.Start(ref, api.StartRequest{}, "outside", "request", "POST", site+path, path)
	}
	write(branch, "/before")
	awaitHeld(n, branch, "POST /before waiting")
	winner := n.Fork(branch, 1)[0].ID
	write(branch, "/replaced")
	awaitHeld(n, branch, "POST /before waiting; POST /replaced waiting")
	write(winner, "/won")
	awaitHeld(n, winner, "POST /won waiting")
	// The branch is not decided: what its own branch would write waits on. What it would have written
	// itself meanwhile belongs to a state that is gone.
	if _, err := n.Machine.Promote(harness.AsOwner, winner); err != nil {
		t.Fatal(err)
	}
	n.Reopen()
	awaitHeld(n, branch, "POST /before waiting; POST /replaced dropped; POST /won waiting")

	snap := n.Snapshot(branch, api.SnapshotRequest{Memory: true})
	write(branch, "/undone")
	awaitHeld(n, branch, "POST /before waiting; POST /replaced dropped; POST /won waiting; POST /undone waiting")
	if _, err := n.Machine.Rollback(harness.AsOwner, branch, snap.ID); err != nil {
		t.Fatal(err)
	}
	awaitHeld(n, branch, "POST /before waiting; POST /replaced dropped; POST /won waiting; POST /undone dropped")
	if got := w.seen(); got != "" {
		t.Errorf("before the verdict the server has seen %q", got)
	}
	if _, err := n.Machine.Promote(harness.AsOwner, branch); err != nil {
		t.Fatal(err)
	}
	n.Reopen()
	if got := w.seen(); got != "POST /before /before; POST /won /won" {
		t.Errorf("the server has seen %q", got)
	}
}

// TestHeldInTheLineage holds requests of children of a hibernated sandbox, and of what is restored.
func TestHeldInTheLineage(t *testing.T) {
	n := newNode(t)
	w := newWorld(t)
	create(n, "base", allow(t, "files.example.org"))
	snap := n.Snapshot("base", api.SnapshotRequest{Memory: true})
	n.Hibernate("base")
	r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Hold: api.HoldWrites, Record: true})
	if err != nil {
		t.Fatal(err)
	}
	if s := n.Get("base"); s.State != api.StateHibernated {
		t.Errorf("the parent is %s", s.State)
	}
	child := n.Children(r)[0].ID
	if r, err = n.Machine.Restore(harness.AsOwner, snap.ID, api.RestoreRequest{Count: 3, Hold: api.HoldWrites, Record: true}); err != nil {
		t.Fatal(err)
	}
	ids := []string{child}
	for _, c := range n.Children(r) {
		ids = append(ids, c.ID)
	}
	for i, id := range ids {
		if got := request(n, id, "GET", "/now", ""); got != []string{"200 1", "200 2", "200 2", "200 2"}[i] {
			t.Errorf("%s sees %q", id, got)
		}
		n.Start(id, api.StartRequest{}, "outside", "request", "POST", site+"/write", "of "+id)
		awaitHeld(n, id, "POST /write waiting")
	}
	if _, err := n.Machine.Restore(harness.AsOwner, snap.ID, api.RestoreRequest{Count: 1, Hold: "reads"}); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a hold that is none: %v", err)
	}
	if got := w.seen(); got != "GET /now ; GET /now " {
		t.Fatalf("the server has seen %q", got)
	}
	// The sandbox that was frozen is there: what is restored can be promoted to it. Others are released,
	// or dropped with their sandboxes.
	if _, err := n.Machine.Promote(harness.AsOwner, ids[1]); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.ReleaseHeld(harness.AsOwner, ids[2], api.HeldRelease{}); err != nil {
		t.Fatal(err)
	}
	n.Destroy("base")
	if _, err := n.Machine.Promote(harness.AsOwner, ids[3]); api.CodeOf(err) != api.CodeConflict {
		t.Errorf("it is promoted to a sandbox that is gone: %v", err)
	}
	n.Destroy(ids[3])
	n.Destroy(child)
	n.Reopen()
	got := w.seen()
	for i, want := range []int{0, 1, 1, 0} {
		if strings.Count(got, "of "+ids[i]) != want {
			t.Errorf("the server has seen %s", got)
		}
	}
}
