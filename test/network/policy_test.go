package network

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/test/harness"
)

// TestNone watches all interfaces of the namespace while sandboxes without a network try to reach
// something: a new one, a child, one that is restored, rolled back, woken, promoted, and one whose
// network was taken away.
func TestNone(t *testing.T) {
	n := newNode(t)
	serve(t, "198.51.100.1:443", echoes)
	create(n, "none", nil)
	child := n.Fork("none", 1)[0]
	create(n, "taken", allow(t, "198.51.100.1:443"))
	mustReach(n, "taken", map[string]string{"198.51.100.1:443": connected})
	if _, err := n.Machine.SetNetwork(harness.AsOwner, "taken", api.NetworkRequest{Profile: "none"}); err != nil {
		t.Fatal(err)
	}
	snap := n.Snapshot("none", api.SnapshotRequest{Memory: true})
	restored, err := n.Machine.Restore(harness.AsOwner, snap.ID, api.RestoreRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	n.ForkNamed("none", "rolled", "woken", "promoted")
	if _, err := n.Machine.Rollback(harness.AsOwner, "rolled", snap.ID); err != nil {
		t.Fatal(err)
	}
	n.Hibernate("woken")
	if _, err := n.Machine.Wake(harness.AsOwner, "woken"); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Machine.Promote(harness.AsOwner, n.Fork("promoted", 1)[0].ID); err != nil {
		t.Fatal(err)
	}
	// The one whose network was taken away has children, too.
	n.ForkNamed("taken", "child-of-taken")
	packets := capture(t)
	for _, ref := range []string{"none", child.ID, n.Children(restored)[0].ID, "rolled", "woken", "promoted", "taken", "child-of-taken"} {
		mustReach(n, ref, map[string]string{"198.51.100.1:443": unreachable, "[2001:db8:1::1]:443": unreachable, "169.254.169.254:80": unreachable, "files.example.org:443": "dial tcp: lookup files.example.org"})
		if show := n.Guest(ref, "outside", "show"); strings.Contains(show, "eth0") {
			t.Errorf("%s has an interface: %s", ref, show)
		}
	}
	if seen := packets(); len(seen) > 0 {
		t.Errorf("%d packets left: %v", len(seen), seen)
	}
	// The capture sees what passes.
	c, err := net.Dial("tcp", "198.51.100.1:443")
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	harness.Eventually(t, "capture", func() error {
		if len(packets()) == 0 {
			return errors.New("it has seen nothing")
		}
		return nil
	})
}

// capture returns a function that returns what packets went over interfaces since.
func capture(t *testing.T) func() []string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
	if errors.Is(err, unix.EPERM) {
		t.Skip("this user may not look at packets; root does in the same run")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return func() (seen []string) {
		b := make([]byte, 256)
		for {
			k, _, err := unix.Recvfrom(fd, b, 0)
			if err != nil {
				return seen
			}
			seen = append(seen, fmt.Sprintf("%x", b[:min(k, 40)]))
		}
	}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

func TestRules(t *testing.T) {
	n := newNode(t)
	for _, at := range []string{"198.51.100.1:443", "198.51.100.1:5432", "198.51.100.2:443", "10.77.0.1:443", "169.254.169.254:80", "127.0.0.1:6000", "192.0.2.254:6000", "[2001:db8:1::1]:443"} {
		serve(t, at, echoes)
	}
	create(n, "rules", allow(t, "198.51.100.1:5432", "[2001:db8:1::1]:443", "host.ramet.internal:6000"))
	mustReach(n, "rules", map[string]string{
		"198.51.100.1:5432": connected, "[2001:db8:1::1]:443": connected, "host.ramet.internal:6000": connected, "10.0.2.2:6000": connected,
		"198.51.100.1:443": refused, "198.51.100.2:443": refused, "10.77.0.1:443": refused, "169.254.169.254:80": refused, "192.0.2.254:6000": refused,
		"[::ffff:169.254.169.254]:80": refused, "[64:ff9b::a9fe:a9fe]:80": refused, "other.example.org:443": "dial tcp: lookup other.example.org",
	})
	create(n, "open", &api.NetworkRequest{Profile: "open"})
	mustReach(n, "open", map[string]string{
		"198.51.100.1:5432": connected, "198.51.100.2:443": connected, "[2001:db8:1::1]:443": connected, "files.example.org:443": connected,
		"10.77.0.1:443": refused, "inside.example.org:443": "dial tcp: lookup inside.example.org", "169.254.169.254:80": refused, "192.0.2.254:6000": refused, "10.0.2.2:6000": refused, "host.ramet.internal:6000": refused,
	})
	for address, want := range map[string]bool{"198.51.100.1": true, "10.77.0.1": false, "files.example.org": true} {
		r, err := n.Machine.TestNetwork(harness.AsOwner, "open", api.NetworkTest{Host: address, Port: 443})
		if err != nil || r.Allowed != want || r.Rule == "" {
			t.Errorf("test %s: %+v, %v", address, r, err)
		}
	}
	var lines []api.NetworkLogEntry
	err := n.Machine.NetworkLog(harness.AsOwner, "rules", false, func() {}, func(e api.NetworkLogEntry) error { lines = append(lines, e); return nil })
	if err != nil {
		t.Fatal(err)
	}
	denied := map[string]api.NetworkLogEntry{}
	for _, e := range lines {
		if e.Sandbox != n.Get("rules").ID {
			t.Errorf("a line of another sandbox: %+v", e)
		}
		if e.Verdict == api.NetworkDenied {
			denied[fmt.Sprint(e.Address, " ", e.Port)] = e
		}
	}
	if e := denied["198.51.100.2 443"]; e.WouldAllow != "198.51.100.2:443" || e.Protocol != "tcp" {
		t.Errorf("what is denied is logged as %+v, of %d lines", e, len(lines))
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	n := newNode(t)
	create(n, "base", allow(t, "198.51.100.1:443"))
	bad := func(address string) *api.NetworkRequest {
		return &api.NetworkRequest{NetworkPolicy: api.NetworkPolicy{Allow: []api.NetworkRule{{Address: address}}}}
	}
	for what, err := range map[string]error{
		"a bad address": func() error {
			_, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Network: bad("10.0.0.0/99")})
			return err
		}(),
		"a bad name, live": func() error { _, err := n.Machine.SetNetwork(harness.AsOwner, "base", *bad("a..b")); return err }(),
		"a bad child": func() error {
			_, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Network: bad("no name")})
			return err
		}(),
		"an unknown protocol": func() error {
			_, err := n.Machine.TestNetwork(harness.AsOwner, "base", api.NetworkTest{Host: "a.example.org", Port: 1, Protocol: "sctp"})
			return err
		}(),
	} {
		if api.CodeOf(err) != api.CodeInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Network: &api.NetworkRequest{Profile: "nobody-knows"}})
	harness.WantCode(t, err, api.CodeNotFound)
	if net, err := n.Machine.Network(harness.AsOwner, "base"); err != nil || len(net.Allow) != 1 || net.Allow[0].String() != "198.51.100.1:443" {
		t.Errorf("what was refused changed something: %+v, %v", net, err)
	}
}

// TestReplacement cuts what is not allowed any more, and nothing else.
func TestReplacement(t *testing.T) {
	n := newNode(t)
	serve(t, "198.51.100.1:1", echoes)
	serve(t, "198.51.100.1:2", echoes)
	create(n, "live", allow(t, "198.51.100.1:1-2"))
	one, two := hold(n, "live", "198.51.100.1:1", 3), hold(n, "live", "198.51.100.1:2", 3)
	if _, err := n.Machine.SetNetwork(harness.AsOwner, "live", *allow(t, "198.51.100.1:2")); err != nil {
		t.Fatal(err)
	}
	one.ask("whole 0 reset 3\n")
	two.ask("whole 3 reset 0\n")
	mustReach(n, "live", map[string]string{"198.51.100.1:1": refused, "198.51.100.1:2": connected})
	if _, err := n.Machine.SetNetwork(harness.AsOwner, "live", api.NetworkRequest{}); err != nil {
		t.Fatal(err)
	}
	two.ask("whole 0 reset 3\n")
	mustReach(n, "live", map[string]string{"198.51.100.1:2": unreachable})
	if _, err := n.Machine.SetNetwork(harness.AsOwner, "live", *allow(t, "198.51.100.1:1")); err != nil {
		t.Fatal(err)
	}
	mustReach(n, "live", map[string]string{"198.51.100.1:1": connected, "198.51.100.1:2": refused})
}

// held is a process that has connections open.
type held struct {
	*harness.Follower
	said string
}

// hold opens connections to an echo server.
func hold(n *harness.Node, ref, address string, count int) *held {
	n.T.Helper()
	pid := n.Start(ref, api.StartRequest{Stdin: true}, "outside", "hold", address, fmt.Sprint(count))
	h := &held{n.Follow(ref, pid, 0), "held\n"}
	h.Await(h.said)
	return h
}

// ask has the process use its connections.
func (h *held) ask(want string) {
	h.T.Helper()
	h.Say("go\n")
	h.said += want
	h.Await(h.said)
}

// TestNarrowing gives children less than their parent; a caller that is bound to a tree gives no more.
func TestNarrowing(t *testing.T) {
	n := newNode(t)
	serve(t, "198.51.100.1:1", echoes)
	serve(t, "198.51.100.1:2", echoes)
	base := create(n, "base", allow(t, "198.51.100.1:1-2"))
	r, err := n.Machine.Fork(harness.AsOwner, "base", api.ForkRequest{Count: 2, Network: allow(t, "198.51.100.1:2")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.Children(r) {
		mustReach(n, c.ID, map[string]string{"198.51.100.1:1": refused, "198.51.100.1:2": connected})
	}
	mustReach(n, n.Fork("base", 1)[0].ID, map[string]string{"198.51.100.1:1": connected})
	snap := n.Snapshot("base", api.SnapshotRequest{})
	restored, err := n.Machine.Restore(harness.AsOwner, snap.ID, api.RestoreRequest{Network: &api.NetworkRequest{Profile: "none"}})
	if err != nil {
		t.Fatal(err)
	}
	mustReach(n, n.Children(restored)[0].ID, map[string]string{"198.51.100.1:1": unreachable})
	restored, err = n.Machine.Restore(harness.AsOwner, snap.ID, api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	mustReach(n, n.Children(restored)[0].ID, map[string]string{"198.51.100.1:1": connected})

	bound := access.With(t.Context(), access.Caller{Tenant: access.DefaultTenant, Scope: api.ScopeAdmin, Token: "tok", Tree: base.ID})
	for what, req := range map[string]*api.NetworkRequest{"a wider child": {Profile: "open"}, "another port": allow(t, "198.51.100.1:3")} {
		_, err := n.Machine.Fork(bound, "base", api.ForkRequest{Network: req})
		harness.WantCode(t, err, api.CodeForbidden)
		if _, err = n.Machine.SetNetwork(bound, "base", *req); api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("%s, live: %v", what, err)
		}
	}
	if r, err = n.Machine.Fork(bound, "base", api.ForkRequest{Network: allow(t, "198.51.100.1:1")}); err != nil {
		t.Fatal(err)
	}
	mustReach(n, n.Children(r)[0].ID, map[string]string{"198.51.100.1:1": connected, "198.51.100.1:2": refused})
}

// TestUpperBound bounds all networks of a daemon.
func TestUpperBound(t *testing.T) {
	n := newNode(t)
	serve(t, "198.51.100.1:1", echoes)
	serve(t, "198.51.100.1:2", echoes)
	create(n, "before", &api.NetworkRequest{Profile: "open"})
	mustReach(n, "before", map[string]string{"198.51.100.1:1": connected, "198.51.100.1:2": connected})
	n.NetworkMax = allow(t, "198.51.100.1:1")
	n.Reopen()
	create(n, "after", &api.NetworkRequest{Profile: "open"})
	for _, ref := range []string{"before", "after"} {
		mustReach(n, ref, map[string]string{"198.51.100.1:1": connected, "198.51.100.1:2": refused})
	}
	if s, err := n.Machine.Network(harness.AsOwner, "after"); err != nil || len(s.Bounds) != 1 || s.Bounds[0].Of != "the daemon" {
		t.Errorf("the bound is told as %+v, %v", s, err)
	}
}

// TestAGatewayThatCannotStart refuses networks, and nothing else.
func TestAGatewayThatCannotStart(t *testing.T) {
	n := harness.NewNode(t)
	if err := syscall.Mkdir(n.Paths.RuntimeDir()+"/gateway.sock", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkdir(n.Paths.RuntimeDir()+"/gateway.sock/in-the-way", 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "box", Name: "box", Network: &api.NetworkRequest{Profile: "open"}})
	if err == nil || errors.Is(err, gateway.ErrUnknown) {
		t.Errorf("create: %v", err)
	}
	n.Create("box")
	if err := syscall.Rmdir(n.Paths.RuntimeDir() + "/gateway.sock/in-the-way"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if _, err := n.Machine.SetNetwork(harness.AsOwner, "box", api.NetworkRequest{Profile: "open"}); err != nil {
		t.Errorf("when nothing is in the way: %v after %v", err, time.Since(began))
	}
}
