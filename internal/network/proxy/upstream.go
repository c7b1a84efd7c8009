package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// serverIdle is how long connections to servers are kept between requests of a flow.
	serverIdle = 90 * time.Second
	// serverConns bounds those of a flow: a connection of HTTP/2 may have many requests at
	// once, and the server may speak HTTP/1.1.
	serverConns = 32
	// continueTimeout is how long a body waits for a server that does not say whether it
	// wants it.
	continueTimeout = time.Second
)

// Upstream is the way of a flow to its server: it puts secrets into requests and masks
// answers. It is an http.RoundTripper, safe for concurrent use.
type Upstream struct {
	flow      Flow
	transport *http.Transport
	// single is for Once: a transport that bounds its connections miscounts those of NewClientConn,
	// and panics when one of HTTP/1.1 ends.
	single *http.Transport
}

// Upstream returns the way of a flow to its server, for requests without a guest. Close
// ends it.
func (p *Proxy) Upstream(f Flow) *Upstream {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return f.Dial(ctx) },
		TLSClientConfig: &tls.Config{
			RootCAs:    p.config.Roots,
			ServerName: f.Name,
			MinVersion: tls.VersionTLS12,
		},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true, // the guest gets what the server sends
		TLSHandshakeTimeout:    handshakeTimeout,
		MaxResponseHeaderBytes: maxAnswerHeader,
		ExpectContinueTimeout:  continueTimeout,
		IdleConnTimeout:        serverIdle,
		MaxIdleConnsPerHost:    serverConns / 8,
	}
	u := &Upstream{flow: f, transport: t, single: t.Clone()}
	t.MaxConnsPerHost = serverConns
	return u
}

// Close closes connections that are not in use. Others end with their requests.
func (u *Upstream) Close() { u.transport.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (u *Upstream) RoundTrip(r *http.Request) (*http.Response, error) {
	return u.send(r, u.transport.RoundTrip)
}

// ErrNotSent is wrapped by the errors of Once that came before a byte of the request was
// sent.
var ErrNotSent = errors.New("the request was not sent")

// Once sends a request on a connection of its own, which ends with the body of the answer.
// It is never sent again: after an error that does not wrap ErrNotSent nobody knows whether
// the server has it.
func (u *Upstream) Once(r *http.Request) (*http.Response, error) {
	scheme := "http"
	if u.flow.TLS {
		scheme = "https"
	}
	conn, err := u.single.NewClientConn(r.Context(), scheme, net.JoinHostPort(u.flow.Name, strconv.Itoa(int(u.flow.Port))))
	if err != nil {
		return nil, fmt.Errorf("%w: connect to %s: %w", ErrNotSent, u.flow.Name, err)
	}
	res, err := u.send(r, conn.RoundTrip)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("send to %s: %w", u.flow.Name, err)
	}
	res.Body = &lastBody{res.Body, conn}
	return res, nil
}

// send sends a request with secrets.
func (u *Upstream) send(r *http.Request, roundTrip func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	x, served := r.Context().Value(exchangeKey{}).(*exchange)
	var rule *Rule
	if served {
		rule = x.rule
	} else {
		rule = u.flow.Rule()
	}
	h := r.Header.Clone()
	in := rule.insert(u.flow.Name, u.flow.TLS, r, h)
	masks := rule.masks
	if len(in.names) > 0 {
		if served {
			x.record.Secrets = append(x.record.Secrets, in.names...)
		}
		masks = slices.Concat(rule.masks, in.masks)
		// What is compressed cannot be masked.
		h.Set("Accept-Encoding", "identity")
		if strings.HasPrefix(h.Get("Content-Type"), "application/grpc") {
			h.Set("Grpc-Accept-Encoding", "identity")
		}
	}
	ctx := r.Context()
	if len(masks) > 0 {
		// Parts of an answer have parts of a secret, which no mask finds: the server answers with the whole.
		for _, name := range []string{"Range", "If-Range", "Request-Range"} {
			h.Del(name)
		}
		// Informational answers go to whoever asked before; this hook is called first.
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
			maskHeader(http.Header(header), masks)
			return nil
		}})
	}
	out := r.WithContext(ctx)
	out.Header = h
	res, err := roundTrip(out)
	if err != nil {
		return nil, err
	}
	res.Request = r // without secrets
	if len(masks) > 0 {
		maskHeader(res.Header, masks)
		maskBody(res, masks)
	}
	return res, nil
}

// lastBody is the body of the only answer of a connection.
type lastBody struct {
	io.ReadCloser
	conn *http.ClientConn
}

// Close implements io.Closer.
func (b *lastBody) Close() error {
	return errors.Join(b.ReadCloser.Close(), b.conn.Close())
}
