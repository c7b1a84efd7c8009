package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// nameServer is the server that the resolver of the host asks. It answers for an attacker: each name
// has its own answers, of which each question takes the next, and the last one stays.
type nameServer struct {
	mu      sync.Mutex
	answers map[string][]string // name → addresses
	asked   []string            // questions, as "TypeA NAME"
}

// serveNames runs a server of names, and returns it with a resolv.conf that names it.
func serveNames(t *testing.T) (*nameServer, string) {
	t.Helper()
	s := &nameServer{answers: map[string][]string{}}
	c, err := net.ListenPacket("udp", "198.51.100.53:53")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			k, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if reply := s.answer(b[:k]); reply != nil {
				_, _ = c.WriteTo(reply, from) // the gateway asks again
			}
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	conf := filepath.Join(harness.NewDir(t), "resolv.conf")
	if err := os.WriteFile(conf, []byte("nameserver 198.51.100.53\noptions timeout:10 attempts:1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return s, conf
}

// answer returns the answer to a message.
func (s *nameServer) answer(message []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(message) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.TrimSuffix(q.Name.String(), ".")
	m.Response, m.Additionals = true, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, q.Type.String()+" "+name)
	list := s.answers[name]
	h := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 1}
	if len(list) > 0 {
		ip := netip.MustParseAddr(list[0])
		switch {
		case q.Type == dnsmessage.TypeA && ip.Is4():
			m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AResource{A: ip.As4()}}}
		case q.Type == dnsmessage.TypeAAAA && ip.Is6():
			m.Answers = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.AAAAResource{AAAA: ip.As16()}}}
		}
		if len(m.Answers) > 0 && len(list) > 1 {
			s.answers[name] = list[1:]
		}
	}
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// say sets the answers for a name.
func (s *nameServer) say(name string, addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[name] = addresses
}

// count returns how many questions have a text.
func (s *nameServer) count(text string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.asked {
		if strings.Contains(q, text) {
			n++
		}
	}
	return n
}

// logOf returns the log of a sandbox.
func logOf(n *harness.Node, ref string) (lines []api.NetworkLogEntry) {
	n.T.Helper()
	if err := n.Machine.NetworkLog(harness.AsOwner, ref, false, func() {}, func(e api.NetworkLogEntry) error { lines = append(lines, e); return nil }); err != nil {
		n.T.Fatal(err)
	}
	return lines
}

// mustBeDenied checks that the log of a sandbox has a denial with a protocol, and a text in its name,
// address or rule.
func mustBeDenied(n *harness.Node, ref, protocol, text string) {
	n.T.Helper()
	harness.Eventually(n.T, fmt.Sprintf("denial of %s %q in the log of %s", protocol, text, ref), func() error {
		lines := logOf(n, ref)
		for _, e := range lines {
			if e.Verdict == api.NetworkDenied && e.Protocol == protocol && e.Rule != "" && strings.Contains(fmt.Sprint(e.Name, " ", net.JoinHostPort(e.Address, fmt.Sprint(e.Port)), " ", e.Rule), text) {
				return nil
			}
		}
		return fmt.Errorf("there is none among %d lines: %+v", len(lines), lines[max(0, len(lines)-12):])
	})
}

// inner are addresses of which no rule of the tests allows one, though they are reached from here.
var inner = []string{"10.77.0.1", "169.254.169.254", "127.0.0.1", "192.0.2.254"}

// TestNamesOfAnAttacker has a name that is allowed lead to what only the host reaches: at once, and
// after it led elsewhere.
func TestNamesOfAnAttacker(t *testing.T) {
	harness.OnlyOnce(t, "the gateway judges as the same user or as another one")
	world, conf := serveNames(t)
	n := newNode(t)
	n.Close()
	n.ResolvConf = conf
	n.Open()
	serve(t, "198.51.100.1:443", echoes)
	var closed []*server
	for _, a := range inner {
		closed = append(closed, serve(t, a+":443", echoes))
	}
	create(n, "named", allow(t, "*.attacker.example.org"))
	create(n, "open", &api.NetworkRequest{Profile: "open"})
	for _, ref := range []string{"named", "open"} {
		want := map[string]string{}
		for i, a := range append([]string{"::ffff:10.77.0.1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fe80::1"}, inner...) {
			name := fmt.Sprintf("n%d.%s.attacker.example.org", i, ref)
			world.say(name, a)
			want[name+":443"] = noName
		}
		mustReach(n, ref, want)
		mustBeDenied(n, ref, "dns", "n1."+ref+".attacker.example.org")
		mustBeDenied(n, ref, "dns", "which the name may not have")
		for i, a := range inner {
			// The name leads outside when it is looked up first, and inside a moment later.
			name := fmt.Sprintf("rebind%d.%s.attacker.example.org", i, ref)
			world.say(name, "198.51.100.1", a)
			mustReach(n, ref, map[string]string{name + ":443": connected})
			mustReach(n, ref, map[string]string{name + ":443": noName, a + ":443": refused})
			mustBeDenied(n, ref, "dns", name)
			if a != "127.0.0.1" { // the sandbox itself
				mustBeDenied(n, ref, "tcp", a+":443")
			}
		}
	}
	for i, s := range closed {
		if got := s.count(); got != 0 {
			t.Errorf("%d connections to %s", got, inner[i])
		}
	}

	// Names that carry data, records that have room for it, and many questions.
	long := strings.Repeat(strings.Repeat("x", 60)+".", 3) + "attacker.example.org"
	for _, c := range []struct{ kind, name, why string }{{"TXT", "txt.attacker.example.org", "its type is not answered"}, {"A", long, "its name is too long"}} {
		if got := n.Guest("open", "outside", "look", c.kind, c.name, "1"); got != "answered 0 failed 1\n" {
			t.Errorf("%s of %s: %q", c.kind, c.name, got)
		}
		mustBeDenied(n, "open", "dns", c.why)
		if got := world.count(c.name); got != 0 {
			t.Errorf("%s of %s is asked %d times", c.kind, c.name, got)
		}
	}
	slow := allow(t, "*.attacker.example.org")
	slow.Limits.DNSPerS = 5
	create(n, "slow", slow)
	began := time.Now()
	n.Guest("slow", "outside", "look", "A", "t%d.tunnel.attacker.example.org", "100")
	most := 11 + int(5*time.Since(began).Seconds()) // ten at once, and five more each second
	mustBeDenied(n, "slow", "dns", "too many questions")
	if got := world.count("tunnel.attacker.example.org"); got == 0 || got > most {
		t.Errorf("%d of 200 questions have left, and not %d at most", got, most)
	}
}

// TestFirstBytesOfAnother shows the names of other servers to one that is allowed, or none.
func TestFirstBytesOfAnother(t *testing.T) {
	harness.OnlyOnce(t, "the gateway judges as the same user or as another one")
	n := newNode(t)
	var mu sync.Mutex
	var got []byte
	serve(t, "198.51.100.1:443", func(c net.Conn) {
		b := make([]byte, 4096)
		for k, err := c.Read(b); err == nil; k, err = c.Read(b) {
			mu.Lock()
			got = append(got, b[:k]...)
			mu.Unlock()
		}
	})
	create(n, "named", allow(t, "files.example.org"))
	for name, why := range map[string]string{"other.example.org": "other.example.org", "198.51.100.1": "no server name is shown"} {
		mustReach(n, "named", map[string]string{"files.example.org:443": connected})
		if out := n.Guest("named", "outside", "verify", "198.51.100.1:443", name); !strings.Contains(out, "connection reset") {
			t.Errorf("a handshake for %s: %q", name, out)
		}
		mustBeDenied(n, "named", "tcp", why)
	}
	if len(got) > 0 {
		t.Errorf("the server has seen %q", got)
	}
}

// TestAddressesInDisguise dials metadata addresses, and private ones, as all that they can be written as.
func TestAddressesInDisguise(t *testing.T) {
	harness.OnlyOnce(t, "the gateway judges as the same user or as another one")
	n := newNode(t)
	closed := []*server{serve(t, "169.254.169.254:80", echoes), serve(t, "10.77.0.1:80", echoes), serve(t, "192.0.2.254:80", echoes), serve(t, "127.0.0.1:80", echoes)}
	create(n, "open", &api.NetworkRequest{Profile: "open"})
	want := map[string]string{}
	for _, a := range []string{
		"169.254.169.254", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "::ffff:0:a9fe:a9fe", "::a9fe:a9fe", "2002:a9fe:a9fe::1", "2001:0:1:2:3:4:5601:5601", "10.77.0.1", "64:ff9b::a4d:1",
		"192.0.2.254", "10.0.2.2", "198.18.0.1", "198.19.0.1", "0.0.0.1", "240.0.0.1", "fd00:ec2::254",
	} {
		want[net.JoinHostPort(a, "80")] = refused
	}
	mustReach(n, "open", want)
	for _, a := range []string{"::ffff:169.254.169.254", "::ffff:10.77.0.1", "::ffff:192.0.2.254"} {
		if out := n.Guest("open", "outside", "mapped", net.JoinHostPort(a, "80")); out != "refused\n" {
			t.Errorf("%s in a socket of IPv6: %q", a, out)
		}
		want[net.JoinHostPort(strings.TrimPrefix(a, "::ffff:"), "80")] = refused
	}
	for a := range want {
		a = strings.Replace(a, "10.0.2.2", "127.0.0.1", 1)
		mustBeDenied(n, "open", "tcp", a)
	}
	// A server that is allowed sends its guests there.
	world := newWorld(t)
	world.redirect("http://169.254.169.254/latest/meta-data/")
	out, err := n.Exec("open", "outside", "request", "GET", site+"/", "")
	if err != nil || out.ExitCode == 0 || !strings.Contains(out.Stderr.String(), "169.254.169.254:80: connect: connection refused") {
		t.Errorf("a redirection: %+v, %v: %s%s", out, err, out.Stdout.String(), out.Stderr.String())
	}
	for i, s := range closed {
		if got := s.count(); got != 0 {
			t.Errorf("server %d has %d connections", i, got)
		}
	}
}

// serveSilence listens at an address where the host answers no more segments.
func serveSilence(t *testing.T, address string, port int) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	err = unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte(net.ParseIP(address).To4())})
	if err == nil {
		err = unix.Listen(fd, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	// The queue of connections that nobody accepts has room for one.
	c, err := net.Dial("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
}

// besieger is a program of a guest that has connections open and says nothing.
type besieger struct {
	*harness.Follower
	n    *harness.Node
	ref  string
	pid  int
	said string
}

func besiege(n *harness.Node, ref, address string, count int, first string) *besieger {
	n.T.Helper()
	pid := n.Start(ref, api.StartRequest{Stdin: true}, "outside", "besiege", address, fmt.Sprint(count), first)
	return &besieger{n.Follow(ref, pid, 0), n, ref, pid, ""}
}

// counts waits for what the program says of its connections.
func (b *besieger) counts() (connected, refused, other int) {
	b.T.Helper()
	harness.Eventually(b.T, "connections", func() error {
		out, _ := b.Text()
		_, err := fmt.Sscanf(out, "connected %d refused %d other %d\n", &connected, &refused, &other)
		b.said = out
		return err
	})
	return connected, refused, other
}

// ended waits until that many of the connections have ended.
func (b *besieger) ended(want int) {
	b.T.Helper()
	harness.Eventually(b.T, "ended connections", func() error {
		before, _ := b.Text()
		b.Say("\n")
		harness.Eventually(b.T, "answer", func() error {
			if now, _ := b.Text(); now == before {
				return errors.New("there is none")
			}
			return nil
		})
		now, _ := b.Text()
		if last := now[len(before):]; last != fmt.Sprintf("ended %d\n", want) {
			return fmt.Errorf("it says %q, not %d", last, want)
		}
		return nil
	})
}

// TestGuestsThatSayNothing keep connections busy: to a server that does not answer, to the proxy
// with handshakes that do not go on, to a server whose bytes nobody reads, and more of them than
// they may. Another sandbox is served meanwhile, and what they cost ends with them.
func TestGuestsThatSayNothing(t *testing.T) {
	harness.OnlyOnce(t, "the gateway judges as the same user or as another one")
	n := newNode(t)
	const most = 40
	limited := func(req *api.NetworkRequest) *api.NetworkRequest {
		req.Limits.Connections = most
		return req
	}
	serveSilence(t, "198.51.100.9", 1)
	serve(t, "198.51.100.1:443", echoes)
	serve(t, "198.51.100.1:1", echoes)
	serve(t, "198.51.100.1:2", func(c net.Conn) {
		for _, err := c.Write(data); err == nil; _, err = c.Write(data) {
		}
	})
	create(n, "good", allow(t, "198.51.100.1:1"))
	mustReach(n, "good", map[string]string{"198.51.100.1:1": connected})
	before := rss(t, n.Gateway())

	create(n, "slow", limited(rules(t, api.NetworkTreatment{Methods: []string{"GET"}})))
	// A byte of a handshake, and a whole hello of one, for the name that is treated.
	byteOnly := besiege(n, "slow", "files.example.org:443", most/2, "\x16")
	hello := besiege(n, "slow", "files.example.org:443", most/2, "hello:files.example.org")
	for _, b := range []*besieger{byteOnly, hello} {
		if c, r, o := b.counts(); c != most/2 || r != 0 || o != 0 {
			t.Fatalf("handshakes: connected %d refused %d other %d", c, r, o)
		}
	}
	mustReach(n, "slow", map[string]string{"files.example.org:443": refused})
	mustBeDenied(n, "slow", "tcp", "limits.connections: 40")

	create(n, "silent", limited(allow(t, "198.51.100.9:1")))
	silent := besiege(n, "silent", "198.51.100.9:1", 3*most, "-")
	mustBeDenied(n, "silent", "tcp", "limits.connections: 40")

	create(n, "deaf", limited(allow(t, "198.51.100.1:2")))
	pid, _ := n.ProcessOf("deaf")
	sentry := rss(t, pid)
	deaf := besiege(n, "deaf", "198.51.100.1:2", 2*most, "-")
	if c, r, o := deaf.counts(); c != most || r != most || o != 0 {
		t.Errorf("downloads: connected %d refused %d other %d", c, r, o)
	}
	mustBeDenied(n, "deaf", "tcp", "limits.connections: 40")

	mustReach(n, "good", map[string]string{"198.51.100.1:1": connected})
	t.Logf("the gateway has %d MiB, had %d; the sentry %d MiB, had %d", rss(t, n.Gateway())>>20, before>>20, rss(t, pid)>>20, sentry>>20)
	if after := rss(t, n.Gateway()); after > before+64<<20 {
		t.Errorf("the gateway has %d MiB, had %d", after>>20, before>>20)
	}
	if after := rss(t, pid); after > sentry+most*8<<20 {
		t.Errorf("the sentry has %d MiB, had %d", after>>20, sentry>>20)
	}
	// Handshakes are given up: what shows no name after ten seconds, and the others some seconds later.
	byteOnly.ended(most / 2)
	mustBeDenied(n, "slow", "tcp", "without a name that all servers read alike")
	if harness.Count(0, 0, 1) > 0 {
		hello.ended(most / 2)
		mustBeDenied(n, "slow", "http", "handshake")
	}
	// What was not answered ends with the sandbox, and the rest with the programs.
	silent.Detach()
	n.Destroy("silent")
	for _, b := range []*besieger{byteOnly, hello, deaf} {
		b.Detach()
		if err := n.Machine.SignalProcess(harness.AsOwner, b.ref, b.pid, api.SignalRequest{Signal: "KILL"}); err != nil {
			t.Error(err)
		}
	}
	harness.Eventually(t, "flows", func() error {
		if u := n.Machine.Usage().Gateway; u == nil || u.Flows != 0 {
			return fmt.Errorf("%+v", u)
		}
		return nil
	})
	mustReach(n, "deaf", map[string]string{"198.51.100.1:2": connected})
}

// TestManyTreatedChildren has the children of one fork ask at once, each with a secret: the gateway has
// a proxy for each of them.
func TestManyTreatedChildren(t *testing.T) {
	harness.OnlyOnce(t, "the gateway serves as the same user or as another one")
	n := newNode(t)
	w := newWorld(t)
	_, err := n.Machine.SetSecret(harness.AsOwner, "KEY", api.SecretRequest{Value: "value-of-all", SecretBinding: api.SecretBinding{Names: []string{"files.example.org"}, Header: "X-Key", Plain: true}})
	if err != nil {
		t.Fatal(err)
	}
	create(n, "base", rules(t, api.NetworkTreatment{Secret: &api.NetworkSecret{Header: "X-Key", Value: "${KEY}", Plain: true}, Methods: []string{"GET"}}))
	if got := request(n, "base", "GET", "/", ""); !strings.HasPrefix(got, "200 ") {
		t.Fatalf("the base is answered %q", got)
	}
	before := rss(t, n.Gateway())
	const count = 100
	children := n.Fork("base", count)
	asked, atOnce := make(chan string), 8
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for id := range asked {
				out, err := n.Exec(id, "outside", "request", "GET", site+"/of/"+id, "")
				if err != nil || !strings.HasPrefix(out.Stdout.String(), "200 ") || strings.Contains(out.Stdout.String(), "value-of-all") {
					t.Errorf("%s is answered %v, %v", id, out, err)
				}
			}
		})
	}
	for _, c := range children {
		asked <- c.ID
	}
	close(asked)
	wg.Wait()
	for _, c := range children {
		if w.times("/of/"+c.ID) != 1 {
			t.Errorf("the server was asked %d times by %s", w.times("/of/"+c.ID), c.ID)
		}
	}
	if got := strings.Count(strings.Join(w.keys, " "), "value-of-all"); got != count+1 {
		t.Errorf("%d requests have the secret", got)
	}
	if u := gatewayUsage(n); u.Sandboxes != count+1 {
		t.Errorf("the gateway has %+v", u)
	}
	after := rss(t, n.Gateway())
	t.Logf("the gateway has %d MiB with %d children, had %d", after>>20, count, before>>20)
	if after > before+64<<20 {
		t.Errorf("the gateway has %d MiB, had %d", after>>20, before>>20)
	}
}

// TestBombOfConnections has many processes of a guest connect at once, to what is allowed and what is
// not, while the sandbox is forked. Nothing of it ends a sentry.
func TestBombOfConnections(t *testing.T) {
	harness.OnlyOnce(t, "the guest and its sentry do the same")
	n := newNode(t)
	serve(t, "198.51.100.1:1", echoes)
	create(n, "base", allow(t, "198.51.100.1:1"))
	processes, each := harness.Count(60, 60, 200), harness.Count(10, 10, 100)
	done := harness.InBackground(func() error {
		for _, address := range []string{"198.51.100.1:1", "198.51.100.1:2"} {
			ctx, cancel := context.WithTimeout(harness.AsOwner, harness.LongTimeout)
			var out bytes.Buffer
			r, err := n.Machine.Exec(ctx, "base", api.ExecRequest{Argv: []string{"guest", "outside", "bomb", address, fmt.Sprint(processes), fmt.Sprint(each)}}, api.ExecIO{Stdout: &out, Stderr: &out})
			cancel()
			var connected, refused int // some are beyond the limit of connections
			if err == nil {
				_, err = fmt.Sscanf(out.String(), "connected %d refused %d other 0 broken 0\n", &connected, &refused)
			}
			if err != nil || r.ExitCode != 0 || connected+refused != processes*each || (connected > 0) != (address == "198.51.100.1:1") {
				return fmt.Errorf("the bomb on %s says %q, %w", address, out.String(), err)
			}
		}
		return nil
	})
	for forks := 0; ; forks++ {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			if forks == 0 {
				t.Error("the sandbox was not forked meanwhile: the test proves nothing")
			}
			t.Logf("forked %d times", forks)
			mustReach(n, "base", map[string]string{"198.51.100.1:1": connected})
			return
		default:
		}
		child := n.Fork("base", 1)[0].ID
		if s := n.Get(child); s.State != api.StateRunning {
			t.Errorf("a child is %s: %s", s.State, s.Reason)
		}
		n.Destroy(child)
	}
}
