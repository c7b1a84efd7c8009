package node

import (
	"net"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestReachInAContainer has a sandbox reach a server of the machine, for which the gateway has to start. It also runs in
// containers.
func TestReachInAContainer(t *testing.T) {
	n := harness.NewNode(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	rule, err := api.ParseNetworkRule("allow", "host.ramet.internal:"+port)
	if err != nil {
		t.Fatal(err)
	}
	network := &api.NetworkRequest{}
	network.Allow = append(network.Allow, rule)
	req := api.CreateRequest{Image: "box", Name: "box", Network: network}
	if _, err := n.Machine.Create(harness.AsOwner, req); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"box", n.Fork("box", 1)[0].ID} {
		out := n.Guest(ref, "outside", "dial", "host.ramet.internal:"+port)
		if !strings.Contains(out, ": connected") {
			t.Errorf("%s: %s", ref, out)
		}
	}
}
