package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// Config says which daemon a client talks to, and as whom.
type Config struct {
	// Address is "unix:" and the absolute path of a socket, or an http or https URL.
	Address string
	// Token is the secret of a token; empty at the socket of one's own daemon.
	Token string
	// CA is the PEM text of the authorities that sign the daemon's certificate; nil
	// for those of the system.
	CA []byte
	// IdempotencyKey, if it is set, makes every change one that is done once, however
	// often a client with the same key makes the same changes in the same order.
	IdempotencyKey string
}

// New returns a client of the daemon at address, with nothing to say who it is. It
// does not connect.
func New(address string) (*Client, error) { return Open(Config{Address: address}) }

// Open returns a client. It does not connect.
func Open(cfg Config) (*Client, error) {
	creds := &credentials{token: cfg.Token, key: cfg.IdempotencyKey, tls: &tls.Config{MinVersion: tls.VersionTLS12}}
	if cfg.CA != nil {
		creds.tls.RootCAs = x509.NewCertPool()
		if !creds.tls.RootCAs.AppendCertsFromPEM(cfg.CA) {
			return nil, api.Invalid("ca", "there is no certificate in PEM form")
		}
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	transport := &http.Transport{
		DialContext:           dialer.DialContext,
		Proxy:                 http.ProxyFromEnvironment,
		TLSClientConfig:       creds.tls,
		MaxIdleConnsPerHost:   idleConns,
		IdleConnTimeout:       time.Minute,
		TLSHandshakeTimeout:   dialTimeout,
		DisableCompression:    true, // output is streamed; gzip would hold it back
		ExpectContinueTimeout: time.Second,
	}
	conn := &connection{base: strings.TrimSuffix(cfg.Address, "/"), creds: creds}
	if path, ok := strings.CutPrefix(cfg.Address, "unix:"); ok {
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		conn.base, conn.socket = "http://ramet", path
	} else if err := checkURL(cfg); err != nil {
		return nil, err
	}
	conn.http = &http.Client{
		Transport: &signing{creds: creds, next: transport},
		// No route redirects; following one would turn a POST into a GET.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return newClient(conn), nil
}

// As returns a client of the same daemon with other credentials.
func (c *Client) As(token, idempotencyKey string) (*Client, error) {
	if c.conn.socket == "" {
		return nil, api.Invalid("token", "only at a socket a client takes another token")
	}
	return Open(Config{Address: "unix:" + c.conn.socket, Token: token, IdempotencyKey: idempotencyKey})
}

// checkURL refuses what is no daemon's address, and to send a token in the clear.
func checkURL(cfg Config) error {
	u, err := url.Parse(cfg.Address)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
		return api.Invalid("address", "%q is not the address of a daemon: say https://HOST:PORT or unix:PATH", withoutUser(cfg.Address))
	}
	ip := net.ParseIP(u.Hostname())
	if local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback(); cfg.Token != "" && u.Scheme == "http" && !local {
		return api.Invalid("address", "%s would send the token in the clear: use https", u.Host)
	}
	return nil
}

// withoutUser leaves out of an address what may be a password.
func withoutUser(address string) string {
	if i := strings.LastIndex(address, "@"); i >= 0 {
		return "…" + address[i:]
	}
	return address
}

// credentials are what every request of a client carries.
type credentials struct {
	token string
	key   string
	tls   *tls.Config
	count atomic.Int64 // of changes, each of which has a key of its own
}

// sign adds the credentials to the headers of a request.
func (c *credentials) sign(method string, h http.Header) {
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	switch method {
	case http.MethodPost, http.MethodPatch, http.MethodDelete:
		if c.key != "" {
			h.Set(httpwire.IdempotencyHeader, c.key+"."+strconv.FormatInt(c.count.Add(1), 10))
		}
	}
}

// signing is an http.RoundTripper that signs requests.
type signing struct {
	creds *credentials
	next  *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (s *signing) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context()) // a round tripper must not change its request
	s.creds.sign(r.Method, r.Header)
	return s.next.RoundTrip(r)
}

// CloseIdleConnections is what http.Client looks for.
func (s *signing) CloseIdleConnections() { s.next.CloseIdleConnections() }
