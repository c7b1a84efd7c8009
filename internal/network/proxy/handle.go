package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// exchange is a request that is served, and what is known of it.
type exchange struct {
	*serving
	rule   *Rule
	record Record
}

type exchangeKey struct{}

// handle serves a request of a guest.
func (p *Proxy) handle(w http.ResponseWriter, r *http.Request) {
	f := r.Context().Value(flowKey{}).(*serving)
	if !f.enter() {
		return
	}
	defer f.running.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	stop := context.AfterFunc(f.conn.ctx, cancel) // net/http does not notice it in all states of a connection
	defer stop()
	rule := f.Rule()
	x := &exchange{serving: f, rule: rule, record: Record{Method: r.Method, Path: r.URL.Path, Rule: rule.String(), Verdict: Allowed, Start: time.Now()}}
	out := &countingWriter{ResponseWriter: w}
	in := &countingBody{ReadCloser: r.Body}
	defer func() {
		x.record.BytesIn, x.record.BytesOut = out.n, in.n.Load()
		if out.status != 0 { // else the connection was taken over, or nothing was answered
			x.record.Status = out.status
		}
		x.record.Duration = time.Since(x.record.Start)
		if f.Log != nil {
			f.Log(x.record)
		}
	}()
	if refusal := x.examine(r); refusal != nil {
		x.deny(out, refusal)
		return
	}
	if r.ProtoMajor == 1 {
		// An answer may begin before the body has ended. Without this net/http would read the
		// body to its end first, and the two would wait for each other.
		if err := http.NewResponseController(w).EnableFullDuplex(); err != nil {
			x.deny(out, &refusal{http.StatusInternalServerError, "Internal error", "the connection has one direction only"})
			return
		}
	}
	// net/http looks at the body of its own request when it ends: that one stays.
	passed := r.WithContext(context.WithValue(ctx, exchangeKey{}, x))
	passed.Body = in
	p.reverse.ServeHTTP(out, passed)
}

// refusal is why a request does not pass.
type refusal struct {
	status int
	title  string
	detail string
}

// examine returns why a request does not pass, or nil. What net/http makes of the bytes of
// the guest is all that the server gets, in its words: nothing passes that the two might
// take for different requests.
func (x *exchange) examine(r *http.Request) *refusal {
	switch {
	case r.Method == http.MethodConnect:
		return &refusal{http.StatusMethodNotAllowed, "No tunnels", "CONNECT is for proxies, and the gateway is none that one connects to"}
	case r.URL.Host != "" || r.URL.Scheme != "" || !strings.HasPrefix(r.URL.Path, "/"):
		return &refusal{http.StatusBadRequest, "Bad request", "the target of the request is not a path"}
	case !x.isFor(r.Host):
		return &refusal{http.StatusMisdirectedRequest, "Misdirected request", fmt.Sprintf("the connection was opened for %s, and the request is for %q", x.Name, r.Host)}
	}
	for _, h := range r.Header["Host"] { // HTTP/2 has :authority besides
		if !x.isFor(h) {
			return &refusal{http.StatusMisdirectedRequest, "Misdirected request", "the request has two hosts"}
		}
	}
	if err := x.rule.Check(r); err != nil {
		return &refusal{http.StatusForbidden, "Forbidden by policy", err.Error()}
	}
	return nil
}

// isFor reports whether a host of a request is that of the flow.
func (f *serving) isFor(host string) bool {
	name := host
	if n, port, err := net.SplitHostPort(host); err == nil {
		if port != strconv.Itoa(int(f.Port)) {
			return false
		}
		name = n
	} else if n, is := strings.CutPrefix(host, "["); is { // an address of IPv6 without a port
		if name, is = strings.CutSuffix(n, "]"); !is {
			return false
		}
	}
	return strings.EqualFold(strings.TrimSuffix(name, "."), f.Name)
}

// rewrite makes the request to the server of that of the guest.
func rewrite(r *httputil.ProxyRequest) {
	f := r.In.Context().Value(exchangeKey{}).(*exchange)
	scheme := "http"
	if f.TLS {
		scheme = "https"
	}
	r.Out.URL.Scheme = scheme
	r.Out.URL.Host = net.JoinHostPort(f.Name, strconv.Itoa(int(f.Port)))
	r.Out.URL.RawQuery = r.In.URL.RawQuery // also what net/url cannot read
	r.Out.Host = strings.ToLower(r.In.Host)
	r.Out.Trailer = r.In.Trailer // it is filled when the body has ended, and a copy would not be
	delete(r.Out.Header, "Host")
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = v // the guest says so, and the server may believe it or not
		}
	}
	if u := r.Out.Header.Get("Upgrade"); u != "" && !f.rule.upgrades(u) {
		// A server may go on without an upgrade.
		r.Out.Header.Del("Upgrade")
		r.Out.Header.Del("Connection")
	}
}

// adapt makes an answer one that a guest of another version of HTTP can be given.
func adapt(res *http.Response) error {
	if res.StatusCode == http.StatusSwitchingProtocols {
		res.Request.Context().Value(exchangeKey{}).(*exchange).record.Status = res.StatusCode
	}
	if len(res.Trailer) > 0 {
		// HTTP/1.1 has trailers only where it has no length, HTTP/2 has both.
		res.Header.Del("Content-Length")
	}
	return nil
}

// toFlow sends requests to where their flows go.
type toFlow struct{}

// RoundTrip implements http.RoundTripper.
func (toFlow) RoundTrip(r *http.Request) (*http.Response, error) {
	return r.Context().Value(exchangeKey{}).(*exchange).effects.RoundTrip(r)
}

// Tell notes what an effect made of a request: it changes its record.
func Tell(r *http.Request, v Verdict, reason string) {
	if x, ok := r.Context().Value(exchangeKey{}).(*exchange); ok {
		x.record.Verdict, x.record.Reason = v, reason
	}
}

// deny answers a request that does not pass.
func (x *exchange) deny(w http.ResponseWriter, why *refusal) {
	x.record.Verdict, x.record.Reason = Denied, why.detail
	x.problem(w, why)
}

// failed answers a request that the server has not answered.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	x := r.Context().Value(exchangeKey{}).(*exchange)
	why := &refusal{http.StatusBadGateway, "Server is not reached", x.tell(err)}
	if errors.Is(err, context.DeadlineExceeded) {
		why.status = http.StatusGatewayTimeout
	}
	x.record.Verdict, x.record.Reason = Failed, why.detail
	x.problem(w, why)
}

// tell says what is wrong with a server, in words that have nothing of the request.
func (x *exchange) tell(err error) string {
	var unknown *tls.CertificateVerificationError
	var op *net.OpError
	switch {
	case errors.As(err, &unknown):
		var hostname x509.HostnameError
		if errors.As(err, &hostname) {
			return "the certificate of the server is not for " + x.Name
		}
		return "the certificate of the server is not trusted: " + maskText(unknown.Err.Error(), x.rule.masks)
	case errors.Is(err, context.Canceled):
		return "the connection is over"
	case errors.As(err, &op) && op.Op == "dial":
		return x.Name + " cannot be reached: " + maskText(op.Err.Error(), x.rule.masks)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return x.Name + " has closed the connection without an answer"
	}
	return x.Name + " has not answered"
}

// problem answers with a problem document of RFC 9457.
func (x *exchange) problem(w http.ResponseWriter, why *refusal) {
	body, err := json.Marshal(map[string]any{
		"type": "about:blank", "title": why.title, "status": why.status, "detail": why.detail, "rule": x.rule.String(), "origin": "ramet-gateway",
	})
	if err != nil {
		body = nil // texts and a number always can be written
	}
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	if why.status == http.StatusBadRequest || why.status == http.StatusMethodNotAllowed {
		h.Set("Connection", "close") // what follows may not be what the guest thinks it is
	}
	w.WriteHeader(why.status)
	_, _ = w.Write(body) // a guest that is gone needs no answer
}

// countingWriter counts what a guest is sent.
type countingWriter struct {
	http.ResponseWriter
	n      int64
	status int
}

// WriteHeader implements http.ResponseWriter.
func (w *countingWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *countingWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.n += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController flush and hijack.
func (w *countingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// countingBody counts what a guest sends. The transport may read it after the handler has
// returned.
type countingBody struct {
	io.ReadCloser
	n atomic.Int64
}

// Read implements io.Reader.
func (b *countingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	return n, err
}
