package network

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestForkInADownload forks in the middle of a transfer: the parent's completes, the child sees a
// reset at once and downloads the file when it begins again.
func TestForkInADownload(t *testing.T) {
	n := newNode(t)
	gate := make(chan struct{})
	serve(t, "198.51.100.1:443", slowly(gate))
	create(n, "base", allow(t, "files.example.org", "198.51.100.1:443"))
	f := startDownload(n, "base", "198.51.100.1:443")
	children := n.Fork("base", 3)
	var followers []*harness.Follower
	for _, c := range children {
		pids, err := n.Machine.Processes(harness.AsOwner, c.ID, false)
		if err != nil || len(pids) != 1 {
			t.Fatalf("processes of a child: %v, %v", pids, err)
		}
		followers = append(followers, n.Follow(c.ID, pids[0].PID, 0))
	}
	close(gate)
	for i, c := range append([]*harness.Follower{f}, followers...) {
		exit := c.Exit()
		out, _ := c.Text()
		if exit.ExitCode != 0 || !strings.HasSuffix(out, digest) || strings.Contains(out, "reset") != (i > 0) {
			t.Errorf("download %d ends with %+v: %.200q", i, exit, out)
		}
	}
}

// TestKeptConnections go on where the sentry does, and are reset where it does not.
func TestKeptConnections(t *testing.T) {
	n := newNode(t)
	serve(t, "198.51.100.1:1", echoes)
	create(n, "base", allow(t, "198.51.100.1:1"))
	parent := hold(n, "base", "198.51.100.1:1", 5)

	// A pause, and a snapshot in memory.
	if _, err := n.Machine.Pause(harness.AsOwner, "base"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.Resume(harness.AsOwner, "base"); err != nil {
		t.Fatal(err)
	}
	snap := n.Snapshot("base", api.SnapshotRequest{Memory: true})
	parent.ask("whole 5 reset 0\n")

	// A promotion: the child's connections go on in the parent's place.
	child := n.Fork("base", 1)[0]
	own := hold(n, child.ID, "198.51.100.1:1", 4)
	own.ask("whole 4 reset 0\n")
	pid := processOf(n, child.ID, "198.51.100.1:1 4")
	own.Detach()
	if _, err := n.Machine.Promote(harness.AsOwner, child.ID); err != nil {
		t.Fatal(err)
	}
	again := &held{n.Follow("base", pid, 0), own.said}
	again.ask("whole 4 reset 0\n")
	mustReach(n, "base", map[string]string{"198.51.100.1:1": connected, "198.51.100.1:2": refused})
	if e := lastLine(n, "base"); e.Sandbox != n.Get("base").ID {
		t.Errorf("a line of the log is about %s", e.Sandbox)
	}

	// Hibernation and a rollback.
	again.Detach()
	n.Hibernate("base")
	if _, err := n.Machine.Wake(harness.AsOwner, "base"); err != nil {
		t.Fatal(err)
	}
	woken := &held{n.Follow("base", pid, 0), again.said}
	woken.ask("whole 0 reset 4\n")
	mustReach(n, "base", map[string]string{"198.51.100.1:1": connected, "198.51.100.1:2": refused})
	woken.Detach()
	if _, err := n.Machine.Rollback(harness.AsOwner, "base", snap.ID); err != nil {
		t.Fatal(err)
	}
	mustReach(n, "base", map[string]string{"198.51.100.1:1": connected, "198.51.100.1:2": refused})
}

// processOf returns the process of a sandbox whose command line has a text.
func processOf(n *harness.Node, ref, text string) int {
	n.T.Helper()
	list, err := n.Machine.Processes(harness.AsOwner, ref, false)
	if err != nil {
		n.T.Fatal(err)
	}
	for _, p := range list {
		if strings.Contains(p.Command, text) {
			return p.PID
		}
	}
	n.T.Fatalf("%s has no process %q: %+v", ref, text, list)
	return 0
}

// lastLine returns the last line of the log of a sandbox.
func lastLine(n *harness.Node, ref string) (last api.NetworkLogEntry) {
	n.T.Helper()
	if err := n.Machine.NetworkLog(harness.AsOwner, ref, false, func() {}, func(e api.NetworkLogEntry) error { last = e; return nil }); err != nil {
		n.T.Fatal(err)
	}
	return last
}

// TestPromotionToAnotherNetwork puts the network of the parent in force.
func TestPromotionToAnotherNetwork(t *testing.T) {
	n := newNode(t)
	serve(t, "198.51.100.1:1", echoes)
	serve(t, "198.51.100.1:2", echoes)
	for name, c := range map[string]struct {
		parent, child *api.NetworkRequest
		one, two      string
	}{
		"to another": {allow(t, "198.51.100.1:1"), allow(t, "198.51.100.1:2"), connected, refused},
		"to none":    {nil, allow(t, "198.51.100.1:2"), unreachable, unreachable},
		"from none":  {allow(t, "198.51.100.1:1"), &api.NetworkRequest{Profile: "none"}, connected, refused},
	} {
		t.Run(name, func(t *testing.T) {
			base := create(n, "", c.parent)
			r, err := n.Machine.Fork(harness.AsOwner, base.ID, api.ForkRequest{Network: c.child})
			if err != nil {
				t.Fatal(err)
			}
			child := n.Children(r)[0].ID
			mustReach(n, child, map[string]string{"198.51.100.1:1": map[bool]string{true: refused, false: unreachable}[name != "from none"]})
			if _, err := n.Machine.Promote(harness.AsOwner, child); err != nil {
				t.Fatal(err)
			}
			mustReach(n, base.ID, map[string]string{"198.51.100.1:1": c.one, "198.51.100.1:2": c.two})
		})
	}
}

// TestManyConnections forks a sandbox with a hundred connections into twenty.
func TestManyConnections(t *testing.T) {
	n := newNode(t)
	server := serve(t, "198.51.100.1:1", echoes)
	create(n, "base", allow(t, "198.51.100.1:1"))
	parent := hold(n, "base", "198.51.100.1:1", 100)
	pid := processOf(n, "base", "198.51.100.1:1")
	children := n.Fork("base", 20)
	for _, c := range children {
		child := &held{n.Follow(c.ID, pid, 0), "held\n"}
		child.ask("whole 0 reset 100\n")
		mustReach(n, c.ID, map[string]string{"198.51.100.1:1": connected})
	}
	parent.ask("whole 100 reset 0\n")
	harness.Eventually(t, "120 connections of the server", func() error { // a client knows before the server takes it
		if got := server.count(); got != 120 {
			return fmt.Errorf("it has seen %d", got)
		}
		return nil
	})
}

// TestTheDaemonRestarts leaves connections alone, whether it ends properly or is killed.
func TestTheDaemonRestarts(t *testing.T) {
	n := newNode(t)
	gate := make(chan struct{})
	serve(t, "198.51.100.1:443", slowly(gate))
	serve(t, "198.51.100.1:1", echoes)
	create(n, "base", allow(t, "198.51.100.1:443", "198.51.100.1:1"))
	create(n, "other", allow(t, "198.51.100.1:1"))
	f := startDownload(n, "base", "198.51.100.1:443")
	pid := processOf(n, "base", "download")
	f.Detach()
	gatewayPID := n.Gateway()
	n.Reopen()
	if now := n.Gateway(); now != gatewayPID {
		t.Errorf("the gateway is process %d, was %d", now, gatewayPID)
	}
	close(gate)
	f = n.Follow("base", pid, 0)
	if exit := f.Exit(); exit.ExitCode != 0 {
		t.Errorf("the download ends with %+v", exit)
	}
	if out, _ := f.Text(); !strings.HasSuffix(out, digest) || strings.Contains(out, "reset") {
		t.Errorf("it says %.200q", out)
	}
	mustReach(n, "other", map[string]string{"198.51.100.1:1": connected, "198.51.100.1:443": refused})

	// While no daemon is there, the gateway goes on with what it has.
	n.Close()
	if err := syscall.Kill(gatewayPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "end of the gateway", func() error {
		if pid := n.Gateway(); pid != 0 {
			return fmt.Errorf("it is process %d", pid)
		}
		return nil
	})
	n.Open()
	mustReach(n, "base", map[string]string{"198.51.100.1:1": connected, "198.51.100.1:2": refused})
	mustReach(n, "other", map[string]string{"198.51.100.1:1": connected, "198.51.100.1:443": refused})
}

// TestTheGatewayIsKilled in the middle of a transfer: it breaks, and what comes after has the policy
// that was in force.
func TestTheGatewayIsKilled(t *testing.T) {
	n := newNode(t)
	gate := make(chan struct{})
	serve(t, "198.51.100.1:443", slowly(gate))
	create(n, "base", allow(t, "198.51.100.1:443"))
	f := startDownload(n, "base", "198.51.100.1:443")
	if err := syscall.Kill(n.Gateway(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	// The download sees a reset and begins again, perhaps before the next gateway is there.
	harness.Eventually(t, "reset", func() error {
		if out, _ := f.Text(); !strings.Contains(out, "reset") {
			return fmt.Errorf("it says %q", out)
		}
		return nil
	})
	close(gate)
	harness.Eventually(t, "connection", func() error {
		if got := dial(n, "base", "198.51.100.1:443")["198.51.100.1:443"]; got != connected {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
	mustReach(n, "base", map[string]string{"198.51.100.1:444": refused})
}

// TestForkAfterARequest forks when a connection has just ended: its end waits for late segments.
func TestForkAfterARequest(t *testing.T) {
	n := newNode(t)
	newWorld(t)
	create(n, "base", allow(t, "files.example.org"))
	for range 20 {
		if got := request(n, "base", "GET", "/", ""); !strings.HasPrefix(got, "200 ") {
			t.Fatalf("the answer is %q", got)
		}
		child := n.Fork("base", 1)[0]
		if got := request(n, child.ID, "GET", "/", ""); !strings.HasPrefix(got, "200 ") {
			t.Errorf("a child is answered %q", got)
		}
		n.Destroy(child.ID)
	}
}

// TestAddressesThatWereLookedUp lets programs go on with addresses that they know, wherever they go on.
func TestAddressesThatWereLookedUp(t *testing.T) {
	n := newNode(t)
	serve(t, "198.51.100.1:5000", echoes)
	const address = "198.51.100.1:5000"
	req := allow(t, "files.example.org:5000")
	create(n, "other", req)
	mustReach(n, "other", map[string]string{address: refused})
	create(n, "base", req)
	addressOf(n, "base", "files.example.org")
	mustReach(n, "base", map[string]string{address: connected})
	snap := n.Snapshot("base", api.SnapshotRequest{})
	mustReach(n, n.Fork("base", 1)[0].ID, map[string]string{address: connected})
	r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Network: allow(t, "other.example.org:5000")})
	if err != nil {
		t.Fatal(err)
	}
	mustReach(n, n.Children(r)[0].ID, map[string]string{address: refused})
	n.Hibernate("base")
	if _, err := n.Machine.Wake(harness.AsOwner, "base"); err != nil {
		t.Fatal(err)
	}
	mustReach(n, "base", map[string]string{address: connected})
	n.Destroy("base")
	if r, err = n.Machine.Restore(harness.AsOwner, snap.ID, api.RestoreRequest{}); err != nil {
		t.Fatal(err)
	}
	mustReach(n, n.Children(r)[0].ID, map[string]string{address: connected})
}
