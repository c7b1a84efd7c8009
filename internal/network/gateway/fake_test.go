package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/dns"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/polltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hosts are the names that the host's resolver knows. There is no server: nothing leaves.
const hosts = "192.0.2.1 a.example.org\n192.0.2.1 b.example.org\n192.0.2.2 other.example.com\n192.0.2.3 db.example.org\n"

// world is a gateway whose servers are on the loopback interface.
type world struct {
	t *testing.T
	*Gateway
	mu      sync.Mutex
	servers map[string]string // address and port → where it is; guarded by mu
	silent  func(context.Context)
	log     []api.NetworkLogEntry
}

func newWorld(t *testing.T, proxy Proxy) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(path, []byte(hosts), 0o600); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, servers: map[string]string{}}
	w.Gateway = New(Config{
		Upstream: dns.NewUpstream("/nonexistent", path), Log: decisions{w}, Proxy: proxy, Dial: w.dial, Own: func(netip.Addr) bool { return false },
	})
	t.Cleanup(w.Close)
	return w
}

// decisions is the log of a world.
type decisions struct{ w *world }

// Add implements Log.
func (d decisions) Add(e api.NetworkLogEntry) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.log = append(d.w.log, e)
}

// Began implements Log.
func (decisions) Began(string) {}

// Ended implements Log.
func (decisions) Ended(string) {}

// lines returns the log so far.
func (w *world) lines() []api.NetworkLogEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]api.NetworkLogEntry(nil), w.log...)
}

// logged waits for so many lines with the verdict and the rule: lines come when they come.
func (w *world) logged(want int, verdict api.NetworkVerdict, rule string) {
	w.t.Helper()
	polltest.Eventually(w.t, 10*time.Second, fmt.Sprintf("%d flows are %s by %q", want, verdict, rule), func() bool {
		got := 0
		for _, e := range w.lines() {
			if e.Verdict == verdict && e.Rule == rule {
				got++
			}
		}
		return got == want
	})
}

// silentServer answers no SYN: silent is called meanwhile.
const silentServer = "192.0.2.9:99"

// dial connects to the server that a test has put at the address.
func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	at, known := w.servers[address]
	w.mu.Unlock()
	if address == silentServer {
		w.silent(ctx)
		return nil, ctx.Err()
	}
	if !known {
		return nil, &net.OpError{Op: "dial", Err: unix.EHOSTUNREACH}
	}
	return new(net.Dialer).DialContext(ctx, network, at)
}

// serve puts a server of TCP at an address.
func (w *world) serve(address string, handle func(c *net.TCPConn)) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				handle(c.(*net.TCPConn))
			})
		}
	})
	w.t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[address] = l.Addr().String()
}

// echoes sends back what it is sent.
func echoes(c *net.TCPConn) { _, _ = io.Copy(c, c); _ = c.CloseWrite() }

// rules returns a policy that allows what is listed.
func rules(t *testing.T, allow ...string) api.NetworkPolicy {
	t.Helper()
	var p api.NetworkPolicy
	for _, text := range allow {
		r, err := api.ParseNetworkRule("allow", text)
		if err != nil {
			t.Fatal(err)
		}
		p.Allow = append(p.Allow, r)
	}
	return p
}

func document(t *testing.T, text string) (p api.NetworkPolicy) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// sentry is the other end of a sandbox's channel.
type sentry struct {
	t       *testing.T
	id      string
	channel *wire.Channel
	done    chan struct{} // closed when the channel has ended

	mu      sync.Mutex
	next    uint32
	waiting map[uint32]chan message // guarded by mu
	inbound chan message
}

// message is one that came, with its descriptor.
type message struct {
	wire.Message
	file *os.File
}

// newSentry registers a sandbox and returns its sentry.
func (w *world) newSentry(id string, doc api.NetworkPolicy) *sentry {
	w.t.Helper()
	return w.register(Registration{ID: id, Name: id, Policy: policy.Spec{Document: doc}})
}

func (w *world) register(r Registration) *sentry {
	w.t.Helper()
	ours, theirs, err := wire.Pair()
	if err != nil {
		w.t.Fatal(err)
	}
	s := &sentry{t: w.t, id: r.ID, done: make(chan struct{}), waiting: map[uint32]chan message{}, inbound: make(chan message, 100)}
	if s.channel, err = wire.SentryChannel(ours); err != nil {
		w.t.Fatal(err)
	}
	if err := w.Add(r, theirs); err != nil {
		s.channel.Close()
		w.t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		for {
			err := s.channel.Receive(func(m wire.Message, f *os.File) error {
				m.Payload = bytes.Clone(m.Payload)
				s.pass(message{m, f})
				return nil
			})
			if err != nil {
				return
			}
		}
	}()
	w.t.Cleanup(func() {
		s.channel.Close()
		<-s.done
	})
	return s
}

func (s *sentry) pass(m message) {
	if m.Kind == wire.Deliver {
		s.of(m.Flow) // before anybody asks for it
		s.inbound <- m
		return
	}
	s.of(m.Flow) <- m
}

// of returns where messages about a flow arrive.
func (s *sentry) of(flow uint32) chan message {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[flow] == nil {
		s.waiting[flow] = make(chan message, 10)
	}
	return s.waiting[flow]
}

func (s *sentry) send(m wire.Message) {
	s.t.Helper()
	if err := s.channel.Send(&m, -1); err != nil {
		s.t.Errorf("send %v: %v", m.Kind, err)
	}
}

// ask sends a message with a new number.
func (s *sentry) ask(m wire.Message) uint32 {
	s.t.Helper()
	s.mu.Lock()
	s.next++
	m.Flow = s.next
	s.mu.Unlock()
	s.send(m)
	return m.Flow
}

// get returns the next message about a flow.
func (s *sentry) get(flow uint32) message {
	s.t.Helper()
	select {
	case m := <-s.of(flow):
		return m
	case <-s.done:
		s.t.Fatal("the gateway has closed the channel")
	case <-time.After(10 * time.Second):
		s.t.Fatalf("nothing comes about flow %d", flow)
	}
	return message{}
}

// guest is a flow as the sentry has it.
type guest struct {
	*os.File
	s    *sentry
	flow uint32
}

// dial asks for a connection.
func (s *sentry) dial(p wire.Protocol, address string) (*guest, wire.Code) {
	s.t.Helper()
	at := netip.MustParseAddrPort(address)
	flow := s.ask(wire.Message{Kind: wire.Dial, Protocol: p, Address: at.Addr(), Port: at.Port()})
	m := s.get(flow)
	if m.Kind != wire.Verdict {
		s.t.Fatalf("%v came for a verdict", m.Kind)
	}
	if m.Code != wire.CodeOK {
		return nil, m.Code
	}
	s.t.Cleanup(func() { m.file.Close() })
	return &guest{m.file, s, flow}, wire.CodeOK
}

// open is dial for what must be allowed.
func (s *sentry) open(address string) *guest {
	s.t.Helper()
	g, code := s.dial(wire.TCP, address)
	if g == nil {
		s.t.Fatalf("dial %s: %v", address, code)
	}
	return g
}

// last returns the last word about the flow.
func (g *guest) last() wire.Kind { g.s.t.Helper(); return g.s.get(g.flow).Kind }

// shut ends what the guest sends.
func (g *guest) shut() {
	if err := control(g.File, func(fd int) error { return unix.Shutdown(fd, unix.SHUT_WR) }); err != nil {
		g.s.t.Error(err)
	}
}

// trip sends words and waits until they come back.
func (g *guest) trip(words string) error {
	if _, err := io.WriteString(g, words); err != nil {
		return err
	}
	b := make([]byte, len(words))
	if err := g.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.ReadFull(g, b); err != nil {
		return err
	}
	if string(b) != words {
		return errors.New("other bytes came back")
	}
	return nil
}
