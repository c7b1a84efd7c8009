package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"ramet.dev/ramet/api"
)

// Config is the address of a daemon and the credentials of its client.
type Config struct {
	// Address is "unix:" and the absolute path of a socket, or an http or https URL.
	Address string
	// Token is the secret of a token. The owner of the daemon needs none at its socket.
	Token string
	// CA is the PEM text of the authorities that may sign the certificate of the daemon.
	// If it is nil, those of the system may.
	CA []byte
	// IdempotencyKey, if it is set, has the daemon do each change once, however often
	// clients with this key make the same changes in the same order.
	IdempotencyKey string
}

// NobodyListens reports whether err says that no daemon runs: there is no socket, or only that of a dead daemon.
func NobodyListens(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

// New returns a client of the daemon at address, without a token. It does not connect.
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
	conn := &connection{config: cfg, base: strings.TrimSuffix(cfg.Address, "/"), creds: creds}
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
	cfg := c.conn.config
	cfg.Token, cfg.IdempotencyKey = token, idempotencyKey
	return Open(cfg)
}

// checkURL refuses an address that is not one of a daemon, and one to which a token would be
// sent in the clear.
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

// withoutUser returns an address without the part that may be a password.
func withoutUser(address string) string {
	if i := strings.LastIndex(address, "@"); i >= 0 {
		return "…" + address[i:]
	}
	return address
}
