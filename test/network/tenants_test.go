package network

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// newTenants is newNode with a sandbox "other" of tenant other, whose network is the request. The tests
// bound the tenant default.
func newTenants(t *testing.T, req *api.NetworkRequest) (n *harness.Node, other context.Context) {
	t.Helper()
	n = newNode(t)
	n.GiveImage("other")
	other = harness.AsTenant("other")
	createAs(n, other, api.CreateRequest{Name: "other", Network: req})
	t.Cleanup(func() {
		if err := n.Machine.Destroy(other, "other"); err != nil {
			t.Error(err)
		}
	})
	return n, other
}

// change changes what the tenant default may have.
func change(n *harness.Node, u api.TenantUpdate) {
	n.T.Helper()
	if _, err := n.Machine.UpdateTenant(harness.AsOwner, api.DefaultTenant, u); err != nil {
		n.T.Fatal(err)
	}
}

// TestUpperBoundOfATenant narrows the sandboxes of a tenant while they run, those that come later, and
// those of the next gateway and daemon; and no others.
func TestUpperBoundOfATenant(t *testing.T) {
	for _, at := range []string{"198.51.100.1:1", "198.51.100.1:2"} {
		serve(t, at, echoes)
	}
	both := allow(t, "198.51.100.1:1-2")
	n, other := newTenants(t, both)
	create(n, "one", both)
	create(n, "open", &api.NetworkRequest{Profile: "open"})
	create(n, "asleep", both)
	n.Hibernate("asleep")
	cut, stays := hold(n, "one", "198.51.100.1:1", 3), hold(n, "one", "198.51.100.1:2", 3)
	_, err := n.Machine.UpdateTenant(other, "other", api.TenantUpdate{NoNetworkMax: true})
	harness.WantCode(t, err, api.CodeForbidden)
	_, err = n.Machine.UpdateTenant(harness.AsOwner, api.DefaultTenant, api.TenantUpdate{NetworkMax: &api.NetworkRequest{Profile: "nobody-knows"}})
	harness.WantCode(t, err, api.CodeNotFound)
	change(n, api.TenantUpdate{NetworkMax: allow(t, "198.51.100.1:2")})
	cut.ask("whole 0 reset 3\n")
	stays.ask("whole 3 reset 0\n")

	if _, err := n.Machine.Wake(harness.AsOwner, "asleep"); err != nil {
		t.Fatal(err)
	}
	create(n, "later", both)
	n.ForkNamed("one", "child")
	bounded, free := map[string]string{"198.51.100.1:1": refused, "198.51.100.1:2": connected}, map[string]string{"198.51.100.1:1": connected, "198.51.100.1:2": connected}
	all := []string{"one", "open", "asleep", "later", "child"}
	check := func(want map[string]string) {
		t.Helper()
		for _, ref := range all {
			mustReach(n, ref, want)
		}
		mustReachAs(n, other, "other", free)
	}
	check(bounded)

	// It is told, and named as what decides.
	const rule = "bound of tenant default: default: deny"
	got, err := n.Machine.Network(harness.AsOwner, "open")
	if err != nil || len(got.Bounds) != 1 || got.Bounds[0].Of != "tenant default" || len(got.Bounds[0].Policy.Allow) != 1 {
		t.Errorf("the bound is told as %+v, %v", got, err)
	}
	if r, err := n.Machine.TestNetwork(harness.AsOwner, "one", api.NetworkTest{Host: "198.51.100.1", Port: 1}); err != nil || r.Allowed || r.Rule != rule || r.WouldAllow != "" {
		t.Errorf("test: %+v, %v", r, err)
	}
	mustReach(n, "one", map[string]string{"198.51.100.1:1": refused})
	if line := lastLine(n, "one"); line.Verdict != api.NetworkDenied || line.Rule != rule {
		t.Errorf("it is logged as %+v", line)
	}
	if tenant, err := n.Machine.GetTenant(harness.AsOwner, api.DefaultTenant); err != nil || tenant.NetworkMax == nil || len(tenant.NetworkMax.Allow) != 1 {
		t.Errorf("the tenant is told as %+v, %v", tenant, err)
	}
	// A document that comes later changes nothing about it.
	if _, err := n.Machine.SetNetwork(harness.AsOwner, "one", api.NetworkRequest{Profile: "open"}); err != nil {
		t.Fatal(err)
	}
	check(bounded)

	// The bound outlives the gateway, the daemon, and both at once.
	killed := gatewayOf(n)
	kill := func() {
		if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	kill()
	again := func() {
		t.Helper()
		harness.Eventually(t, "gateway", func() error {
			if pid := n.Gateway(); pid == 0 || pid == killed {
				return fmt.Errorf("there is none but %d", pid)
			}
			for _, ref := range all {
				if said := dial(n, ref, "198.51.100.1:2")["198.51.100.1:2"]; said != connected {
					return fmt.Errorf("%s: %s", ref, said)
				}
			}
			return nil
		})
	}
	again()
	check(bounded)
	n.Reopen()
	check(bounded)
	killed = gatewayOf(n)
	n.Close()
	kill()
	n.Open()
	again()
	check(bounded)

	change(n, api.TenantUpdate{NoNetworkMax: true})
	check(free)
	if got, err = n.Machine.Network(harness.AsOwner, "open"); err != nil || len(got.Bounds) != 0 {
		t.Errorf("after its end the bound is told as %+v, %v", got, err)
	}
}

// TestLimitsOfATenant are of its sandboxes together, and not of others.
func TestLimitsOfATenant(t *testing.T) {
	const all = "198.51.100.1:2"
	serve(t, "198.51.100.1:1", echoes)
	serve(t, all, func(c net.Conn) { _, _ = c.Write(data) })
	serve(t, "198.51.100.1:3", func(c net.Conn) { _, _ = c.Write(data[:1<<20]) })
	req := allow(t, "198.51.100.1:1-3", "files.example.org:1")
	n, other := newTenants(t, req)
	create(n, "one", req)
	create(n, "two", req)

	change(n, api.TenantUpdate{Quota: &api.Quota{NetworkConnections: 3}})
	hold(n, "one", "198.51.100.1:1", 2)
	hold(n, "two", "198.51.100.1:1", 1)
	for _, ref := range []string{"one", "two"} {
		mustReach(n, ref, map[string]string{"198.51.100.1:1": refused})
		if line := lastLine(n, ref); line.Verdict != api.NetworkDenied || line.Rule != "quota of tenant default: network_connections: 3" {
			t.Errorf("%s: it is logged as %+v", ref, line)
		}
	}
	mustReachAs(n, other, "other", map[string]string{"198.51.100.1:1": connected})
	if tenant, err := n.Machine.GetTenant(harness.AsOwner, api.DefaultTenant); err != nil || tenant.Usage.NetworkConnections != 3 {
		t.Errorf("the tenant is told as %+v, %v", tenant, err)
	}
	n.Reopen() // the next daemon finds the gateway, which goes on counting
	mustReach(n, "one", map[string]string{"198.51.100.1:1": refused})
	n.Destroy("two") // which gives back what it had
	mustReach(n, "one", map[string]string{"198.51.100.1:1": connected})
	create(n, "two", req)

	// Two at once take as long as both after each other.
	change(n, api.TenantUpdate{Quota: &api.Quota{NetworkMbit: 16}})
	began := time.Now()
	var wg sync.WaitGroup
	for _, ref := range []string{"one", "two"} {
		wg.Go(func() { download(n, harness.AsOwner, ref, "198.51.100.1:3") })
	}
	wg.Wait()
	if took := time.Since(began); took < 700*time.Millisecond { // a second less the burst; half of it for one
		t.Errorf("two megabytes together took %v", took)
	}
	began = time.Now()
	download(n, other, "other", all)
	if took := time.Since(began); took > 7*time.Second { // eight at the rate
		t.Errorf("another tenant's sixteen megabytes took %v", took)
	}
	if tenant, err := n.Machine.GetTenant(harness.AsOwner, api.DefaultTenant); err != nil || tenant.Usage.NetworkMbit <= 0 {
		t.Errorf("the tenant is told as %+v, %v", tenant, err)
	}

	// Four questions at once, and one per second.
	change(n, api.TenantUpdate{Quota: &api.Quota{NetworkDNSPerS: 1}})
	look := make([]string, 6)
	for i := range look {
		look[i] = "files.example.org:1"
	}
	for _, ref := range []string{"one", "two"} {
		said := ""
		for range 3 {
			said += dial(n, ref, look...)[look[0]] + "\n"
		}
		if !strings.Contains(said, noName) {
			t.Errorf("%s has looked up all: %s", ref, said)
		}
	}
	mustReachAs(n, other, "other", map[string]string{look[0]: connected})
	var told []string
	for _, u := range gatewayUsage(n).Tenants {
		told = append(told, fmt.Sprint(u.Name, " ", u.BytesIn >= 2<<20, " ", u.RefusedConnections >= 3, " ", u.RefusedQuestions > 0))
	}
	if got := strings.Join(told, "; "); !strings.Contains(got, "default true true true") || !strings.Contains(got, "other true false false") {
		t.Errorf("the metrics have %s", got)
	}
}

// download has a guest read what a server sends.
func download(n *harness.Node, ctx context.Context, ref, address string) {
	n.T.Helper()
	ctx, cancel := context.WithTimeout(ctx, harness.Timeout)
	defer cancel()
	r, err := n.Machine.Exec(ctx, ref, api.ExecRequest{Argv: []string{"guest", "outside", "download", address}}, api.ExecIO{Stdout: io.Discard})
	if err != nil || r.ExitCode != 0 {
		n.T.Errorf("%s: download %s: %+v, %v", ref, address, r, err)
	}
}
