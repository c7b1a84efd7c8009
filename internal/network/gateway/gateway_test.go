package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"ramet.dev/ramet/api"
	netnames "ramet.dev/ramet/internal/network/dns"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/share"
	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/polltest"
)

func TestAFlowEndToEnd(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.9:5000", echoes)
	s := w.newSentry("one", rules(t, "192.0.2.9:5000"))
	g := s.open("192.0.2.9:5000")
	data := make([]byte, 3<<20)
	rand.Read(data)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := g.Write(data); err != nil {
			t.Error(err)
		}
		g.shut()
	})
	back, err := io.ReadAll(g)
	wg.Wait()
	if err != nil || sha256.Sum256(back) != sha256.Sum256(data) {
		t.Errorf("%d bytes of %d came back: %v", len(back), len(data), err)
	}
	if k := g.last(); k != wire.Closed {
		t.Errorf("the last word is %v", k)
	}
	s.send(wire.Message{Kind: wire.Closed, Flow: g.flow})
	polltest.Eventually(t, 10*time.Second, "the flow is logged", func() bool { return len(w.lines()) == 2 })
	first, last := w.lines()[0], w.lines()[1]
	if first.Verdict != api.NetworkAllowed || first.Address != "192.0.2.9" || first.Port != 5000 || first.Sandbox != "one" || first.Rule == "" {
		t.Errorf("logged %+v", first)
	}
	if last.BytesIn != int64(len(data)) || last.BytesOut != int64(len(data)) || last.DurationMS <= 0 {
		t.Errorf("logged %+v", last)
	}
}

func TestVerdicts(t *testing.T) {
	w := newWorld(t, nil)
	w.mu.Lock()
	w.servers["192.0.2.9:1"] = "127.0.0.1:1" // where nobody listens
	w.mu.Unlock()
	s := w.newSentry("one", rules(t, "192.0.2.9:1", "192.0.2.9:2"))
	for _, c := range []struct {
		protocol wire.Protocol
		address  string
		want     wire.Code
		verdict  api.NetworkVerdict
	}{
		{wire.TCP, "192.0.2.9:1", wire.CodeRefused, api.NetworkAllowed},
		{wire.TCP, "192.0.2.9:2", wire.CodeHostUnreachable, api.NetworkAllowed},
		{wire.TCP, "192.0.2.9:3", wire.CodeRefused, api.NetworkDenied},
		{wire.TCP, "127.0.0.1:22", wire.CodeRefused, api.NetworkDenied},
		{wire.TCP, "[::ffff:169.254.169.254]:80", wire.CodeRefused, api.NetworkDenied},
		{wire.TCP, "[2001:db8::1]:443", wire.CodeRefused, api.NetworkDenied},
		{wire.UDP, "192.0.2.9:1", wire.CodeProhibited, api.NetworkDenied},
		{wire.UDP, "192.0.2.9:53", wire.CodeProhibited, api.NetworkDenied},
		{wire.UDP, "192.0.2.9:443", wire.CodeProhibited, api.NetworkDenied},
	} {
		if _, code := s.dial(c.protocol, c.address); code != c.want {
			t.Errorf("%s: %v, want %v", c.address, code, c.want)
		}
		lines := slices.DeleteFunc(w.lines(), func(e api.NetworkLogEntry) bool { return e.IsEnd() }) // they come when they come
		if e := lines[len(lines)-1]; e.Verdict != c.verdict || e.Rule == "" {
			t.Errorf("%s was logged as %+v", c.address, e)
		}
	}
	polltest.Eventually(t, 10*time.Second, "all flows end", func() bool { return w.Stats().Flows == 0 })
}

func TestResets(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.9:1", func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "half a file")
		_, _ = io.ReadFull(c, make([]byte, 1))
		_ = c.SetLinger(0)
	})
	ended := make(chan error, 1)
	w.serve("192.0.2.9:2", func(c *net.TCPConn) {
		_, err := io.ReadAll(c)
		ended <- err
	})
	s := w.newSentry("one", rules(t, "192.0.2.9:1-2"))
	g := s.open("192.0.2.9:1")
	if _, err := io.ReadFull(g, make([]byte, 11)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Read(make([]byte, 1)); err == nil {
		t.Error("more came")
	}
	if k := g.last(); k != wire.Reset {
		t.Errorf("the server's reset is told as %v", k)
	}
	s.send(wire.Message{Kind: wire.Reset, Flow: s.open("192.0.2.9:2").flow})
	if err := <-ended; err == nil {
		t.Error("the server took the guest's reset for an end")
	}
	g = s.open("192.0.2.9:2")
	if _, err := g.Write([]byte("last words")); err != nil {
		t.Fatal(err)
	}
	g.Close()
	s.send(wire.Message{Kind: wire.Closed, Flow: g.flow})
	if err := <-ended; err != nil {
		t.Errorf("the guest's end came as %v", err)
	}
	polltest.Eventually(t, 10*time.Second, "all flows end", func() bool { return w.Stats().Flows == 0 })
}

// lookUp asks for a name over UDP.
func (s *sentry) lookUp(name string) (addrs []string, rcode int) {
	s.t.Helper()
	b, err := new(dns.Msg).SetQuestion(name+".", dns.TypeA).Pack()
	if err != nil {
		s.t.Fatal(err)
	}
	m := s.get(s.ask(wire.Message{Kind: wire.Question, Payload: b}))
	r := &dns.Msg{}
	if err := r.Unpack(m.Payload); err != nil || m.Kind != wire.Answer {
		s.t.Fatalf("%v: %v", m.Kind, err)
	}
	for _, rr := range r.Answer {
		if a, is := rr.(*dns.A); is {
			addrs = append(addrs, a.A.String())
		}
	}
	return addrs, r.Rcode
}

func TestNames(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.3:5432", echoes)
	s := w.newSentry("one", rules(t, "db.example.org:5432"))
	if _, code := s.dial(wire.TCP, "192.0.2.3:5432"); code != wire.CodeRefused {
		t.Errorf("an address that nobody asked for: %v", code)
	}
	if addrs, rcode := s.lookUp("other.example.com"); rcode != dns.RcodeNameError || addrs != nil {
		t.Errorf("a name that is not allowed: %v, %s", addrs, dns.RcodeToString[rcode])
	}
	if addrs, rcode := s.lookUp("DB.example.org"); rcode != 0 || !slices.Equal(addrs, []string{"192.0.2.3"}) {
		t.Fatalf("a name that is allowed: %v, %s", addrs, dns.RcodeToString[rcode])
	}
	if err := s.open("192.0.2.3:5432").trip("words"); err != nil {
		t.Error(err)
	}
	if _, code := s.dial(wire.TCP, "192.0.2.3:5433"); code != wire.CodeRefused {
		t.Errorf("another port: %v", code)
	}
	for _, test := range []struct {
		host string
		want bool
	}{{"db.example.org", true}, {"other.example.com", false}, {"192.0.2.3", false}} {
		if r, err := w.Test("one", test.host, policy.TCP, 5432); err != nil || r.Allowed != test.want || r.Rule == "" {
			t.Errorf("test of %s: %+v, %v", test.host, r, err)
		}
	}
}

// TestRequestsThatHideTheirNames are refused at all ports where a name decides.
func TestRequestsThatHideTheirNames(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.3:8080", echoes)
	s := w.newSentry("one", rules(t, "db.example.org:8080"))
	if addrs, _ := s.lookUp("db.example.org"); len(addrs) != 1 {
		t.Fatalf("%d addresses", len(addrs))
	}
	for _, text := range []string{
		"GET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", "\r\nGET / HTTP/1.1\r\nHost: denied.test\r\n\r\n", "GET / HTTP/1.1\nHost: denied.test\n\n", "GET / HTTP/1.0\r\n\r\n",
	} {
		g := s.open("192.0.2.3:8080")
		if _, err := io.WriteString(g, text); err != nil {
			t.Fatal(err)
		}
		if k := g.last(); k != wire.Reset {
			t.Errorf("%q: the last word is %v", text, k)
		}
	}
}

// TestNamesOfTheParent lets programs that were forked use the addresses that they had looked up, as far as
// their own policy lets the names have them.
func TestNamesOfTheParent(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("192.0.2.3:5432", echoes)
	doc := rules(t, "db.example.org:5432")
	if addrs, _ := w.newSentry("parent", doc).lookUp("db.example.org"); len(addrs) != 1 {
		t.Fatalf("the parent is given %v", addrs)
	}
	for _, test := range []struct {
		what string
		r    Registration
		doc  api.NetworkPolicy
		want wire.Code
	}{
		{"a child", Registration{ID: "child", Parent: "parent"}, doc, wire.CodeOK},
		{"the same sandbox in another sentry", Registration{ID: "again", Sandbox: "parent"}, doc, wire.CodeOK},
		{"a child whose policy has no such name", Registration{ID: "narrow", Parent: "parent"}, rules(t, "a.example.org:5432"), wire.CodeRefused},
		{"another sandbox", Registration{ID: "other"}, doc, wire.CodeRefused},
		{"a sandbox of another tenant that says so", Registration{ID: "strange", Tenant: "strange", Parent: "parent"}, doc, wire.CodeRefused},
	} {
		test.r.Policy = policy.Spec{Document: test.doc}
		if _, code := w.register(test.r).dial(wire.TCP, "192.0.2.3:5432"); code != test.want {
			t.Errorf("%s: %v, not %v", test.what, code, test.want)
		}
	}
	// What is gone leaves what it knew to those that go on with its programs.
	for _, id := range []string{"parent", "child", "again"} {
		if err := w.Remove(id); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []Registration{{ID: "woken", Sandbox: "parent"}, {ID: "restored", Parent: "child"}} {
		r.Policy = policy.Spec{Document: doc}
		if _, code := w.register(r).dial(wire.TCP, "192.0.2.3:5432"); code != wire.CodeOK {
			t.Errorf("%s: %v", r.ID, code)
		}
	}
}

// TestNamesOfManyThatLeft keeps those of the last ones.
func TestNamesOfManyThatLeft(t *testing.T) {
	var g Gateway
	for i := range 10 {
		n := netnames.NewNames()
		for j := range 4000 {
			n.Add("a.example.org", netip.AddrFrom4([4]byte{192, byte(i), byte(j >> 8), byte(j)}), time.Hour)
		}
		g.leave(&Registration{ID: fmt.Sprint(i)}, n)
	}
	if len(g.left) != 4 || g.left[0].sandbox != "6" {
		t.Errorf("%d have left names", len(g.left))
	}
}

func TestQuestionsOnAStream(t *testing.T) {
	w := newWorld(t, nil)
	s := w.newSentry("one", rules(t, "a.example.org"))
	g := s.open("192.0.2.53:53")
	b, err := new(dns.Msg).SetQuestion("a.example.org.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
		t.Fatal(err)
	}
	var size [2]byte
	if _, err := io.ReadFull(g, size[:]); err != nil {
		t.Fatal(err)
	}
	g.shut()
	if b, err := io.ReadAll(g); err != nil || len(b) != int(binary.BigEndian.Uint16(size[:])) {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	if k := g.last(); k != wire.Closed {
		t.Errorf("the last word is %v", k)
	}
}

// passing passes what it is given.
type passing struct{}

func (passing) New(*Registration, *policy.Policy) (Treatments, error) { return passing{}, nil }

func (passing) Replace(*Registration, *policy.Policy) error { return nil }

func (passing) Close() {}

func (passing) Serve(ctx context.Context, guest net.Conn, t Treated) error {
	server, err := t.Dial(ctx)
	if err != nil {
		return err
	}
	pass(guest.(*guestConn).UnixConn, server)
	return server.Close()
}

// TestTheRateOfTreatedFlows is that of others: it is the sandbox's.
func TestTheRateOfTreatedFlows(t *testing.T) {
	w := newWorld(t, copying{})
	const size = 1 << 20
	w.serve("192.0.2.9:1", func(c *net.TCPConn) {
		_, _ = c.Write(make([]byte, size))
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	})
	doc := rules(t, "192.0.2.9:1")
	doc.Rules = map[string]api.NetworkTreatment{"a.example.org": {Record: true}}
	doc.Limits.RateMbit = 16
	if err := w.SetTenant(Tenant{Name: "default", Limits: share.Limits{RateMbit: 32}}); err != nil {
		t.Fatal(err)
	}
	s := w.newSentry("one", doc)
	g := s.open("192.0.2.9:1")
	began := time.Now()
	if _, err := io.WriteString(g, "GET / HTTP/1.1\r\nHost: 192.0.2.9:1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(g); err != nil || len(b) != size {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if took := time.Since(began); took < 300*time.Millisecond { // what the burst leaves takes 450
		t.Errorf("a megabyte took %v", took)
	}
	// It counts for what the tenant does together, too.
	if st := w.Tenants()["default"]; st.BytesIn != size || st.BytesOut == 0 {
		t.Errorf("the tenant has passed %+v", st)
	}
}

// copying passes what the server sends.
type copying struct{ passing }

func (copying) New(*Registration, *policy.Policy) (Treatments, error) { return copying{}, nil }

func (copying) Serve(ctx context.Context, guest net.Conn, t Treated) error {
	server, err := t.Dial(ctx)
	if err != nil {
		return err
	}
	defer server.Close()
	if _, err := guest.Read(make([]byte, 4096)); err != nil {
		return err
	}
	_, err = io.Copy(guest, server)
	return err
}

// hello returns the beginning of a handshake.
func hello(t *testing.T, name string) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	}()
	b := make([]byte, 4096)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	<-done
	return b[:n]
}

func TestTheNameInTheFirstBytes(t *testing.T) {
	w := newWorld(t, passing{})
	for _, port := range []string{"443", "80", "22"} {
		w.serve("192.0.2.1:"+port, echoes)
	}
	s := w.newSentry("one", rules(t, "a.example.org:443", "a.example.org:80", "a.example.org:22"))
	if addrs, _ := s.lookUp("a.example.org"); len(addrs) != 1 {
		t.Fatalf("addresses %v", addrs)
	}
	for name, c := range map[string]struct {
		port, say string
		allowed   bool
	}{
		"TLS":               {"443", string(hello(t, "a.example.org")), true},
		"TLS, other name":   {"443", string(hello(t, "b.example.org")), false},
		"TLS, no name":      {"443", string(hello(t, "")), false},
		"no TLS":            {"443", "SSH-2.0-client\r\n", false},
		"HTTP":              {"80", "GET / HTTP/1.1\r\nHost: a.example.org\r\n\r\n", true},
		"HTTP, other name":  {"80", "GET / HTTP/1.1\r\nHost: b.example.org\r\n\r\n", false},
		"HTTP, two names":   {"80", "GET / HTTP/1.1\r\nHost: a.example.org\r\nHost: b.example.org\r\n\r\n", false},
		"HTTP/2":            {"80", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false},
		"SSH":               {"22", "SSH-2.0-client\r\n", true},
		"TLS at other port": {"22", string(hello(t, "a.example.org")), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := s.open("192.0.2.1:" + c.port)
			defer g.Close()
			defer func() { s.send(wire.Message{Kind: wire.Closed, Flow: g.flow}) }()
			err := g.trip(c.say)
			if (err == nil) != c.allowed {
				t.Errorf("allowed %v: %v", c.allowed, err)
			}
			if !c.allowed {
				if k := g.last(); k != wire.Reset {
					t.Errorf("it is told as %v", k)
				}
			}
		})
	}
	polltest.Eventually(t, 10*time.Second, "all flows end", func() bool { return w.Stats().Flows == 0 })
	denied := 0
	for _, e := range w.lines() {
		if e.Verdict == api.NetworkDenied {
			denied++
		}
	}
	if denied != 6 {
		t.Errorf("%d denials were logged", denied)
	}
}

func TestDatagrams(t *testing.T) {
	w := newWorld(t, nil)
	pc, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		b := make([]byte, maxDatagram)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = pc.WriteTo(b[:n], from)
		}
	})
	defer wg.Wait()
	defer pc.Close()
	w.servers["192.0.2.9:123"] = pc.LocalAddr().String()
	s := w.newSentry("one", rules(t, "udp:192.0.2.9:123"))
	g, code := s.dial(wire.UDP, "192.0.2.9:123")
	if g == nil {
		t.Fatal(code)
	}
	for _, n := range []int{1, 1400, 60000} {
		if err := g.trip(strings.Repeat("x", n)); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	g.Close()
	s.send(wire.Message{Kind: wire.Closed, Flow: g.flow})
	polltest.Eventually(t, 10*time.Second, "the flow ends", func() bool { return w.Stats().Flows == 0 })
	lines := w.lines()
	if e := lines[len(lines)-1]; e.BytesIn != 61401 || e.BytesOut != 61401 || e.Protocol != "udp" {
		t.Errorf("logged %+v", e)
	}
}

func TestEchoes(t *testing.T) {
	w := newWorld(t, nil)
	s := w.newSentry("one", rules(t, "127.0.0.1:7", "[::1]:7"))
	for _, addr := range []string{"127.0.0.1", "::1"} {
		m := s.get(s.ask(wire.Message{Kind: wire.Echo, Address: netip.MustParseAddr(addr), Payload: []byte("ping")}))
		if m.Kind != wire.Echoed || string(m.Payload) != "ping" {
			t.Errorf("%s: %v %q, code %v", addr, m.Kind, m.Payload, m.Code)
		}
	}
	m := s.get(s.ask(wire.Message{Kind: wire.Echo, Address: netip.MustParseAddr("192.0.2.77"), Payload: []byte("ping")}))
	if m.Kind != wire.Verdict || m.Code != wire.CodeProhibited {
		t.Errorf("an address that is not allowed: %v, code %v", m.Kind, m.Code)
	}
}

// proxy serves treated flows in tests: of each it passes the first bytes of the server.
type proxy struct {
	got     chan Treated
	refused error // of Replace
	closed  chan bool
}

func (p *proxy) New(*Registration, *policy.Policy) (Treatments, error) { return p, nil }

func (p *proxy) Replace(*Registration, *policy.Policy) error { return p.refused }

func (p *proxy) Close() { p.closed <- true }

func (p *proxy) Serve(ctx context.Context, guest net.Conn, t Treated) error {
	p.got <- t
	if _, err := guest.Read(make([]byte, 4096)); err != nil {
		return err
	}
	server, err := t.Dial(ctx)
	if err != nil {
		return err
	}
	defer server.Close()
	_, err = io.Copy(guest, io.LimitReader(server, 5))
	return err
}

func TestTreatedFlows(t *testing.T) {
	p := &proxy{got: make(chan Treated, 1), closed: make(chan bool, 1)}
	w := newWorld(t, p)
	w.serve("192.0.2.1:443", func(c *net.TCPConn) { _, _ = io.WriteString(c, "hello"); _, _ = io.Copy(io.Discard, c) })
	doc := document(t, `{"allow": ["a.example.org"], "rules": {"a.example.org": {"methods": ["GET"]}}}`)
	s := w.register(Registration{ID: "one", Sandbox: "sbx", Policy: policy.Spec{Document: doc}})
	if addrs, _ := s.lookUp("a.example.org"); len(addrs) != 1 {
		t.Fatalf("addresses %v", addrs)
	}
	g := s.open("192.0.2.1:443")
	if _, err := g.Write(hello(t, "a.example.org")); err != nil {
		t.Fatal(err)
	}
	got := <-p.got
	if got.Name != "a.example.org" || !got.TLS || got.Treatment.Pattern != "a.example.org" || got.Port != 443 {
		t.Errorf("the proxy was given %+v", got)
	}
	if b, err := io.ReadAll(g); string(b) != "hello" || err != nil {
		t.Errorf("the guest read %q: %v", b, err)
	}
	if k := g.last(); k != wire.Closed {
		t.Errorf("the last word is %v", k)
	}
	got.Log(api.NetworkLogEntry{Verdict: api.NetworkHeld, Method: "POST"})
	got.Log(api.NetworkLogEntry{Verdict: api.NetworkAllowed, Method: "GET", Path: "/x"})
	lines := w.lines()
	if e := lines[len(lines)-1]; e.Sandbox != "sbx" || e.Name != "a.example.org" || e.Address != "192.0.2.1" || e.Port != 443 || e.Protocol != "http" || e.Path != "/x" {
		t.Errorf("a request is logged as %+v", e)
	}
	if st := w.Stats(); st.Requests != 1 || st.Held != 1 {
		t.Errorf("the numbers are %+v", st)
	}
	// What cannot be treated is not put in force.
	p.refused = errors.New("no authority")
	if err := w.Replace(Registration{ID: "one", Policy: policy.Spec{Document: rules(t, "192.0.2.9:1")}}); !errors.Is(err, p.refused) {
		t.Errorf("replace: %v", err)
	}
	if _, code := s.dial(wire.TCP, "192.0.2.9:1"); code != wire.CodeRefused {
		t.Errorf("a policy is in force that was refused: %v", code)
	}
	if err := w.Remove("one"); err != nil || len(p.closed) != 1 {
		t.Errorf("%d treatments are closed: %v", len(p.closed), err)
	}
}

// TestTheHostsLoopback is reached at the address of the guest's router, if a rule names it.
func TestTheHostsLoopback(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("127.0.0.1:5000", echoes)
	w.serve("127.0.0.1:5001", echoes)
	s := w.newSentry("one", rules(t, "host.ramet.internal:5000", "*.internal"))
	if err := s.open("10.0.2.2:5000").trip("words"); err != nil {
		t.Error(err)
	}
	if _, code := s.dial(wire.TCP, "10.0.2.2:5001"); code != wire.CodeRefused {
		t.Errorf("another port of the host: %v", code)
	}
	if r, err := w.Test("one", "host.ramet.internal", policy.TCP, 5000); err != nil || !r.Allowed {
		t.Errorf("test: %+v, %v", r, err)
	}
	r, err := w.Test("one", "host.ramet.internal", policy.TCP, 5001)
	if err != nil || r.Allowed || r.WouldAllow != "host.ramet.internal:5001" {
		t.Errorf("test of another port: %+v, %v", r, err)
	}
	named := w.newSentry("named", rules(t, "host.ramet.internal"))
	if _, code := named.dial(wire.TCP, "10.0.2.2:5000"); code != wire.CodeRefused {
		t.Errorf("without a port, the name of the host opens port 5000: %v", code)
	}
	if r, err := w.Test("named", "host.ramet.internal", policy.TCP, 443); err != nil || !r.Allowed {
		t.Errorf("without a port, the name of the host opens port 443: %+v, %v", r, err)
	}
	open := w.newSentry("two", api.NetworkPolicy{Default: api.NetworkAllow})
	if _, code := open.dial(wire.TCP, "10.0.2.2:5000"); code != wire.CodeRefused {
		t.Errorf("an open network reaches the host's loopback: %v", code)
	}
}
