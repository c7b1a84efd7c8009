package dns

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// records is a zone file of the server that is the host's resolver in tests.
const records = `
a.example.org.            30  IN A     192.0.2.1
a.example.org.            30  IN A     192.0.2.2
a.example.org.            30  IN AAAA  2001:db8::1
alias.example.org.        30  IN CNAME deep.example.net.
deep.example.net.         30  IN CNAME target.example.net.
target.example.net.  9999999  IN A     192.0.2.3
loop.example.org.         30  IN CNAME loop.example.org.
inside.example.org.       30  IN A     10.0.0.1
inside.example.org.       30  IN A     192.0.2.4
mapped.example.org.       30  IN AAAA  ::ffff:169.254.169.254
web.example.org.          30  IN HTTPS 1 . alpn=h2 ipv4hint=10.0.0.1 ipv6hint=2001:db8::9 ech=AAAA
text.example.org.         30  IN TXT   "words"
long.example.org.         30  IN TXT   "LONG"
`

// server is a resolver on the loopback interface.
type server struct {
	addr   string
	mu     sync.Mutex
	seen   []*dns.Msg
	zone   []dns.RR
	change func(m *dns.Msg) // is applied to each answer
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{change: func(*dns.Msg) {}}
	p := dns.NewZoneParser(strings.NewReader(strings.ReplaceAll(records, "LONG", strings.Repeat("x", 250)+`" "`+strings.Repeat("y", 250)+`" "`+strings.Repeat("z", 250))), ".", "")
	for rr, ok := p.Next(); ok; rr, ok = p.Next() {
		s.zone = append(s.zone, rr)
	}
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	pc, l := listen(t)
	s.addr = pc.LocalAddr().String()
	var wg sync.WaitGroup
	var stop []*dns.Server
	for _, d := range []*dns.Server{{PacketConn: pc, Handler: s}, {Listener: l, Handler: s}} {
		started := make(chan struct{})
		d.NotifyStartedFunc = func() { close(started) }
		wg.Go(func() { _ = d.ActivateAndServe() })
		<-started
		stop = append(stop, d)
	}
	t.Cleanup(func() {
		for _, d := range stop {
			if err := d.Shutdown(); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
	})
	return s
}

// listen returns sockets of one number for datagrams and streams. Another process may have the number that
// the kernel gives to one of them as that of the other: then both are taken anew.
func listen(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	for {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", pc.LocalAddr().String())
		if err == nil {
			return pc, l
		}
		pc.Close()
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

// ServeDNS answers with the records of the zone, and follows aliases as resolvers do.
func (s *server) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	s.mu.Lock()
	s.seen = append(s.seen, m.Copy())
	change := s.change
	s.mu.Unlock()
	r := new(dns.Msg).SetReply(m)
	name := m.Question[0].Name
	known := false
	for range 5 {
		next := ""
		for _, rr := range s.zone {
			if !strings.EqualFold(rr.Header().Name, name) {
				continue
			}
			known = true
			if c, is := rr.(*dns.CNAME); is {
				next = c.Target
			}
			if _, is := rr.(*dns.CNAME); is || rr.Header().Rrtype == m.Question[0].Qtype {
				r.Answer = append(r.Answer, rr)
			}
		}
		if next == "" || next == name {
			break
		}
		name = next
	}
	if !known {
		r.Rcode = dns.RcodeNameError
	}
	change(r)
	if _, udp := w.RemoteAddr().(*net.UDPAddr); udp {
		r.Truncate(512)
	}
	_ = w.WriteMsg(r) // the client may be gone
}

// onAnswer has f applied to each answer from now on.
func (s *server) onAnswer(f func(m *dns.Msg)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.change = f
}

func (s *server) questions() []*dns.Msg {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// rules is a policy of tests.
type rules struct{}

func (rules) Name(name string) Ruling {
	r := Ruling{Rule: "test"}
	switch {
	case strings.HasSuffix(name, ".example.org"), name == "host.internal":
		r.Allowed, r.Named = true, true
	case strings.HasSuffix(name, ".open.example"):
		r.Allowed = true
	}
	return r
}

func (rules) Address(_ string, addr netip.Addr) bool {
	return !addr.IsPrivate() && !addr.IsLoopback() && !addr.IsLinkLocalUnicast()
}

// siblings are other sandboxes of tests.
type siblings struct{}

func (siblings) Sibling(name string) (netip.Addr, bool) {
	if name == "db.sandbox" {
		return netip.MustParseAddr("198.18.0.1"), true
	}
	return netip.Addr{}, strings.HasSuffix(name, ".sandbox")
}

func newClient(t *testing.T, s *server) *Client {
	t.Helper()
	dir := t.TempDir()
	conf, hosts := filepath.Join(dir, "resolv.conf"), filepath.Join(dir, "hosts")
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(conf, []byte("nameserver "+host+"\noptions timeout:20 attempts:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hosts, []byte("192.0.2.80 host.internal # a comment\n127.0.0.1 rebound.example.org\nfe80::1%eth0 zoned.example.org\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := NewUpstream(conf, hosts)
	u.port = port
	return NewClient(u, siblings{}, NewNames(), rules{}, 0)
}

// query asks as a guest does.
func query(t *testing.T, c *Client, name, qtype string, change ...func(*dns.Msg)) (*dns.Msg, Outcome) {
	t.Helper()
	m := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.StringToType[qtype])
	for _, f := range change {
		f(m)
	}
	return exchange(t, c, m, false)
}

func exchange(t *testing.T, c *Client, m *dns.Msg, stream bool) (*dns.Msg, Outcome) {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	reply, o, err := c.Answer(t.Context(), b, stream)
	if err != nil {
		t.Fatal(err)
	}
	r := &dns.Msg{}
	if err := r.Unpack(reply); err != nil {
		t.Fatal(err)
	}
	if r.Id != m.Id || !r.Response {
		t.Errorf("the answer is to question %d, not %d", r.Id, m.Id)
	}
	return r, o
}

// texts returns the records of an answer without times to live.
func texts(r *dns.Msg) []string {
	var all []string
	for _, rr := range r.Answer {
		h := rr.Header()
		all = append(all, strings.TrimSpace(h.Name+" "+dns.TypeToString[h.Rrtype]+" "+strings.TrimPrefix(rr.String(), h.String())))
	}
	return all
}

func TestAnswers(t *testing.T) {
	s := newServer(t)
	c := newClient(t, s)
	const denied = -1 // the rules deny the name: it does not exist for the guest
	for _, q := range []struct {
		name, qtype string
		rcode       int
		want        []string
	}{
		{"A.Example.org", "A", 0, []string{"A.Example.org. A 192.0.2.1", "A.Example.org. A 192.0.2.2"}},
		{"a.example.org", "AAAA", 0, []string{"a.example.org. AAAA 2001:db8::1"}},
		{"alias.example.org", "A", 0, []string{"alias.example.org. CNAME deep.example.net.", "deep.example.net. CNAME target.example.net.", "target.example.net. A 192.0.2.3"}},
		{"loop.example.org", "A", 0, []string{"loop.example.org. CNAME loop.example.org."}},
		{"inside.example.org", "A", 0, []string{"inside.example.org. A 192.0.2.4"}},
		{"mapped.example.org", "AAAA", 0, nil},
		{"web.example.org", "HTTPS", 0, []string{`web.example.org. HTTPS 1 . alpn="h2"`}},
		{"text.example.org", "TXT", 0, []string{`text.example.org. TXT "words"`}},
		{"host.internal", "A", 0, []string{"host.internal. A 192.0.2.80"}},
		{"host.internal", "AAAA", 0, nil},
		{"rebound.example.org", "A", 0, nil},
		{"db.sandbox", "A", 0, []string{"db.sandbox. A 198.18.0.1"}},
		{"db.sandbox", "AAAA", 0, nil},
		{"none.sandbox", "A", dns.RcodeNameError, nil},
		{"none.example.org", "A", dns.RcodeNameError, nil},
		{"other.example.com", "A", denied, nil},
		{"other.example.com", "AAAA", denied, nil},
		{"deep.example.net", "A", denied, nil},
		{"text.example.org", "ANY", dns.RcodeRefused, nil},
		{"text.example.org", "AXFR", dns.RcodeRefused, nil},
		{"text.example.org", "NULL", dns.RcodeRefused, nil},
		{"a.open.example", "TXT", dns.RcodeRefused, nil},
		{"a.open.example", "A", dns.RcodeNameError, nil},
		{strings.Repeat("abcdefg.", 20) + "open.example", "A", denied, nil},
		{"1.2.0.192.in-addr.arpa", "PTR", 0, []string{"1.2.0.192.in-addr.arpa. PTR a.example.org."}},
		{"9.9.9.9.in-addr.arpa", "PTR", dns.RcodeNameError, nil},
		{`evil\.example.org`, "A", denied, nil},
		{"words.in-addr.arpa", "PTR", dns.RcodeNameError, nil},
	} {
		r, o := query(t, c, q.name, q.qtype)
		allowed := q.rcode != denied && q.rcode != dns.RcodeRefused
		if q.rcode == denied {
			q.rcode = dns.RcodeNameError
		}
		if r.Rcode != q.rcode || !slices.Equal(texts(r), q.want) {
			t.Errorf("%s %s: %s %q, want %s %q (%+v)", q.name, q.qtype, dns.RcodeToString[r.Rcode], texts(r), dns.RcodeToString[q.rcode], q.want, o)
		}
		leftOut := q.name == "mapped.example.org" || q.name == "rebound.example.org" // all addresses are
		if o.Allowed != (allowed && !leftOut) && q.name != "none.sandbox" {
			t.Errorf("%s %s: outcome %+v", q.name, q.qtype, o)
		}
		for _, rr := range r.Answer {
			if rr.Header().Ttl > maxTTL {
				t.Errorf("%s is kept for %d s", rr.Header().Name, rr.Header().Ttl)
			}
		}
	}
	for addr, want := range map[string][]string{
		"192.0.2.1": {"a.example.org"}, "192.0.2.3": {"alias.example.org"}, "192.0.2.4": {"inside.example.org"}, "198.18.0.1": {"db.sandbox"},
		"10.0.0.1": nil, "169.254.169.254": nil, "127.0.0.1": nil,
	} {
		if got := c.names.Of(netip.MustParseAddr(addr)); !slices.Equal(got, want) {
			t.Errorf("%s was given out for %q, want %q", addr, got, want)
		}
	}
}

// TestOnlyTheQuestionLeaves looks at what reaches the host's resolver of a message that has
// data in all places where there is room.
func TestOnlyTheQuestionLeaves(t *testing.T) {
	s := newServer(t)
	c := newClient(t, s)
	m := new(dns.Msg).SetQuestion("A.eXaMpLe.org.", dns.TypeA)
	m.Id = 4711
	m.Zero, m.AuthenticatedData, m.CheckingDisabled = true, true, true
	m.Extra = []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: "data.", Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{"data"}}}
	m.SetEdns0(4096, true)
	opt := m.IsEdns0()
	opt.Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: dns.EDNS0LOCALSTART, Data: []byte("data")}}
	exchange(t, c, m, false)
	seen := s.questions()
	if len(seen) != 1 {
		t.Fatalf("%d questions left", len(seen))
	}
	got := seen[0]
	if got.Id == m.Id || got.Question[0].Name != "a.example.org." || len(got.Extra) != 1 || got.Zero || got.CheckingDisabled || got.AuthenticatedData {
		t.Errorf("the server was sent %v", got)
	}
	if opt := got.IsEdns0(); opt == nil || len(opt.Option) != 0 || opt.Do() {
		t.Errorf("the server was sent the options %v", opt)
	}
	for _, name := range []string{"other.example.com", "db.sandbox", "host.internal", "1.2.0.192.in-addr.arpa"} {
		query(t, c, name, "A")
		query(t, c, name, "PTR")
	}
	if n := len(s.questions()); n != 1 {
		t.Errorf("%d questions left that no server should see", n-1)
	}
}

func TestSizes(t *testing.T) {
	c := newClient(t, newServer(t))
	m := new(dns.Msg).SetQuestion("long.example.org.", dns.TypeTXT)
	for _, q := range []struct {
		size   uint16
		stream bool
		fits   bool
	}{{0, false, false}, {1200, false, true}, {100, false, false}, {0, true, true}} {
		m := m.Copy()
		if q.size > 0 {
			m.SetEdns0(q.size, false)
		}
		r, _ := exchange(t, c, m, q.stream)
		if r.Truncated == q.fits || (len(r.Answer) == 1) != q.fits {
			t.Errorf("size %d, stream %v: truncated %v, %d records", q.size, q.stream, r.Truncated, len(r.Answer))
		}
	}
}

func TestMessagesThatAreNoQuestion(t *testing.T) {
	c := newClient(t, newServer(t))
	response, err := new(dns.Msg).SetReply(new(dns.Msg).SetQuestion("a.example.org.", dns.TypeA)).Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{nil, {1, 2, 3}, response} {
		if r, _, err := c.Answer(t.Context(), b, false); r != nil || !errors.Is(err, errNoQuestion) {
			t.Errorf("%x was answered: %x, %v", b, r, err)
		}
	}
	for rcode, change := range map[int]func(*dns.Msg){
		dns.RcodeNotImplemented: func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate },
		dns.RcodeFormatError:    func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		dns.RcodeRefused:        func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
	} {
		if r, _ := query(t, c, "a.example.org", "A", change); r.Rcode != rcode {
			t.Errorf("answered with %s, want %s", dns.RcodeToString[r.Rcode], dns.RcodeToString[rcode])
		}
	}
}

func TestServersThatAnswerAnotherQuestion(t *testing.T) {
	s := newServer(t)
	s.onAnswer(func(m *dns.Msg) { m.Question[0].Name = "b.example.org." })
	c := newClient(t, s)
	if r, o := query(t, c, "a.example.org", "A"); r.Rcode != dns.RcodeServerFailure || len(r.Answer) != 0 {
		t.Errorf("answered %v, %+v", r, o)
	}
}

// TestRecordsThatNobodyAskedFor has the server add addresses of other names.
func TestRecordsThatNobodyAskedFor(t *testing.T) {
	s := newServer(t)
	s.onAnswer(func(m *dns.Msg) {
		for _, text := range []string{"b.example.org. 30 IN A 192.0.2.66", "a.example.org. 30 CH A 192.0.2.67"} {
			rr, err := dns.NewRR(text)
			if err != nil {
				t.Error(err)
			}
			m.Answer = append(m.Answer, rr)
			m.Extra = append(m.Extra, rr)
			m.Ns = append(m.Ns, rr)
		}
	})
	c := newClient(t, s)
	r, _ := query(t, c, "a.example.org", "A")
	if want := []string{"a.example.org. A 192.0.2.1", "a.example.org. A 192.0.2.2"}; !slices.Equal(texts(r), want) || len(r.Ns) != 0 || len(r.Extra) != 0 {
		t.Errorf("answered %v", r)
	}
	if names := c.names.Of(netip.MustParseAddr("192.0.2.66")); names != nil {
		t.Errorf("an address is remembered for %q", names)
	}
}

func TestLimits(t *testing.T) {
	c := newClient(t, newServer(t))
	c.SetPolicy(rules{}, 5)
	refused := 0
	began := time.Now()
	for range 30 {
		if r, _ := query(t, c, "a.example.org", "A"); r.Rcode == dns.RcodeRefused {
			refused++
		}
	}
	// Ten pass at once, and five more each second.
	if least := 19 - int(5*time.Since(began).Seconds()); refused < least {
		t.Errorf("%d of 30 questions were refused, and not %d", refused, least)
	}
	c.SetPolicy(rules{}, 0)
	block := make(chan struct{})
	s := newServer(t)
	arrived := make(chan bool, maxPending)
	s.onAnswer(func(*dns.Msg) { arrived <- true; <-block })
	c = newClient(t, s)
	var wg sync.WaitGroup
	for range maxPending {
		wg.Go(func() { query(t, c, "a.example.org", "A") })
	}
	for range maxPending {
		<-arrived
	}
	if r, _ := query(t, c, "a.example.org", "A"); r.Rcode != dns.RcodeRefused {
		t.Errorf("one more than %d questions: %s", maxPending, dns.RcodeToString[r.Rcode])
	}
	close(block)
	wg.Wait()
	if n := c.pending.Load(); n != 0 {
		t.Errorf("%d questions are still counted", n)
	}
}

func TestFilesAreReadAgain(t *testing.T) {
	s := newServer(t)
	c := newClient(t, s)
	query(t, c, "a.example.org", "A")
	u := c.upstream
	if err := os.WriteFile(u.hosts, []byte("192.0.2.90 new.example.org\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(u.resolvConf); err != nil {
		t.Fatal(err)
	}
	u.mu.Lock()
	u.read = time.Time{} // as if a second had passed
	u.changed[1] = time.Time{}
	u.mu.Unlock()
	if r, _ := query(t, c, "new.example.org", "A"); !slices.Equal(texts(r), []string{"new.example.org. A 192.0.2.90"}) {
		t.Errorf("the new hosts file: %q", texts(r))
	}
	if r, o := query(t, c, "a.example.org", "A"); r.Rcode != dns.RcodeServerFailure || !strings.Contains(o.Reason, errNoServer.Error()) {
		t.Errorf("without a server: %s, %+v", dns.RcodeToString[r.Rcode], o)
	}
}

func TestNamesAreForgotten(t *testing.T) {
	now := time.Now()
	n := NewNames()
	n.now = func() time.Time { return now }
	a := netip.MustParseAddr("192.0.2.1")
	n.Add("short", a, 0)
	n.Add("long", a, 365*24*time.Hour)
	n.Add("long", a, time.Second) // which ends no earlier
	for _, step := range []struct {
		after time.Duration
		want  []string
	}{{0, []string{"long", "short"}}, {minKept, []string{"long"}}, {maxKept - minKept, nil}} {
		now = now.Add(step.after)
		if got := n.Of(a); !slices.Equal(got, step.want) {
			t.Errorf("names after %v: %q", step.after, got)
		}
	}
	for i := range 10 * maxPairs {
		n.Add(fmt.Sprint("name", i%7), netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), time.Duration(i)*time.Second)
		pairs := 0
		if i%1000 == 0 {
			for _, names := range n.known {
				pairs += len(names)
			}
			if pairs != n.pairs || pairs > maxPairs {
				t.Fatalf("%d pairs, counted as %d", pairs, n.pairs)
			}
		}
	}
}

func TestStreams(t *testing.T) {
	c := newClient(t, newServer(t))
	guest, ours := connected(t)
	var told []Outcome
	done := make(chan error, 1)
	go func() { done <- c.Serve(t.Context(), ours, func(o Outcome) { told = append(told, o) }) }()
	for _, name := range []string{"a.example.org.", "other.example.com."} {
		b, err := new(dns.Msg).SetQuestion(name, dns.TypeA).Pack()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := guest.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
			t.Fatal(err)
		}
		var size [2]byte
		if _, err := io.ReadFull(guest, size[:]); err != nil {
			t.Fatal(err)
		}
		b = make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(guest, b); err != nil {
			t.Fatal(err)
		}
		if err := new(dns.Msg).Unpack(b); err != nil {
			t.Error(err)
		}
	}
	guest.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(told) != 2 || !told[0].Allowed || told[1].Allowed {
		t.Errorf("told %+v", told)
	}
	// A guest that is cut off.
	guest, ours = connected(t)
	defer guest.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() { done <- c.Serve(ctx, ours, func(Outcome) {}) }()
	cancel()
	if err := <-done; err == nil {
		t.Error("a stream that was cut off ended well")
	}
}

// connected returns both ends of a stream.
func connected(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestReversedNames(t *testing.T) {
	for _, text := range []string{"192.0.2.1", "2001:db8::1", "::"} {
		name, err := dns.ReverseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		if got, is := reversed(canonical(name)); !is || got != netip.MustParseAddr(text) {
			t.Errorf("%s is %v", name, got)
		}
	}
}
