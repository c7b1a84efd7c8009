package gateway

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/share"
	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/polltest"
)

// of registers a sandbox of a tenant.
func (w *world) of(tenant, tree, id string, doc api.NetworkPolicy) *sentry {
	w.t.Helper()
	return w.register(Registration{ID: id, Name: id, Tenant: tenant, Tree: tree, Policy: policy.Spec{Document: doc}})
}

func (w *world) setTenant(told Tenant) {
	w.t.Helper()
	if err := w.SetTenant(told); err != nil {
		w.t.Fatal(err)
	}
}

func bound(of string, doc api.NetworkPolicy) []policy.Bound {
	return []policy.Bound{{Of: of, Document: doc}}
}

// TestBoundOfATenant narrows all sandboxes of a tenant, those that come later as well, and no other.
func TestBoundOfATenant(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.9:1", echoes)
	w.serve("192.0.2.9:2", echoes)
	both := rules(t, "192.0.2.9:1-2")
	one, other := w.of("acme", "", "one", both), w.of("other", "", "other", both)
	stays, cut, elsewhere := one.open("192.0.2.9:1"), one.open("192.0.2.9:2"), other.open("192.0.2.9:2")
	w.setTenant(Tenant{Name: "acme", Bounds: bound("tenant acme", rules(t, "192.0.2.9:1"))})
	if kind := cut.last(); kind != wire.Reset {
		t.Errorf("what the bound does not allow ended with %v", kind)
	}
	for what, g := range map[string]*guest{"what it allows": stays, "another tenant's": elsewhere} {
		if err := g.trip("words"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	later := w.of("acme", "", "later", both)
	for _, s := range []*sentry{one, later} {
		s.open("192.0.2.9:1")
		if _, code := s.dial(wire.TCP, "192.0.2.9:2"); code != wire.CodeRefused {
			t.Errorf("%s: %v", s.id, code)
		}
		r, err := w.Test(s.id, "192.0.2.9", policy.TCP, 2)
		if err != nil || r.Allowed || r.Rule != "bound of tenant acme: default: deny" || r.WouldAllow != "" {
			t.Errorf("%s is told %+v, %v", s.id, r, err)
		}
	}
	// A document that comes later is within the bound, and the bound ends when it is taken away.
	if err := w.Replace(Registration{ID: "one", Policy: policy.Spec{Document: api.NetworkPolicy{Default: api.NetworkAllow}}}); err != nil {
		t.Fatal(err)
	}
	if _, code := one.dial(wire.TCP, "192.0.2.9:2"); code != wire.CodeRefused {
		t.Errorf("with another document: %v", code)
	}
	w.logged(3, api.NetworkDenied, "bound of tenant acme: default: deny")
	w.setTenant(Tenant{Name: "acme"})
	later.open("192.0.2.9:2")
	bad := Tenant{Name: "acme", Bounds: bound("tenant acme", document(t, `{"rules":{"a.example.org":{"record":true}}}`))}
	if err := w.SetTenant(bad); api.CodeOf(err) != api.CodeInvalid {
		t.Errorf("a bound with treatments: %v", err)
	}
	later.open("192.0.2.9:2")
}

// TestBoundsReachWhoComesAtTheSameTime sets bounds while sandboxes are registered: when both have
// returned, each is within the bound.
func TestBoundsReachWhoComesAtTheSameTime(t *testing.T) {
	w := newWorld(t, nil)
	all := rules(t, "192.0.2.9:1")
	const count = 20
	var wg sync.WaitGroup
	ids := make([]string, count)
	for i := range count {
		ids[i] = string(rune('a' + i))
		ours, theirs, err := wire.Pair()
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		wg.Go(func() {
			if err := w.Add(Registration{ID: ids[i], Tenant: "acme", Policy: policy.Spec{Document: all}}, theirs); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if err := w.SetTenant(Tenant{Name: "acme", Bounds: bound("tenant acme", rules(t, "192.0.2.9:2"))}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if r, err := w.Test(id, "192.0.2.9", policy.TCP, 1); err != nil || r.Allowed {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
	}
}

// TestConnectionsTogether counts those of a tenant and of its trees.
func TestConnectionsTogether(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.9:1", echoes)
	w.setTenant(Tenant{Name: "acme", Limits: share.Limits{Connections: 3}, TreeLimits: share.Limits{Connections: 2}})
	doc := rules(t, "192.0.2.9:1")
	a1, a2, b := w.of("acme", "a", "a1", doc), w.of("acme", "a", "a2", doc), w.of("acme", "b", "b", doc)
	other := w.of("other", "a", "other", doc)
	denied := func(s *sentry, want string) {
		t.Helper()
		if _, code := s.dial(wire.TCP, "192.0.2.9:1"); code != wire.CodeRefused {
			t.Errorf("one too many: %v", code)
		}
		w.logged(1, api.NetworkDenied, want)
	}
	first := a1.open("192.0.2.9:1")
	a2.open("192.0.2.9:1")
	denied(a1, "quota of tree a: network_connections: 2")
	b.open("192.0.2.9:1")
	denied(b, "quota of tenant acme: network_connections: 3")
	for range 4 {
		other.open("192.0.2.9:1")
	}
	if st := w.Tenants()["acme"]; st.Connections != 3 || st.Refused.Connections != 1 {
		t.Errorf("the tenant has %+v", st)
	}
	first.Close()
	a1.send(wire.Message{Kind: wire.Closed, Flow: first.flow})
	free := func() bool { return w.Tenants()["acme"].Connections == 2 }
	polltest.Eventually(t, 10*time.Second, "a connection is free", free)
	b.open("192.0.2.9:1")
	// A sandbox that ends gives back what it had; a limit that is lowered leaves what is open.
	w.setTenant(Tenant{Name: "acme", Limits: share.Limits{Connections: 1}})
	denied(a2, "quota of tenant acme: network_connections: 1")
	if err := w.Remove("b"); err != nil {
		t.Fatal(err)
	}
	if err := w.Remove("a2"); err != nil {
		t.Fatal(err)
	}
	a1.open("192.0.2.9:1")
	if err := w.Remove("a1"); err != nil {
		t.Fatal(err)
	}
	w.setTenant(Tenant{Name: "acme"})
	gone := func() bool { _, has := w.Tenants()["acme"]; return !has }
	polltest.Eventually(t, 10*time.Second, "nothing is kept of a tenant without sandboxes and bounds", gone)
}

// TestOneConnectionBetweenTwo counts once, and is given back.
func TestOneConnectionBetweenTwo(t *testing.T) {
	w := newWorld(t, nil)
	w.setTenant(Tenant{Name: "acme", Limits: share.Limits{Connections: 1}})
	from := w.of("acme", "", "from", document(t, `{"allow":[{"sandbox":"to"}]}`))
	to := w.of("acme", "", "to", document(t, `{"accept":[{"sandbox":"from"}]}`))
	w.Gateway.mu.Lock()
	at := w.sandboxes["to"].address
	w.Gateway.mu.Unlock()
	flow := from.ask(wire.Message{Kind: wire.Dial, Protocol: wire.TCP, Address: at, Port: 80})
	in := <-to.inbound
	defer in.file.Close()
	to.send(wire.Message{Kind: wire.Accepted, Flow: in.Flow})
	m := from.get(flow)
	if m.Code != wire.CodeOK {
		t.Fatalf("it is refused: %v", m.Code)
	}
	defer m.file.Close()
	if st := w.Tenants()["acme"]; st.Connections != 1 {
		t.Errorf("it counts as %+v", st)
	}
	if err := w.Remove("to"); err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, 10*time.Second, "it is given back", func() bool { return w.Tenants()["acme"].Connections == 0 })
}

// TestRateTogether shares a rate between sandboxes, and lets those who wait go on when it ends.
func TestRateTogether(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.9:1", func(c *net.TCPConn) { _, _ = c.Write(make([]byte, 8<<20)); _ = c.CloseWrite() })
	w.serve("192.0.2.9:2", echoes)
	w.setTenant(Tenant{Name: "acme", Limits: share.Limits{RateMbit: 16}}) // two megabytes per second
	doc := rules(t, "192.0.2.9:1-2")
	one, two := w.of("acme", "a", "one", doc), w.of("acme", "b", "two", doc)
	f := newFlood(t)
	guests := []*guest{one.open("192.0.2.9:1"), two.open("192.0.2.9:1")}
	f.read(guests...)
	f.passes(two.open("192.0.2.9:2"))
	f.wait()
	w.setTenant(Tenant{Name: "acme"})
	f.rest(8<<20, guests...)
}

// TestQuestionsTogether shares questions between sandboxes.
func TestQuestionsTogether(t *testing.T) {
	w := newWorld(t, nil)
	w.setTenant(Tenant{Name: "acme", Limits: share.Limits{DNSPerS: 2}})
	doc := rules(t, "a.example.org")
	one, two, other := w.of("acme", "", "one", doc), w.of("acme", "", "two", doc), w.of("other", "", "other", doc)
	refused := map[string]int{}
	began := time.Now()
	for range 8 {
		for _, s := range []*sentry{one, two, other} {
			if _, rcode := s.lookUp("a.example.org"); rcode == dns.RcodeRefused {
				refused[s.id]++
			}
		}
	}
	// Four pass at once, and two more each second.
	if least := 11 - int(2*time.Since(began).Seconds()); refused["other"] != 0 || refused["one"]+refused["two"] < least {
		t.Errorf("so many of 8 each were refused, and not %d of one and two together: %v", least, refused)
	}
	st := w.Tenants()["acme"]
	if st.Questions+st.Refused.Questions != 16 || st.Refused.Questions != int64(refused["one"]+refused["two"]) {
		t.Errorf("the tenant has asked %+v", st)
	}
	found := false
	for _, e := range w.lines() {
		found = found || e.Verdict == api.NetworkDenied && strings.HasSuffix(e.Rule, "quota of tenant acme: network_dns_per_s: 2")
	}
	if !found && st.Refused.Questions > 0 {
		t.Errorf("no line names the limit: %+v", w.lines())
	}
}

// TestReachWithinTheBound judges a request that was held by the bound in force when it is sent.
func TestReachWithinTheBound(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.1:443", echoes)
	p, err := policy.Compile(policy.Spec{Document: rules(t, "a.example.org")}, func(netip.Addr) bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.Reach(t.Context(), "acme", p, "a.example.org", 443)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	w.setTenant(Tenant{Name: "acme", Bounds: bound("tenant acme", rules(t, "b.example.org"))})
	if _, err = w.Reach(t.Context(), "acme", p, "a.example.org", 443); api.CodeOf(err) != api.CodeForbidden || !strings.Contains(err.Error(), "bound of tenant acme") {
		t.Errorf("what the bound does not allow: %v", err)
	}
}
