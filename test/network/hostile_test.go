package network

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestNumbersOfTheGateway reads what is counted, and counts a gateway that is killed.
func TestNumbersOfTheGateway(t *testing.T) {
	n := newNode(t)
	n.Create("none")
	if u := n.Machine.Usage(); u.Gateway != nil || u.GatewayRestarts != 0 {
		t.Errorf("without a network: %+v, %d restarts", u.Gateway, u.GatewayRestarts)
	}
	serve(t, "198.51.100.1:1", echoes)
	create(n, "base", allow(t, "198.51.100.1:1"))
	h := hold(n, "base", "198.51.100.1:1", 3)
	mustReach(n, "base", map[string]string{"198.51.100.1:2": refused})
	harness.Eventually(t, "numbers of four flows", func() error { // the guest knows of a decision before it is counted
		u := n.Machine.Usage().Gateway
		if u == nil || u.Sandboxes != 1 || u.Flows != 3 || u.Decisions[api.NetworkAllowed] != 3 || u.Decisions[api.NetworkDenied] != 1 || u.Decisions[api.NetworkHeld] != 0 {
			return fmt.Errorf("counted: %+v", u)
		}
		return nil
	})
	if err := syscall.Kill(n.Gateway(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "restart", func() error {
		if u := n.Machine.Usage(); u.Gateway == nil || u.GatewayRestarts != 1 || u.Gateway.Sandboxes != 1 || u.Gateway.Flows != 0 {
			return fmt.Errorf("%+v, %d restarts", u.Gateway, u.GatewayRestarts)
		}
		return nil
	})
	h.ask("whole 0 reset 3\n")
}

// gatewayUsage returns what the gateway counts. A gateway that takes long to answer is left out of what the machine uses.
func gatewayUsage(n *harness.Node) (u *api.GatewayUsage) {
	n.T.Helper()
	harness.Eventually(n.T, "numbers of the gateway", func() error {
		if u = n.Machine.Usage().Gateway; u == nil {
			return errors.New("there are none")
		}
		return nil
	})
	return u
}

// smuggle returns the lines of "outside smuggle", by what was tried.
func smuggle(n *harness.Node, ref, address string) map[string]string {
	n.T.Helper()
	said := map[string]string{}
	for line := range strings.Lines(n.Guest(ref, "outside", "smuggle", address)) {
		what, how, _ := strings.Cut(strings.TrimSpace(line), ": ")
		said[what] = how
	}
	return said
}

// TestPacketsOfARootGuest has root of a guest try UDP, echoes, raw packets with a source of its choice
// and packets of an interface: nothing passes any interface of the host.
func TestPacketsOfARootGuest(t *testing.T) {
	n := newNode(t)
	serve(t, "198.51.100.1:1", echoes)
	create(n, "base", allow(t, "198.51.100.1:1"))
	mustReach(n, "base", map[string]string{"198.51.100.1:1": connected})
	if _, err := n.Machine.SetNetwork(harness.AsOwner, "base", *allow(t, "198.51.100.2:1")); err != nil {
		t.Fatal(err)
	}
	if id := n.Guest("base", "id"); !strings.HasPrefix(id, "0 0 ") {
		t.Fatalf("the guest is %s", id)
	}
	packets := capture(t)
	said := smuggle(n, "base", "198.51.100.1")
	if !strings.HasSuffix(said["udp"], "connection refused") {
		t.Errorf("udp: %q", said["udp"])
	}
	if said["echo"] == "" || said["echo"] == "answer" {
		t.Errorf("echo: %q", said["echo"])
	}
	for _, what := range []string{"raw", "fragment", "packet"} {
		if said[what] != "operation not permitted" {
			t.Errorf("%s: %q", what, said[what])
		}
	}
	if seen := packets(); len(seen) > 0 {
		t.Errorf("%d packets left: %v", len(seen), seen)
	}
}

// TestNameServersOfOthers are reached by no name rule, encrypted or not: the gateway answers port 53,
// and port 853 needs a rule.
func TestNameServersOfOthers(t *testing.T) {
	n := newNode(t)
	seen := []*server{serve(t, "198.51.100.1:853", echoes), serve(t, "198.51.100.1:53", echoes), serve(t, "198.51.100.2:853", echoes)}
	create(n, "named", allow(t, "files.example.org"))
	mustReach(n, "named", map[string]string{"198.51.100.1:853": refused, "files.example.org:853": refused, "198.51.100.1:53": connected})
	create(n, "open", &api.NetworkRequest{Profile: "open"})
	mustReach(n, "open", map[string]string{"198.51.100.1:53": connected})
	if seen[0].count() != 0 || seen[1].count() != 0 || seen[2].count() != 0 {
		t.Errorf("connections of name servers: %d, %d, %d", seen[0].count(), seen[1].count(), seen[2].count())
	}
	mustBeDenied(n, "named", "tcp", "198.51.100.1:853")
	// Where all public addresses are allowed, so is a name server over TLS or HTTPS, as a connection that is
	// logged. A rule that denies one by name denies its address as well, which was given out for no other.
	serve(t, "198.51.100.1:443", echoes)
	mustReach(n, "open", map[string]string{"198.51.100.1:853": connected})
	harness.Eventually(t, "a line about a name server over TLS", func() error {
		if e := lastLine(n, "open"); e.Verdict != api.NetworkAllowed || e.Address != "198.51.100.1" || e.Port != 853 {
			return fmt.Errorf("the last is %+v", e)
		}
		return nil
	})
	without := &api.NetworkRequest{Profile: "open"}
	without.Deny = allow(t, "files.example.org").Allow
	create(n, "without", without)
	mustReach(n, "without", map[string]string{"files.example.org:443": noName, "198.51.100.1:443": refused, "198.51.100.1:853": refused, "other.example.org:853": connected})
	mustBeDenied(n, "without", "tcp", "198.51.100.1:443")
	mustBeDenied(n, "without", "dns", "files.example.org")
}

// TestAFloodOfConnections has a guest connect ten thousand times to an address that is denied: each is
// refused, and the gateway keeps nothing of it.
func TestAFloodOfConnections(t *testing.T) {
	n := newNode(t)
	create(n, "base", allow(t, "198.51.100.2:1"))
	const count = 10000
	before := rss(t, n.Gateway())
	if said := n.Long("base", "outside", "flood", "198.51.100.1:1", fmt.Sprint(count)); said != fmt.Sprintf("connected 0 refused %d other 0\n", count) {
		t.Errorf("the guest says %q", said)
	}
	harness.Eventually(t, "numbers of a flood", func() error {
		if u := n.Machine.Usage().Gateway; u == nil || u.Decisions[api.NetworkDenied] != count || u.Flows != 0 {
			return fmt.Errorf("the gateway counts %+v", u)
		}
		return nil
	})
	if after := rss(t, n.Gateway()); after > before+64<<20 {
		t.Errorf("the gateway has %d MiB, had %d", after>>20, before>>20)
	}
}

// rss returns the memory of a process.
func rss(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * int64(os.Getpagesize())
}
