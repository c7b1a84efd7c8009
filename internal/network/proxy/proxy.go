package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"strings"
	"sync"
	"time"

	"ramet.dev/ramet/internal/network/ca"
)

const (
	// handshakeTimeout bounds the handshakes of TLS, on both sides.
	handshakeTimeout = 15 * time.Second
	// headerTimeout bounds how long the header of a request may come in.
	headerTimeout = 15 * time.Second
	// idleTimeout ends a connection of a guest on which there is no request.
	idleTimeout = 5 * time.Minute
	// maxHeader bounds the header of a request, maxAnswerHeader that of an answer.
	maxHeader       = 64 << 10
	maxAnswerHeader = 256 << 10
	// maxStreams bounds requests at once on a connection of HTTP/2.
	maxStreams = 100
)

// Flow is a connection of a sandbox to a name that has a rule.
type Flow struct {
	// Name is what all requests must be for, in lower case and without a dot at its end.
	Name string
	// Port is the one that the guest dialed.
	Port uint16
	// TLS says that the guest speaks it, so that the server does as well.
	TLS bool
	// Authority is that of the sandbox's tree. It is not needed without TLS.
	Authority *ca.Authority
	// Rule returns the rule in force. Each request has that of its beginning.
	Rule func() *Rule
	// Dial makes a connection to the address that was judged.
	Dial func(ctx context.Context) (net.Conn, error)
	// Effects stands between checked requests and the server, if it is not nil: it may
	// hold requests or answer them. It sees placeholders in place of secrets, in answers
	// too.
	Effects func(next http.RoundTripper) http.RoundTripper
	// Log is told of each request that is over, if it is not nil. It must not block.
	Log func(Record)
}

func (f *Flow) validate() error {
	switch {
	case f.Name == "" || f.Name != strings.TrimSuffix(strings.ToLower(f.Name), "."):
		return fmt.Errorf("proxy: name %q of a flow is not in its usual form", f.Name)
	case f.Rule == nil || f.Dial == nil:
		return errors.New("proxy: a flow has no rule or nothing that dials")
	case f.TLS && f.Authority == nil:
		return errors.New("proxy: a flow with TLS has no authority")
	}
	return nil
}

// Verdict says what became of a request.
type Verdict string

// The verdicts.
const (
	Allowed Verdict = "allowed"
	Denied  Verdict = "denied" // by the rule, by an effect, or because it was no proper request
	Held    Verdict = "held"   // by an effect, whatever became of it then
	Failed  Verdict = "failed" // the server was not reached, or broke off
)

// Record tells of a request that is over. It has no query, no header and no body.
type Record struct {
	Method   string
	Path     string
	Status   int // of the answer; 0: there was none
	Verdict  Verdict
	Rule     string
	Reason   string   // of a verdict that is not Allowed
	Secrets  []string // names of those that were put in
	BytesIn  int64    // of the body that the guest got
	BytesOut int64    // of the body that it sent
	Start    time.Time
	Duration time.Duration
}

// Config is what all flows of a proxy share.
type Config struct {
	// Roots are the authorities of servers; nil is those of the host.
	Roots *x509.CertPool
}

// Proxy serves flows. It is safe for concurrent use.
type Proxy struct {
	config   Config
	server   *http.Server
	reverse  *httputil.ReverseProxy
	accepted *listener
	ended    chan error // what server.Serve returned

	mu     sync.Mutex
	closed bool
	flows  map[*flowConn]struct{}
	served sync.WaitGroup // calls of Serve
}

// New starts a proxy. Close ends it.
func New(c Config) *Proxy {
	// What net/http and httputil log of requests has parts of them.
	silent := slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	p := &Proxy{config: c, accepted: newListener(), ended: make(chan error, 1), flows: map[*flowConn]struct{}{}}
	p.server = &http.Server{
		Handler:                      http.HandlerFunc(p.handle),
		ReadHeaderTimeout:            headerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     silent,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			return context.WithValue(ctx, flowKey{}, c.(*flowConn).flow)
		},
	}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		ModifyResponse: adapt,
		Transport:      toFlow{},
		FlushInterval:  -1, // answers pass as they come
		ErrorHandler:   p.failed,
		ErrorLog:       silent,
	}
	go func() {
		p.ended <- p.server.Serve(p.accepted)
	}()
	return p
}

// Close ends all flows and waits for them. It is called once.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	for c := range p.flows {
		c.Close()
	}
	p.mu.Unlock()
	err := p.server.Close() // of the listener as well
	if serr := <-p.ended; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	p.served.Wait()
	if err != nil {
		return fmt.Errorf("close proxy: %w", err)
	}
	return nil
}

// add makes Close wait for a flow.
func (p *Proxy) add(c *flowConn) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	p.flows[c] = struct{}{}
	p.served.Add(1)
	return nil
}

func (p *Proxy) remove(c *flowConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.flows, c)
	p.served.Done()
}

type flowKey struct{}

// serving is a flow that is served.
type serving struct {
	Flow
	upstream *Upstream
	effects  http.RoundTripper
	conn     *flowConn

	mu      sync.Mutex
	over    bool
	running sync.WaitGroup // requests
}

// enter counts a request, unless the flow is over.
func (f *serving) enter() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.over {
		f.running.Add(1)
	}
	return !f.over
}

// end waits for requests, which end because the connection has.
func (f *serving) end() {
	f.mu.Lock()
	f.over = true
	f.mu.Unlock()
	f.running.Wait()
	f.upstream.Close()
}

// flowConn is the connection of a guest.
type flowConn struct {
	net.Conn
	flow *serving
	ctx  context.Context // ends with the connection
	end  context.CancelFunc
}

// Close implements net.Conn.
func (c *flowConn) Close() error {
	defer c.end()
	return c.Conn.Close()
}

// ErrHandshake is wrapped by the error of Serve if the guest broke off the handshake: it
// does not trust the authority, or pins the certificate of the server.
var ErrHandshake = errors.New("the guest broke off the handshake of TLS")

// Serve serves the connection of a guest until it or ctx is over, and closes it. The
// connection begins with the first byte that the guest sent.
func (p *Proxy) Serve(ctx context.Context, guest net.Conn, f Flow) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("serve a flow to %s: %w", f.Name, err)
		}
	}()
	c := &flowConn{Conn: guest}
	c.ctx, c.end = context.WithCancel(ctx)
	defer c.Close()
	if err := f.validate(); err != nil {
		return err
	}
	if err := p.add(c); err != nil {
		return err
	}
	defer p.remove(c)
	up := p.Upstream(f)
	c.flow = &serving{Flow: f, upstream: up, effects: up, conn: c}
	if f.Effects != nil {
		c.flow.effects = f.Effects(up)
	}
	defer c.flow.end()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	conn := net.Conn(c)
	if f.TLS {
		if conn, err = c.shakeHands(); err != nil {
			return err
		}
	}
	if err := p.accepted.give(c.ctx, conn); err != nil {
		return err
	}
	<-c.ctx.Done() // the server closes what it was given
	return context.Cause(ctx)
}

// shakeHands ends TLS.
func (c *flowConn) shakeHands() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(c.ctx, handshakeTimeout)
	defer cancel()
	t := tls.Server(c, c.flow.serverConfig())
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	return t, nil
}

// serverConfig is that of the side which the guest sees.
func (f *Flow) serverConfig() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			if !strings.EqualFold(hello.ServerName, f.Name) {
				return nil, fmt.Errorf("the flow is for another name than %q", hello.ServerName)
			}
			return f.Authority.Leaf(f.Name)
		},
	}
}

// listener hands connections to the server.
type listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *listener) give(ctx context.Context, c net.Conn) error {
	select {
	case l.conns <- c:
		return nil
	case <-l.closed:
		return net.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "proxy", Net: "unix"} }
