package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/ca"
	"ramet.dev/ramet/internal/network/secrets"
)

// name is one that the certificate of httptest is for.
const name = "api.example.com"

// world is a server, and a proxy that stands before it at an address of loopback.
type world struct {
	t         *testing.T
	proxy     *Proxy
	authority *ca.Authority
	address   string // where guests connect
	port      uint16
	flow      Flow
	roots     *x509.CertPool // what the proxy trusts; nil: the server
	log       *recorder
	ctx       context.Context // ends all flows
	cut       context.CancelFunc

	mu   sync.Mutex
	errs []error // of Serve
}

// recorder keeps records.
type recorder struct {
	mu      sync.Mutex
	records []Record
	more    chan struct{}
}

// Request is for Flow.Log.
func (r *recorder) Request(x Record) {
	r.mu.Lock()
	r.records = append(r.records, x)
	r.mu.Unlock()
	r.more <- struct{}{}
}

// next returns the first record that no call before returned.
func (r *recorder) next(t *testing.T) Record {
	t.Helper()
	select {
	case <-r.more:
	case <-time.After(10 * time.Second):
		t.Fatal("there is no record")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.records[0]
	r.records = r.records[1:]
	return x
}

type option func(*httptest.Server, *world)

func http1Server(s *httptest.Server, _ *world) { s.EnableHTTP2 = false }

func withoutTLS(_ *httptest.Server, w *world) { w.flow.TLS = false }

func treated(rule *Rule) option {
	return func(_ *httptest.Server, w *world) { w.flow.Rule = func() *Rule { return rule } }
}

func open(t *testing.T) *Rule { return newRule(t, api.NetworkTreatment{}) }

func newRule(t *testing.T, treatment api.NetworkTreatment, given ...Secret) *Rule {
	t.Helper()
	r, err := NewRule(name, treatment, given)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// newWorld starts a server and what stands before it.
func newWorld(t *testing.T, handler http.HandlerFunc, options ...option) *world {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	w := &world{t: t, log: &recorder{more: make(chan struct{}, 1000)}}
	rule := open(t)
	w.flow = Flow{Name: name, TLS: true, Rule: func() *Rule { return rule }, Log: w.log.Request}
	for _, o := range options {
		o(server, w)
	}
	if w.flow.TLS {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	if w.flow.Dial == nil {
		w.flow.Dial = func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
		}
	}
	if w.roots == nil {
		w.roots = x509.NewCertPool()
		if w.flow.TLS {
			w.roots.AddCert(server.Certificate())
		}
	}
	w.start()
	return w
}

func (w *world) start() {
	t := w.t
	t.Helper()
	var err error
	if w.authority, err = ca.New(ca.Options{Tree: "sbx_test"}); err != nil {
		t.Fatal(err)
	}
	w.flow.Authority = w.authority
	w.proxy = New(Config{Roots: w.roots})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = l.Addr().String()
	w.port = uint16(l.Addr().(*net.TCPAddr).Port)
	w.flow.Port = w.port
	w.ctx, w.cut = context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				err := w.proxy.Serve(w.ctx, c, w.flow)
				w.mu.Lock()
				defer w.mu.Unlock()
				w.errs = append(w.errs, err)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		if err := w.proxy.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// url is that of a path.
func (w *world) url(path string) string {
	scheme := "http"
	if w.flow.TLS {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(name, strconv.Itoa(int(w.port))) + path
}

// pool trusts the authority.
func (w *world) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(w.authority.Certificate())
	return p
}

// client is a guest's.
func (w *world) client(http2 bool) *http.Client {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", w.address)
		},
		TLSClientConfig:    &tls.Config{RootCAs: w.pool()},
		ForceAttemptHTTP2:  http2,
		DisableCompression: true,
	}
	if !http2 {
		t.Protocols = new(http.Protocols)
		t.Protocols.SetHTTP1(true)
	}
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// dial connects as a guest does that writes its own bytes.
func (w *world) dial(protocols ...string) net.Conn {
	t := w.t
	t.Helper()
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if w.flow.TLS {
		s := tls.Client(c, &tls.Config{RootCAs: w.pool(), ServerName: name, NextProtos: protocols})
		if err := s.Handshake(); err != nil {
			t.Fatal(err)
		}
		c = s
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// raw sends bytes and returns all that comes back.
func (w *world) raw(text string) string {
	w.t.Helper()
	c := w.dial()
	if _, err := io.WriteString(c, text); err != nil {
		w.t.Fatal(err)
	}
	b, err := io.ReadAll(c)
	if err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		w.t.Fatalf("%v after %q", err, b)
	}
	return string(b)
}

// caFile is a file with the certificate of the authority.
func (w *world) caFile() string {
	file := filepath.Join(w.t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, w.authority.Certificate(), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// do makes a request and returns the answer with its body.
func do(t *testing.T, c *http.Client, method, url string, body io.Reader, edit func(*http.Request)) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(r)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(b)
}

// value is the secret of tests.
const value = "sk-very-secret-0123456789"

// newSecretOf returns a secret that is bound to everything of name, and to header.
func newSecretOf(header string) Secret {
	return Secret{
		Name: "KEY", Value: secrets.NewValue(value), Placeholder: secrets.NewPlaceholder(),
		Binding: secrets.Binding{Names: []string{name}, Header: header},
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
