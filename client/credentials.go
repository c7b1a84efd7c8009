package client

import (
	"crypto/tls"
	"net/http"
	"strconv"
	"sync/atomic"

	"ramet.dev/ramet/internal/httpwire"
)

// credentials are the credentials in every request of a client.
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

// CloseIdleConnections implements the method that http.Client looks for.
func (s *signing) CloseIdleConnections() { s.next.CloseIdleConnections() }
