package treatment

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/ca"
	resolver "ramet.dev/ramet/internal/network/dns"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/held"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/replay"
	"ramet.dev/ramet/internal/network/secrets"
	"ramet.dev/ramet/internal/network/wire"
	"ramet.dev/ramet/internal/polltest"
	"ramet.dev/ramet/internal/storage/hostfs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The names of tests, at one address. The certificate of httptest is for those of example.com.
const (
	name   = "api.example.com"
	sister = "www.example.com"
	addr   = "192.0.2.1"
	value  = "sk-very-secret-0123456789"
)

// world is a gateway with treatments, whose servers are on the loopback interface.
type world struct {
	t         *testing.T
	g         *gateway.Gateway
	p         *Proxy
	authority *ca.Authority
	roots     *x509.CertPool
	dir       string
	edit      func(*held.Limits)
	via       func(name string, port uint16) func(ctx context.Context) (net.Conn, error)

	mu      sync.Mutex
	servers map[string]string     // address and port → where it is; guarded by mu
	log     []api.NetworkLogEntry // guarded by mu
}

func newWorld(t *testing.T, edit func(*world)) *world {
	t.Helper()
	w := &world{t: t, servers: map[string]string{}, roots: x509.NewCertPool(), dir: filepath.Join(t.TempDir(), "held")}
	var err error
	if w.authority, err = ca.New(ca.Options{Tree: "sbx_tree"}); err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(w)
	}
	w.start()
	t.Cleanup(w.end)
	return w
}

// start begins a gateway, and end ends it: the requests that it holds stay.
func (w *world) start() {
	w.t.Helper()
	hosts := filepath.Join(w.t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte(addr+" "+name+" "+sister+"\n192.0.2.2 other.example.com\n"), 0o600); err != nil {
		w.t.Fatal(err)
	}
	own := func(netip.Addr) bool { return false }
	limits := held.DefaultLimits
	if w.edit != nil {
		w.edit(&limits)
	}
	cfg := Config{
		FS: hostfs.OS, HeldDir: w.dir, NoHold: "the test has no directory", Held: limits, Recorded: replay.DefaultLimits, Roots: w.roots, Own: own,
		Reach: func(ctx context.Context, tenant string, p *policy.Policy, name string, port uint16) (net.Conn, error) {
			return w.g.Reach(ctx, tenant, p, name, port)
		},
	}
	w.p = New(cfg)
	w.g = gateway.New(gateway.Config{
		Upstream: resolver.NewUpstream("/nonexistent", hosts), Log: decisions{w}, Proxy: w.p, Dial: w.dial, Own: own, Via: w.via,
	})
}

func (w *world) end() {
	w.g.Close()
	if err := w.p.Close(); err != nil {
		w.t.Error(err)
	}
	if len(w.p.sandboxes)+len(w.p.authorities)+len(w.p.groups)+len(w.p.lent) > 0 {
		w.t.Errorf("left: %d sandboxes, %d authorities, %d groups, %d registrations", len(w.p.sandboxes), len(w.p.authorities), len(w.p.groups), len(w.p.lent))
	}
}

// decisions is the log of a world.
type decisions struct{ w *world }

// Add implements gateway.Log.
func (d decisions) Add(e api.NetworkLogEntry) {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	d.w.log = append(d.w.log, e)
}

// Began implements gateway.Log.
func (decisions) Began(string) {}

// Ended implements gateway.Log.
func (decisions) Ended(string) {}

// requests returns the lines about requests so far.
func (w *world) requests() []api.NetworkLogEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.log), func(e api.NetworkLogEntry) bool { return e.Protocol != "http" })
}

// logged waits for a line about a request.
func (w *world) logged(what string, is func(api.NetworkLogEntry) bool) {
	w.t.Helper()
	polltest.Eventually(w.t, 10*time.Second, what+" is logged", func() bool { return slices.ContainsFunc(w.requests(), is) })
}

func (w *world) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	at, known := w.servers[address]
	w.mu.Unlock()
	if !known {
		return nil, &net.OpError{Op: "dial", Err: errors.New("nobody is there")}
	}
	return new(net.Dialer).DialContext(ctx, network, at)
}

// serve puts a server of HTTP at a port of the address of the names.
func (w *world) serve(port string, handler http.HandlerFunc) *httptest.Server {
	w.t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	if port == "80" {
		s.Start()
	} else {
		s.StartTLS()
		w.roots.AddCert(s.Certificate())
	}
	w.t.Cleanup(s.Close)
	w.put(addr+":"+port, s.Listener.Addr().String())
	return s
}

func (w *world) put(address, at string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.servers[address] = at
}

// registration is that of a sandbox with a document, the authority and one secret.
func (w *world) registration(id, document string) gateway.Registration {
	w.t.Helper()
	text, err := w.authority.Marshal()
	if err != nil {
		w.t.Fatal(err)
	}
	r := gateway.Registration{ID: "sentry_" + id, Sandbox: id, Authority: secrets.NewValue(string(text)), RecordGroup: "fork", Secrets: []gateway.Secret{{
		Name: "KEY", Value: secrets.NewValue(value), Placeholder: placeholder, Binding: secrets.Binding{Names: []string{name}, Header: "Authorization"},
	}}}
	if err := json.Unmarshal([]byte(document), &r.Policy.Document); err != nil {
		w.t.Fatal(err)
	}
	return r
}

var placeholder = secrets.NewPlaceholder()

// guest is a sandbox whose programs dial.
type guest struct {
	w       *world
	id      string
	channel *wire.Channel
	done    chan struct{}

	mu      sync.Mutex
	next    uint32
	waiting map[uint32]chan answer // guarded by mu
}

// answer is a message of the gateway's.
type answer struct {
	wire.Message
	file *os.File
}

// newGuest registers a sandbox, and looks up the names that its document allows.
func (w *world) newGuest(id, document string) *guest {
	w.t.Helper()
	return w.register(w.registration(id, document))
}

func (w *world) register(r gateway.Registration) *guest {
	w.t.Helper()
	ours, theirs, err := wire.Pair()
	if err != nil {
		w.t.Fatal(err)
	}
	g := &guest{w: w, id: r.ID, done: make(chan struct{}), waiting: map[uint32]chan answer{}}
	if g.channel, err = wire.SentryChannel(ours); err != nil {
		w.t.Fatal(err)
	}
	if err := w.g.Add(r, theirs); err != nil {
		g.channel.Close()
		w.t.Fatal(err)
	}
	go g.receive()
	w.t.Cleanup(g.gone)
	for _, n := range []string{name, sister, "other.example.com"} {
		g.lookUp(n)
	}
	return g
}

// gone ends the sandbox.
func (g *guest) gone() {
	g.channel.Close()
	<-g.done
}

func (g *guest) receive() {
	defer close(g.done)
	for {
		err := g.channel.Receive(func(m wire.Message, f *os.File) error {
			m.Payload = bytes.Clone(m.Payload)
			g.mu.Lock()
			defer g.mu.Unlock()
			if c := g.waiting[m.Flow]; c != nil {
				c <- answer{m, f}
			}
			return nil
		})
		if err != nil {
			return
		}
	}
}

// ask sends a message with a new number and returns where its answers come.
func (g *guest) ask(m wire.Message) (uint32, chan answer, error) {
	g.mu.Lock()
	g.next++
	m.Flow = g.next
	c := make(chan answer, 4)
	g.waiting[m.Flow] = c
	g.mu.Unlock()
	return m.Flow, c, g.channel.Send(&m, -1)
}

// lookUp asks for the address of a name.
func (g *guest) lookUp(name string) (addr string) {
	g.w.t.Helper()
	text, err := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA).Pack()
	if err != nil {
		g.w.t.Fatal(err)
	}
	_, c, err := g.ask(wire.Message{Kind: wire.Question, Payload: text})
	if err != nil {
		g.w.t.Fatal(err)
	}
	a := <-c
	var m dns.Msg
	if err := m.Unpack(a.Payload); err != nil {
		g.w.t.Fatal(err)
	}
	for _, rr := range m.Answer {
		if rr, is := rr.(*dns.A); is {
			addr = rr.A.String()
		}
	}
	return addr
}

// conn is a flow as a program of the guest has it.
type conn struct {
	net.Conn
	g     *guest
	flow  uint32
	words chan answer
	once  sync.Once
}

// Close implements net.Conn. A sentry says that it has closed its end.
func (c *conn) Close() error {
	c.once.Do(func() { _ = c.g.channel.Send(&wire.Message{Kind: wire.Closed, Flow: c.flow}, -1) }) // the gateway ends
	return c.Conn.Close()
}

// dial opens a flow.
func (g *guest) dial(ctx context.Context, address string) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	flow, c, err := g.ask(wire.Message{Kind: wire.Dial, Protocol: wire.TCP, Address: at.Addr(), Port: at.Port()})
	if err != nil {
		return nil, err
	}
	select {
	case a := <-c:
		if a.Code != wire.CodeOK {
			return nil, errors.New("the gateway refuses the flow")
		}
		defer a.file.Close()
		fc, err := net.FileConn(a.file)
		if err != nil {
			return nil, err
		}
		return &conn{Conn: fc, g: g, flow: flow, words: c}, nil
	case <-g.done:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// client is a program that trusts the authority of the tree.
func (g *guest) client(http2 bool) *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(g.w.authority.Certificate())
	tr := &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return g.dial(ctx, net.JoinHostPort(addr, port))
		},
		TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: http2, DisableCompression: true,
	}
	if !http2 {
		tr.Protocols = new(http.Protocols)
		tr.Protocols.SetHTTP1(true)
	}
	g.w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// reply is what a program got.
type reply struct {
	status int
	header http.Header
	body   string
	err    error
}

func do(c *http.Client, method, url, body string, edit func(*http.Request)) reply {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	if edit != nil {
		edit(r)
	}
	res, err := c.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(b), err}
}

// goes makes a request in the background.
func goes(c *http.Client, method, url, body string) chan reply {
	done := make(chan reply, 1)
	go func() { done <- do(c, method, url, body, nil) }()
	return done
}

// seen remembers what servers were asked.
type seen struct {
	mu  sync.Mutex
	all []string
}

func (s *seen) add(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, text)
	return len(s.all)
}

func (s *seen) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.all = nil }()
	return s.all
}
