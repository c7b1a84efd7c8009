package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/polltest"
)

// protocols runs a test for both protocols of guests and both of servers.
func protocols(t *testing.T, handler http.HandlerFunc, test func(t *testing.T, w *world, c *http.Client), options ...option) {
	for _, server := range []int{1, 2} {
		for _, guest := range []int{1, 2} {
			t.Run(fmt.Sprintf("guest %d server %d", guest, server), func(t *testing.T) {
				o := options
				if server == 1 {
					o = append([]option{http1Server}, o...)
				}
				w := newWorld(t, handler, o...)
				test(t, w, w.client(guest == 2))
			})
		}
	}
}

func TestRequestsPassAsTheyAre(t *testing.T) {
	type seen struct {
		method, target, host, agent, proto string
		header                             http.Header
		sum                                [sha256.Size]byte
	}
	got := make(chan seen, 1)
	protocols(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- seen{r.Method, r.RequestURI, r.Host, r.UserAgent(), r.Proto, r.Header, sha256.Sum256(body)}
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write(body)
	}, func(t *testing.T, w *world, c *http.Client) {
		body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
		res, answer := do(t, c, "PATCH", w.url("/a%20b/%C3%A4;x=1/?q=a;b&c=%zz&d"), bytes.NewReader(body), func(r *http.Request) {
			r.Header["X-Two"] = []string{"1", "2"}
			r.Header.Set("X-Forwarded-For", "192.0.2.1")
			r.Header.Set("User-Agent", "")
		})
		s := <-got
		if s.method != "PATCH" || s.target != "/a%20b/%C3%A4;x=1/?q=a;b&c=%zz&d" || s.agent != "" || s.host != net.JoinHostPort(name, strconv.Itoa(int(w.port))) {
			t.Errorf("the server saw %+v", s)
		}
		if strings.Join(s.header["X-Two"], ",") != "1,2" || s.header.Get("X-Forwarded-For") != "192.0.2.1" || len(s.header["Via"]) > 0 || len(s.header["Accept-Encoding"]) > 0 {
			t.Errorf("the server saw the header %v", s.header)
		}
		if s.sum != sha256.Sum256(body) || res.StatusCode != http.StatusTeapot || answer != string(body) || len(res.Header["Set-Cookie"]) != 2 {
			t.Errorf("the guest saw %d %v, %d bytes", res.StatusCode, res.Header, len(answer))
		}
		x := w.log.next(t)
		if x.Verdict != Allowed || x.Status != http.StatusTeapot || x.BytesIn != 1<<20 || x.BytesOut != 1<<20 || x.Method != "PATCH" || strings.Contains(x.Path, "q=") {
			t.Errorf("the record is %+v", x)
		}
	})
}

// TestStreams has a server answer each line of a body while it goes on.
func TestStreams(t *testing.T) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if r.ProtoMajor == 1 {
			if err := c.EnableFullDuplex(); err != nil {
				t.Error(err)
			}
		}
		w.WriteHeader(http.StatusOK)
		if err := c.Flush(); err != nil {
			t.Error(err)
		}
		s := bufio.NewScanner(r.Body)
		for s.Scan() {
			fmt.Fprintf(w, "re: %s\n", s.Text())
			if err := c.Flush(); err != nil {
				t.Error(err)
			}
		}
	}
	talk := func(t *testing.T, out io.WriteCloser, answers *bufio.Reader) {
		for i := range 3 {
			fmt.Fprintf(out, "line %d\n", i)
			line, err := answers.ReadString('\n')
			if err != nil || line != fmt.Sprintf("re: line %d\n", i) {
				t.Errorf("the answer is %q, %v", line, err)
			}
		}
		out.Close()
		if rest, err := io.ReadAll(answers); err != nil || len(rest) > 0 {
			t.Errorf("the rest is %q, %v", rest, err)
		}
	}
	for _, options := range [][]option{nil, {http1Server}} {
		w := newWorld(t, handler, options...)
		in, out := io.Pipe()
		r, err := http.NewRequestWithContext(t.Context(), "POST", w.url("/"), in)
		if err != nil {
			t.Fatal(err)
		}
		res, err := w.client(true).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		talk(t, out, bufio.NewReader(res.Body))

		// The client of HTTP/1.1 in net/http sends all of a body before it looks for an answer.
		c := w.dial()
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n", name)
		if res, err = http.ReadResponse(bufio.NewReader(c), nil); err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		talk(t, &chunks{c, httputil.NewChunkedWriter(c)}, bufio.NewReader(res.Body))
	}
}

// chunks is a body in chunks.
type chunks struct {
	conn net.Conn
	io.WriteCloser
}

// Close implements io.Closer.
func (c *chunks) Close() error {
	if err := c.WriteCloser.Close(); err != nil {
		return err
	}
	_, err := io.WriteString(c.conn, "\r\n") // after the last chunk, no trailers
	return err
}

// TestServerSentEvents sends events one by one, each when the guest has the one before.
func TestServerSentEvents(t *testing.T) {
	next := make(chan struct{})
	protocols(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range 3 {
			fmt.Fprintf(w, "data: %d\n\n", i)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-next
		}
	}, func(t *testing.T, w *world, c *http.Client) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", w.url("/"), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		b := make([]byte, 9)
		for i := range 3 {
			if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != fmt.Sprintf("data: %d\n\n", i) {
				t.Errorf("event %q, %v", b, err)
			}
			next <- struct{}{}
		}
	})
}

// TestTrailers is what gRPC needs: HTTP/2 with te: trailers, and trailers that were not
// announced.
func TestTrailers(t *testing.T) {
	protocols(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Te") != "trailers" {
			t.Errorf("te is %q", r.Header.Get("Te"))
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Announced")
		_, _ = w.Write(body)
		w.Header().Set("Announced", "a")
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", r.Trailer.Get("Checksum"))
	}, func(t *testing.T, w *world, c *http.Client) {
		res, body := do(t, c, "POST", w.url("/pkg.Service/Method"), io.MultiReader(strings.NewReader("\x00\x00\x00\x00\x03abc")), func(r *http.Request) {
			r.Header.Set("Te", "trailers")
			r.Header.Set("Content-Type", "application/grpc")
			r.Trailer = http.Header{"Checksum": {"0"}}
		})
		if body != "\x00\x00\x00\x00\x03abc" || res.Trailer.Get("Announced") != "a" || res.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("the answer is %q with trailers %v", body, res.Trailer)
		}
	})
}

func TestExpectContinue(t *testing.T) {
	protocols(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(body)
	}, func(t *testing.T, w *world, c *http.Client) {
		c.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute // it would be too long
		continued := false
		trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { continued = true }})
		r, err := http.NewRequestWithContext(trace, "POST", w.url("/"), strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Expect", "100-continue")
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || string(body) != "body" || !continued {
			t.Errorf("the answer is %q, %v; continued: %t", body, err, continued)
		}
		sent := &countingBody{ReadCloser: io.NopCloser(strings.NewReader("body"))}
		refused, _ := do(t, c, "POST", w.url("/refuse"), sent, func(r *http.Request) { r.Header.Set("Expect", "100-continue") })
		if refused.StatusCode != http.StatusExpectationFailed {
			t.Errorf("the answer is %d", refused.StatusCode)
		}
	})
}

func TestEarlyHints(t *testing.T) {
	protocols(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>")
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusOK)
	}, func(t *testing.T, w *world, c *http.Client) {
		var hints textproto.MIMEHeader
		trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			hints = h
			return nil
		}})
		r, err := http.NewRequestWithContext(trace, "GET", w.url("/"), nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if hints.Get("Link") != "</style.css>" {
			t.Errorf("the hints are %v", hints)
		}
	})
}

func echoSocket(t *testing.T) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		for {
			kind, b, err := c.Read(r.Context())
			if err != nil {
				return
			}
			if err := c.Write(r.Context(), kind, b); err != nil {
				return
			}
		}
	}
}

func TestWebSocket(t *testing.T) {
	for _, o := range [][]option{nil, {http1Server}, {withoutTLS}} {
		w := newWorld(t, echoSocket(t), o...)
		c, _, err := websocket.Dial(t.Context(), strings.Replace(w.url("/ws"), "http", "ws", 1), &websocket.DialOptions{HTTPClient: w.client(false)})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"a", strings.Repeat("b", 20000)} {
			if err := c.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
				t.Fatal(err)
			}
			if _, b, err := c.Read(t.Context()); err != nil || string(b) != text {
				t.Errorf("the echo has %d bytes, %v", len(b), err)
			}
		}
		if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		if x := w.log.next(t); x.Status != http.StatusSwitchingProtocols {
			t.Errorf("the record is %+v", x)
		}
	}
}

// TestCut ends flows in the middle of an answer, a WebSocket and nothing.
func TestCut(t *testing.T) {
	gone := make(chan struct{}, 2)
	w := newWorld(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/ws" {
			echoSocket(t)(w, r)
		} else {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
		gone <- struct{}{}
	}, http1Server)
	r, err := http.NewRequestWithContext(t.Context(), "GET", w.url("/"), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.client(false).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	ws, _, err := websocket.Dial(t.Context(), strings.Replace(w.url("/ws"), "http", "ws", 1), &websocket.DialOptions{HTTPClient: w.client(false)})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.CloseNow()
	idle := w.dial()
	w.cut()
	if _, err := io.ReadAll(res.Body); err == nil {
		t.Error("an answer that was cut ends as if it was whole")
	}
	if _, _, err := ws.Read(t.Context()); err == nil {
		t.Error("the WebSocket is not cut")
	}
	if _, err := idle.Read(make([]byte, 1)); err == nil {
		t.Error("an idle connection is not cut")
	}
	<-gone
	<-gone
}

// TestTruncatedAnswer has a server break off: the guest must see that.
func TestTruncatedAnswer(t *testing.T) {
	protocols(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", "100")
		}
		_, _ = io.WriteString(w, "some")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}, func(t *testing.T, w *world, c *http.Client) {
		for _, path := range []string{"/", "/length"} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", w.url(path), nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(res.Body); err == nil {
				t.Errorf("%s: the answer is %q and whole", path, b)
			}
			res.Body.Close()
		}
	})
}

func TestRules(t *testing.T) {
	rule := newRule(t, api.NetworkTreatment{Methods: []string{"GET", "POST"}, Paths: []string{"/v1/responses", "/v1/files/*"}})
	protocols(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) }, func(t *testing.T, w *world, c *http.Client) {
		for _, x := range []struct {
			method, path, header, value string
			want                        int
		}{
			{"POST", "/v1/responses", "", "", 204},
			{"GET", "/v1/files/a/b?x=/../", "", "", 204},
			{"DELETE", "/v1/responses", "", "", 403},
			{"PUT", "/v1/files/a", "", "", 403},
			{"GET", "/v1/other", "", "", 403},
			{"GET", "/", "", "", 403},
			{"GET", "/v1/files", "", "", 403},
			{"GET", "/v1/files/../admin", "", "", 403},
			{"GET", "/v1/files/%2e%2e/admin", "", "", 403},
			{"GET", "/v1/files/%2E%2E%2Fadmin", "", "", 403},
			{"GET", "/v1/files/..%2fadmin", "", "", 403},
			{"GET", "/v1/files/%252e%252e/admin", "", "", 403},
			{"GET", "/v1/files/..;/admin", "", "", 403},
			{"GET", "/v1/files//admin", "", "", 403},
			{"GET", "//v1/responses", "", "", 403},
			{"GET", "/v1/files/a%00", "", "", 403},
			{"GET", "/v1/files/a%5c..%5cb", "", "", 403},
			{"GET", "/V1/responses", "", "", 403},
			{"POST", "/v1/responses", "X-HTTP-Method-Override", "DELETE", 403},
			{"POST", "/v1/responses", "X-HTTP-Method-Override", "get", 204},
			{"POST", "/v1/responses", "X-Original-URL", "/admin", 403},
		} {
			res, body := do(t, c, x.method, w.url("/"), nil, func(r *http.Request) {
				r.URL.Opaque = "//" + r.URL.Host + x.path // as it is
				if r.URL.Scheme == "https" {
					r.URL.Opaque = "" // HTTP/1.1 would write it in absolute form
					path, query, _ := strings.Cut(x.path, "?")
					r.URL.RawPath, r.URL.RawQuery = path, query
					r.URL.Path = unescape(path)
				}
				if x.header != "" {
					r.Header.Set(x.header, x.value)
				}
			})
			if res.StatusCode != x.want {
				t.Errorf("%s %s %s: %d %s", x.method, x.path, x.value, res.StatusCode, body)
			}
			rec := w.log.next(t)
			if x.want == 403 && (!strings.Contains(body, "rules."+name) || res.Header.Get("Content-Type") != "application/problem+json" || rec.Verdict != Denied || rec.Reason == "") {
				t.Errorf("%s %s: %v %s, %+v", x.method, x.path, res.Header, body, rec)
			}
		}
	}, treated(rule))
}

// unescape makes a path whose raw form net/url takes.
func unescape(path string) string {
	var b []byte
	for i := 0; i < len(path); i++ {
		if path[i] == '%' {
			c, err := strconv.ParseUint(path[i+1:i+3], 16, 8)
			if err == nil {
				b = append(b, byte(c))
				i += 2
				continue
			}
		}
		b = append(b, path[i])
	}
	return string(b)
}

func TestServerThatIsNotTrusted(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("a request reached a server that is not trusted") },
		func(_ *httptest.Server, w *world) { w.roots = x509.NewCertPool() })
	res, body := do(t, w.client(false), "GET", w.url("/"), nil, nil)
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "not trusted") {
		t.Errorf("the answer is %d %s", res.StatusCode, body)
	}
	if x := w.log.next(t); x.Verdict != Failed {
		t.Errorf("the record is %+v", x)
	}
}

func TestServerOfAnotherName(t *testing.T) {
	const other = "api.example.org"
	w := newWorld(t, func(http.ResponseWriter, *http.Request) { t.Error("a request reached a server of another name") }, func(_ *httptest.Server, w *world) { w.flow.Name = other })
	c := w.client(false)
	c.Transport.(*http.Transport).TLSClientConfig.ServerName = other
	res, body := do(t, c, "GET", strings.Replace(w.url("/"), name, other, 1), nil, nil)
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "not for "+other) {
		t.Errorf("the answer is %d %s", res.StatusCode, body)
	}
}

func TestServerThatIsNotReached(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {}, func(_ *httptest.Server, w *world) {
		w.flow.Dial = func(context.Context) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
	})
	res, body := do(t, w.client(true), "GET", w.url("/"), nil, nil)
	if res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "connection refused") {
		t.Errorf("the answer is %d %s", res.StatusCode, body)
	}
}

// TestGuestThatDoesNotTrust is one that pins certificates, or was not given ours.
func TestGuestThatDoesNotTrust(t *testing.T) {
	w := newWorld(t, func(http.ResponseWriter, *http.Request) {})
	c, err := net.Dial("tcp", w.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := tls.Client(c, &tls.Config{ServerName: name}).Handshake(); err == nil {
		t.Fatal("a guest trusts an authority that it does not know")
	}
	c.Close()
	polltest.Eventually(t, 10*time.Second, "the handshake is told as failed", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.errs) == 1 && errors.Is(w.errs[0], ErrHandshake)
	})
}

func TestHosts(t *testing.T) {
	for _, c := range []struct {
		name, host string
		want       bool
	}{
		{name, name, true}, {name, name + ":80", true}, {name, strings.ToUpper(name) + ".:80", true}, {name, name + ":81", false}, {name, "x" + name, false},
		{name, name + ":", false}, {name, "", false}, {name, "[" + name, false}, {name, name + ":80:80", false},
		{"192.0.2.1", "192.0.2.1:80", true}, {"2001:db8::1", "[2001:db8::1]:80", true}, {"2001:db8::1", "[2001:db8::1]", true}, {"2001:db8::1", "[2001:db8::1]:81", false},
	} {
		f := &serving{Flow: Flow{Name: c.name, Port: 80}}
		if got := f.isFor(c.host); got != c.want {
			t.Errorf("%q is for %s: %t", c.host, c.name, got)
		}
	}
}

func TestUpgrades(t *testing.T) {
	treated, open := newRule(t, api.NetworkTreatment{Methods: []string{"GET"}}), Open("a rule")
	for to, want := range map[string][2]bool{
		"websocket": {true, true}, "WebSocket": {true, true}, "tcp": {false, true}, "h2c": {false, false}, "tcp, h2c": {false, false}, "HTTP/2.0": {false, false}, "TLS/1.0": {false, false},
	} {
		if got := [2]bool{treated.upgrades(to), open.upgrades(to)}; got != want {
			t.Errorf("to %s: %v", to, got)
		}
	}
}
