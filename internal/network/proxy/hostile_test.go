package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"ramet.dev/ramet/api"
)

// counting is a server that remembers what it was asked.
type counting struct {
	mu       sync.Mutex
	requests []string
}

func (s *counting) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the guest has broken off
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, fmt.Sprintf("%s %s %q %v", r.Method, r.RequestURI, body, r.Header["X-Folded"]))
	_, _ = io.WriteString(w, "served")
}

func (s *counting) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.requests = nil }()
	return s.requests
}

// TestSmuggling sends what two parsers might take for different requests. /v1/ok is allowed,
// and no request of any other path may reach the server.
func TestSmuggling(t *testing.T) {
	const host = "Host: " + name + "\r\n"
	const hidden = "GET /admin HTTP/1.1\r\n" + host + "\r\n"
	rule := newRule(t, api.NetworkTreatment{Paths: []string{"/v1/ok"}})
	for _, o := range [][]option{{http1Server}, {http1Server, withoutTLS}} {
		server := &counting{}
		w := newWorld(t, server.serve, append(o, treated(rule))...)
		for _, c := range []struct {
			what, text string
			served     []string // what the server may see
		}{
			{"plain", "POST /v1/ok HTTP/1.1\r\n" + host + "Content-Length: 3\r\nConnection: close\r\n\r\nabc", []string{`POST /v1/ok "abc" []`}},
			{"length and chunks", "POST /v1/ok HTTP/1.1\r\n" + host + "Content-Length: 6\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\n" + hidden, []string{`POST /v1/ok "" []`}},
			{"two lengths", "POST /v1/ok HTTP/1.1\r\n" + host + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd" + hidden, nil},
			{"length with sign", "POST /v1/ok HTTP/1.1\r\n" + host + "Content-Length: +3\r\n\r\nabc" + hidden, nil},
			{"length in a list", "POST /v1/ok HTTP/1.1\r\n" + host + "Content-Length: 3, 3\r\n\r\nabc" + hidden, nil},
			{"unknown encoding", "POST /v1/ok HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n" + hidden, nil},
			{"two encodings", "POST /v1/ok HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden, nil},
			{"space before colon", "POST /v1/ok HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + hidden, nil},
			{"chunk with a bad size", "POST /v1/ok HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n-1\r\n\r\n" + hidden, nil},
			{"bare line feeds", "GET /v1/ok HTTP/1.1\n" + strings.ReplaceAll(host, "\r", "") + "Connection: close\n\n", []string{`GET /v1/ok "" []`}},
			{"bare carriage return", "GET /v1/ok HTTP/1.1\r\n" + host + "X: a\rGET /admin HTTP/1.1\r\n\r\n", nil},
			{"folded header", "GET /v1/ok HTTP/1.1\r\n" + host + "X-Folded: a\r\n b\r\nConnection: close\r\n\r\n", []string{`GET /v1/ok "" [a b]`}},
			{"null byte", "GET /v1/ok HTTP/1.1\r\n" + host + "X: a\x00b\r\n\r\n", nil},
			{"pipelined", "GET /v1/ok HTTP/1.1\r\n" + host + "\r\nGET /admin HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", []string{`GET /v1/ok "" []`}},
			{"body of a GET", "GET /v1/ok HTTP/1.1\r\n" + host + fmt.Sprintf("Content-Length: %d\r\nConnection: close\r\n\r\n", len(hidden)) + hidden, []string{fmt.Sprintf(`GET /v1/ok %q []`, hidden)}},
			{"absolute form", "GET http://" + name + "/v1/ok HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", nil},
			{"absolute form of another", "GET http://other.example.org/v1/ok HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", nil},
			{"another host", "GET /v1/ok HTTP/1.1\r\nHost: other.example.org\r\nConnection: close\r\n\r\n", nil},
			{"another port", "GET /v1/ok HTTP/1.1\r\nHost: " + name + ":1\r\nConnection: close\r\n\r\n", nil},
			{"two hosts", "GET /v1/ok HTTP/1.1\r\n" + host + "Host: other.example.org\r\n\r\n", nil},
			{"host with a path", "GET /v1/ok HTTP/1.1\r\nHost: " + name + "/admin\r\n\r\n", nil},
			{"host with a user", "GET /v1/ok HTTP/1.1\r\nHost: a@" + name + "\r\n\r\n", nil},
			{"no host", "GET /v1/ok HTTP/1.1\r\n\r\n", nil},
			{"no host in 1.0", "GET /v1/ok HTTP/1.0\r\n\r\n", nil},
			{"tunnel", "CONNECT " + name + ":443 HTTP/1.1\r\n" + host + "\r\n" + hidden, nil},
			{"tunnel to another", "CONNECT other.example.org:443 HTTP/1.1\r\n" + host + "\r\n" + hidden, nil},
			{"asterisk", "OPTIONS * HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", nil},
			{"upgrade to HTTP/2", "GET /v1/ok HTTP/1.1\r\n" + host + "Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n\r\n", []string{`GET /v1/ok "" []`}},
			{"prior knowledge of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", nil},
			{"fragment", "GET /v1/ok#/../admin HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", nil},
			{"path with a line break", "GET /v1/ok%0d%0aX:%20y HTTP/1.1\r\n" + host + "Connection: close\r\n\r\n", nil},
			{"HTTP/0.9", "GET /v1/ok\r\n\r\n", nil},
			{"garbage", "\x16\x03\x01\x00\x00garbage\r\n\r\n", nil},
		} {
			answer := w.raw(c.text)
			if got := server.take(); strings.Join(got, "\n") != strings.Join(c.served, "\n") {
				t.Errorf("%s: the server saw %q, the guest %q", c.what, got, answer)
			}
			if c.served == nil && strings.Contains(answer, "served") {
				t.Errorf("%s: the guest saw %q", c.what, answer)
			}
		}
	}
}

// h2Guest speaks HTTP/2 in frames of its own.
type h2Guest struct {
	*http2.Framer
	conn net.Conn
}

func newH2Guest(t *testing.T, w *world) *h2Guest {
	t.Helper()
	c := w.dial("h2")
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	g := &h2Guest{http2.NewFramer(c, c), c}
	g.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := g.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return g
}

// ask sends the header of a request and returns the status of its answer, or the error that
// ends the stream or the connection.
func (g *h2Guest) ask(fields ...hpack.HeaderField) (string, error) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range fields {
		if err := e.WriteField(f); err != nil {
			return "", err
		}
	}
	if err := g.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: true}); err != nil {
		return "", err
	}
	for {
		f, err := g.ReadFrame()
		if err != nil {
			return "", err
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status"), nil
		case *http2.RSTStreamFrame:
			return "", fmt.Errorf("stream is reset: %v", f.ErrCode)
		case *http2.GoAwayFrame:
			return "", fmt.Errorf("connection is over: %v", f.ErrCode)
		}
	}
}

// TestHTTP2ToHTTP1 sends headers that would be lines of their own in HTTP/1.1.
func TestHTTP2ToHTTP1(t *testing.T) {
	server := &counting{}
	rule := newRule(t, api.NetworkTreatment{Paths: []string{"/v1/ok"}})
	w := newWorld(t, server.serve, http1Server, treated(rule))
	f := func(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }
	head := func(path string, more ...hpack.HeaderField) []hpack.HeaderField {
		return append([]hpack.HeaderField{f(":method", "GET"), f(":scheme", "https"), f(":authority", name), f(":path", path)}, more...)
	}
	for _, c := range []struct {
		what   string
		fields []hpack.HeaderField
		served bool
	}{
		{"plain", head("/v1/ok"), true},
		{"line break in a value", head("/v1/ok", f("x", "a\r\nTransfer-Encoding: chunked")), false},
		{"line feed in a value", head("/v1/ok", f("x", "a\nb: c")), false},
		{"colon in a name", head("/v1/ok", f("x: y", "a")), false},
		{"line break in a name", head("/v1/ok", f("x\r\ny", "a")), false},
		{"capital letters", head("/v1/ok", f("X", "a")), false},
		{"line break in the path", head("/v1/ok HTTP/1.1\r\nX: y"), false},
		{"space in the path", head("/v1/ok HTTP/1.1"), false},
		{"line break in the method", append([]hpack.HeaderField{f(":method", "GET /admin HTTP/1.1\r\nX:")}, head("/v1/ok")[1:]...), false},
		{"transfer encoding", head("/v1/ok", f("transfer-encoding", "chunked")), false},
		{"connection", head("/v1/ok", f("connection", "x-y")), false},
		{"two paths", head("/v1/ok", f(":path", "/admin")), false},
		{"path after headers", append([]hpack.HeaderField{f(":method", "GET"), f(":scheme", "https"), f(":authority", name), f("x", "y")}, f(":path", "/v1/ok")), false},
		{"absolute path", head("https://other.example.org/v1/ok"), false},
		{"another host beside", head("/v1/ok", f("host", "other.example.org")), false},
		{"another authority", append([]hpack.HeaderField{f(":method", "GET"), f(":scheme", "https"), f(":authority", "other.example.org")}, f(":path", "/v1/ok")), false},
		{"authority with a user", append([]hpack.HeaderField{f(":method", "GET"), f(":scheme", "https"), f(":authority", "a@"+name)}, f(":path", "/v1/ok")), false},
		{"tunnel", []hpack.HeaderField{f(":method", "CONNECT"), f(":authority", name)}, false},
		{"extended tunnel", []hpack.HeaderField{f(":method", "CONNECT"), f(":protocol", "websocket"), f(":scheme", "https"), f(":authority", name), f(":path", "/v1/ok")}, false},
		{"length of a body that is not there", head("/v1/ok", f("content-length", "10")), true}, // as one without
	} {
		status, err := newH2Guest(t, w).ask(c.fields...)
		got := server.take()
		if c.served != (status == "200") || c.served != (len(got) == 1 && got[0] == `GET /v1/ok "" []`) {
			t.Errorf("%s: status %q, %v; the server saw %q", c.what, status, err, got)
		}
	}
}

// TestNamesOfHandshake has a guest ask for another name than the flow is for.
func TestNamesOfHandshake(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("a request reached the server") })
	for _, sni := range []string{"other.example.org", "example.com", "", "127.0.0.1", name + ".example.org"} {
		c, err := net.Dial("tcp", w.address)
		if err != nil {
			t.Fatal(err)
		}
		err = tls.Client(c, &tls.Config{RootCAs: w.pool(), ServerName: sni, InsecureSkipVerify: sni == ""}).Handshake() //nolint:gosec // the proxy has to refuse
		if err == nil {
			t.Errorf("a handshake for %q", sni)
		}
		c.Close()
	}
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	old := &tls.Config{RootCAs: w.pool(), ServerName: name, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11} //nolint:gosec // the proxy has to refuse
	if err := tls.Client(c, old).Handshake(); err == nil {
		t.Error("a handshake of TLS 1.1")
	}
}

// TestSlowGuests has guests begin things and not end them. Their times are shortened.
func TestSlowGuests(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("a request reached the server") })
	w.proxy.server.ReadHeaderTimeout = 100 * time.Millisecond
	for what, text := range map[string]string{
		"half of a line":     "GET / HT",
		"half of a header":   "GET / HTTP/1.1\r\nHost: " + name + "\r\nX",
		"endless header":     "GET / HTTP/1.1\r\nHost: " + name + "\r\n" + strings.Repeat("X: y\r\n", 20000),
		"long line":          "GET /" + strings.Repeat("a", 2*maxHeader) + " HTTP/1.1\r\nHost: " + name + "\r\n\r\n",
		"long value":         "GET / HTTP/1.1\r\nHost: " + name + "\r\nX: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n",
		"nothing":            "",
		"empty lines for us": strings.Repeat("\r\n", 100),
	} {
		c := w.dial()
		_, _ = io.WriteString(c, text) // it may be answered before it has ended
		answer, err := io.ReadAll(c)
		if nerr, ok := err.(net.Error); ok && nerr.Timeout() {
			t.Errorf("%s: the connection is not ended", what)
		}
		if strings.HasPrefix(string(answer), "HTTP/1.1 2") {
			t.Errorf("%s: the answer is %q", what, answer)
		}
	}
}

// TestSlowHandshake has a guest begin a handshake, and another only connect.
func TestSlowHandshake(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	for _, text := range []string{"", "\x16\x03\x01\x02\x00\x01\x00"} {
		front, back := net.Pipe()
		done := make(chan error, 1)
		go func() { done <- w.proxy.Serve(w.ctx, back, w.flow) }()
		if _, err := io.WriteString(front, text); err != nil {
			t.Fatal(err)
		}
		front.Close()
		if err := <-done; err == nil {
			t.Error("a handshake that did not end is one")
		}
	}
}

// TestLargeAnswerHeaders has a server send more header than there is room for.
func TestLargeAnswerHeaders(t *testing.T) {
	protocols(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range 40 {
			w.Header().Set(fmt.Sprintf("X-%d", i), strings.Repeat("a", 10<<10))
		}
	}, func(t *testing.T, w *world, c *http.Client) {
		if res, body := do(t, c, "GET", w.url("/"), nil, nil); res.StatusCode != http.StatusBadGateway {
			t.Errorf("the answer is %d %q", res.StatusCode, body)
		}
	})
}

// TestRedirect is an answer like others: the proxy does not go where it leads.
func TestRedirect(t *testing.T) {
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			t.Errorf("a redirect was followed to %s", r.URL)
		}
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusFound)
	})
	if res, _ := do(t, w.client(true), "GET", w.url("/"), nil, nil); res.StatusCode != http.StatusFound || res.Header.Get("Location") != "http://169.254.169.254/latest/meta-data" {
		t.Errorf("the answer is %d %v", res.StatusCode, res.Header)
	}
}

// FuzzGuest sends bytes of a guest. Whatever they are, the server sees allowed requests only.
func FuzzGuest(f *testing.F) {
	f.Add("GET /v1/ok HTTP/1.1\r\nHost: " + name + "\r\n\r\n")
	f.Add("POST /v1/ok HTTP/1.1\r\nHost: " + name + "\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: " + name + "\r\n\r\n")
	f.Add("GET /v1/ok HTTP/1.1\r\nHost: " + name + "\r\nContent-Length: 5\r\n\r\nabcdeGET /v1/ok HTTP/1.1\r\nHost: other\r\n\r\n")
	rule, err := NewRule(name, api.NetworkTreatment{Methods: []string{"GET", "POST"}, Paths: []string{"/v1/ok"}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := New(Config{})
		defer p.Close()
		back, server := net.Pipe()
		go func() {
			defer server.Close()
			b := bufio.NewReader(server)
			for {
				r, err := http.ReadRequest(b)
				if err != nil {
					return
				}
				if r.Method != "GET" && r.Method != "POST" || r.URL.Path != "/v1/ok" || r.Host != name {
					t.Errorf("the server saw %s %s of %s", r.Method, r.RequestURI, r.Host)
				}
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					return
				}
				if _, err := io.WriteString(server, "HTTP/1.1 204 No Content\r\n\r\n"); err != nil {
					return
				}
			}
		}()
		dialed := false
		front, guest := net.Pipe()
		done := make(chan error, 1)
		go func() {
			done <- p.Serve(t.Context(), guest, Flow{Name: name, Port: 80, Rule: func() *Rule { return rule }, Dial: func(ctx context.Context) (net.Conn, error) {
				if dialed {
					return nil, io.EOF
				}
				dialed = true
				return back, nil
			}})
		}()
		go func() {
			_, _ = io.Copy(io.Discard, front)
		}()
		_, _ = io.WriteString(front, text)
		front.Close()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
