package treatment

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/network/gateway"
	"ramet.dev/ramet/internal/network/policy"
	"ramet.dev/ramet/internal/network/secrets"
)

// secretRule puts the secret into requests to the name.
const secretRule = `{"rules": {"` + name + `": {"secret": {"header": "Authorization", "value": "Bearer ${KEY}"}, "methods": ["GET", "POST"], "paths": ["/v1/*"]}}}`

func TestRequestsToATreatedName(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		w, s := newWorld(t, nil), &seen{}
		w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			s.add(fmt.Sprintf("%d %s %s %s %s", r.ProtoMajor, r.Method, r.RequestURI, r.Header.Get("Authorization"), body))
			_, _ = io.WriteString(rw, "you are "+r.Header.Get("Authorization"))
		})
		g := w.newGuest("one", secretRule)
		c := g.client(http2)
		got := do(c, "POST", "https://"+name+"/v1/x?q=1", "body", func(r *http.Request) { r.Header.Set("Authorization", placeholder) })
		if got.err != nil || got.status != 200 || got.body != "you are "+strings.Repeat("*", len(value)) {
			t.Errorf("the guest got %+v", got)
		}
		if all := s.take(); len(all) != 1 || !strings.HasSuffix(all[0], "POST /v1/x?q=1 "+value+" body") {
			t.Errorf("the server saw %q", all)
		}
		for what, r := range map[string][2]string{"method": {"DELETE", "/v1/x"}, "path": {"GET", "/v2"}} {
			if got := do(c, r[0], "https://"+name+r[1], "", nil); got.status != http.StatusForbidden || !strings.Contains(got.body, "ramet-gateway") {
				t.Errorf("another %s: %+v", what, got)
			}
		}
		if all := s.take(); all != nil {
			t.Errorf("the server saw %q", all)
		}
		w.logged("the request", func(e api.NetworkLogEntry) bool {
			return e.Verdict == api.NetworkAllowed && e.Sandbox == "one" && e.Name == name && e.Address == addr && e.Port == 443 && e.Method == "POST" && e.Path == "/v1/x" &&
				e.Status == 200 && slices.Equal(e.Secrets, []string{"KEY"}) && e.BytesOut == 4 && e.BytesIn > 0 && e.DurationMS > 0 && e.Rule == "rules."+name
		})
		w.logged("the denial", func(e api.NetworkLogEntry) bool {
			return e.Verdict == api.NetworkDenied && e.Method == "DELETE" && e.Status == 403 && strings.Contains(e.Rule, "DELETE")
		})
		if text := fmt.Sprintf("%+v", w.requests()); strings.Contains(text, value) || strings.Contains(text, "q=1") {
			t.Errorf("the log is %s", text)
		}
		if n := w.g.Stats().Requests; n != 3 {
			t.Errorf("%d requests were counted", n)
		}
	}
}

// TestWebSockets pass through a treated name, with the secret.
func TestWebSockets(t *testing.T) {
	w := newWorld(t, nil)
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+value || r.Header.Get("Upgrade") != "websocket" {
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		c, b, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_, _ = io.Copy(c, b)
	})
	g := w.newGuest("one", secretRule)
	c := w.handshake(g, name)
	if _, err := io.WriteString(c, "GET /v1/ws HTTP/1.1\r\nHost: "+name+"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	b := bufio.NewReader(c)
	res, err := http.ReadResponse(b, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", res, err)
	}
	for i := range 10 {
		words := strings.Repeat("frame", i+1)
		if _, err := io.WriteString(c, words); err != nil {
			t.Fatal(err)
		}
		back := make([]byte, len(words))
		if _, err := io.ReadFull(b, back); err != nil || string(back) != words {
			t.Fatalf("%q came back for %q: %v", back, words, err)
		}
	}
}

// handshake opens a connection of TLS to port 443.
func (w *world) handshake(g *guest, name string) net.Conn {
	w.t.Helper()
	c, err := g.dial(w.t.Context(), addr+":443")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	tr, is := g.client(false).Transport.(*http.Transport)
	if !is {
		w.t.Fatal("the client has another transport")
	}
	cfg := tr.TLSClientConfig.Clone()
	cfg.ServerName = name
	s := tls.Client(c, cfg)
	if err := s.Handshake(); err != nil {
		w.t.Fatal(err)
	}
	return s
}

// TestAnotherSecret is put into the next request on a connection that is open; without one no request
// passes, and what is no secret of ours is refused.
func TestAnotherSecret(t *testing.T) {
	w, s := newWorld(t, nil), &seen{}
	w.serve("443", func(_ http.ResponseWriter, r *http.Request) {
		s.add(r.RemoteAddr + " " + r.Header.Get("Authorization"))
	})
	g := w.newGuest("one", secretRule)
	c := g.client(true)
	ask := func() int { return do(c, "GET", "https://"+name+"/v1/x", "", nil).status }
	replace := func(edit func(*gateway.Registration)) error {
		r := w.registration("one", secretRule)
		edit(&r)
		return w.g.Replace(r)
	}
	if ask() != 200 {
		t.Error("the first request failed")
	}
	if err := replace(func(r *gateway.Registration) { r.Secrets[0].Value = secrets.NewValue("another-secret") }); err != nil || ask() != 200 {
		t.Errorf("another secret: %v", err)
	}
	if all := s.take(); len(all) != 2 || !strings.HasSuffix(all[0], " Bearer "+value) || strings.Replace(all[0], value, "another-secret", 1) != all[1] {
		t.Errorf("the server saw %q", all)
	}
	if err := replace(func(r *gateway.Registration) { r.Secrets[0].Placeholder = "x" }); api.CodeOf(err) != api.CodeInvalid || strings.Contains(err.Error(), value) || ask() != 200 {
		t.Errorf("a secret that cannot be put in: %v", err)
	}
	if err := replace(func(r *gateway.Registration) { r.Authority = secrets.NewValue("x") }); api.CodeOf(err) != api.CodeInvalid || ask() != 200 {
		t.Errorf("an authority that is none: %v", err)
	}
	if err := replace(func(r *gateway.Registration) { r.Secrets = nil }); err != nil || ask() != http.StatusForbidden {
		t.Errorf("without the secret: %v", err)
	}
	s.take()
	// Without an authority there is no handshake, and so no request.
	if err := replace(func(r *gateway.Registration) { r.Authority = secrets.Value{} }); err != nil {
		t.Error(err)
	}
	if got := do(g.client(false), "GET", "https://"+name+"/v1/x", "", nil); got.err == nil {
		t.Errorf("without an authority: %+v", got)
	}
	w.logged("why", func(e api.NetworkLogEntry) bool { return strings.Contains(e.Rule, "no authority") })
	// A treatment that is another one cuts its flows.
	if err := w.g.Replace(w.registration("one", strings.Replace(secretRule, "/v1/", "/v2/", 1))); err != nil {
		t.Error(err)
	}
	if got := ask(); got == 200 || len(s.take()) > 0 {
		t.Errorf("a path that is not allowed any more: %d", got)
	}
}

// TestPlainHTTPNamesItsHost on every request of a connection, without a treatment of the name.
func TestPlainHTTPNamesItsHost(t *testing.T) {
	for what, doc := range map[string]string{
		"a name":                    `{"allow": ["` + name + `"]}`,
		"a name at another port":    `{"allow": ["` + name + `:80"]}`,
		"another name is denied":    `{"default": "allow", "deny": ["` + sister + `"]}`,
		"the address, and a denial": `{"allow": ["` + addr + `:80"], "deny": ["` + sister + `"]}`,
	} {
		w, s := newWorld(t, nil), &seen{}
		w.serve("80", func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, fmt.Sprintf("answer %d", s.add(r.Host+" "+r.RequestURI)))
		})
		g := w.newGuest("one", doc)
		c, err := g.dial(t.Context(), addr+":80")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := bufio.NewReader(c)
		for i, r := range []struct {
			host string
			want int
		}{{name, 200}, {strings.ToUpper(name) + ":80", 200}, {name + ".", 200}, {sister, http.StatusMisdirectedRequest}} {
			if _, err := fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: %s\r\n\r\n", i, r.host); err != nil {
				t.Fatal(err)
			}
			res, err := http.ReadResponse(b, nil)
			if err != nil {
				t.Fatalf("%s: request %d: %v", what, i, err)
			}
			if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != r.want {
				t.Errorf("%s: request %d for %s: %d, %v", what, i, r.host, res.StatusCode, err)
			}
		}
		c.Close()
		if all := s.take(); len(all) != 3 || !strings.HasPrefix(all[2], name) {
			t.Errorf("%s: the server saw %q", what, all)
		}
		w.logged("the request for another host", func(e api.NetworkLogEntry) bool {
			return e.Verdict == api.NetworkDenied && e.Status == http.StatusMisdirectedRequest && e.Path == "/3"
		})
		if n := len(w.requests()); n != 1 {
			t.Errorf("%s: %d requests were logged", what, n)
		}
	}
}

// TestBranchesOfAForkSeeOneWorld has two sandboxes that ask the same, one of another group and one with
// another secret.
func TestBranchesOfAForkSeeOneWorld(t *testing.T) {
	w, s := newWorld(t, nil), &seen{}
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, fmt.Sprintf("answer %d", s.add(r.URL.Path)))
	})
	const doc = `{"rules": {"` + name + `": {"record": true}}}`
	const secret = `{"rules": {"` + name + `": {"record": true, "secret": {"header": "Authorization", "value": "${KEY}"}}}}`
	one, two := w.newGuest("one", doc), w.newGuest("two", doc)
	other := w.registration("three", doc)
	other.RecordGroup = "another fork"
	stranger := w.registration("four", doc)
	stranger.Tenant = "another"
	for i, c := range []struct {
		g    *guest
		path string
		want string
	}{
		{one, "/x", "answer 1"}, {two, "/x", "answer 1"}, {two, "/x", "answer 2"}, {one, "/x", "answer 2"}, {w.register(other), "/x", "answer 3"},
		{w.register(stranger), "/x", "answer 4"}, {w.newGuest("five", secret), "/x", "answer 5"}, {two, "/y", "answer 6"}, {one, "/y", "answer 6"},
	} {
		if got := do(c.g.client(true), "GET", "https://"+name+c.path, "", nil); got.err != nil || got.body != c.want {
			t.Errorf("question %d is answered %q, %v, not %q", i, got.body, got.err, c.want)
		}
	}
}

// tunnels is a proxy of the host's for CONNECT.
func tunnels(t *testing.T, to func() string) (address string, asked *seen) {
	t.Helper()
	asked = &seen{}
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		asked.add(r.Method + " " + r.Host)
		back, err := net.Dial("tcp", to())
		if err != nil {
			t.Error(err)
			return
		}
		defer back.Close()
		front, b, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer front.Close()
		_, _ = io.WriteString(front, "HTTP/1.1 200 OK\r\n\r\n")
		done := make(chan bool)
		go func() {
			defer close(done)
			_, _ = io.Copy(back, b)
			back.Close()
		}()
		_, _ = io.Copy(front, back)
		front.Close()
		<-done
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String(), asked
}

// TestHostileGuests do to treated flows what no program would.
func TestHostileGuests(t *testing.T) {
	w, s := newWorld(t, nil), &seen{}
	big := make([]byte, 8<<20)
	w.serve("443", func(rw http.ResponseWriter, r *http.Request) { s.add(r.Host); _, _ = rw.Write(big) })
	g := w.newGuest("one", `{"allow": ["`+name+`"], "rules": {"`+name+`": {"methods": ["GET"]}}}`)
	for what, text := range map[string]string{
		"no TLS":         "SSH-2.0-client\r\n",
		"random":         strings.Repeat("\x16\x03\x01\xff\xff\xff", 3000),
		"plain HTTP":     "GET / HTTP/1.1\r\nHost: " + name + "\r\nConnection: close\r\n\r\n",
		"another method": "POST / HTTP/1.1\r\nHost: " + name + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
	} {
		c, err := g.dial(t.Context(), addr+":443")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, text)
		b, err := io.ReadAll(io.LimitReader(c, 1<<16))
		if err, is := err.(net.Error); is && err.Timeout() {
			t.Errorf("%s: nothing ends it", what)
		}
		if strings.Contains(string(b), "200 OK") {
			t.Errorf("%s is answered %q", what, b)
		}
		c.Close()
	}
	if all := s.take(); all != nil {
		t.Errorf("the server saw %q", all)
	}
	// A handshake for a name that is not the one which was judged.
	c, err := g.dial(t.Context(), addr+":443")
	if err != nil {
		t.Fatal(err)
	}
	if err := tls.Client(c, &tls.Config{ServerName: sister, InsecureSkipVerify: true}).HandshakeContext(t.Context()); err == nil {
		t.Error("a handshake for another name")
	}
	c.Close()
	// Many handshakes that do not go on, and answers that nobody reads: others are served meanwhile.
	for range 20 {
		c, err := g.dial(t.Context(), addr+":443")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(hello(t, name)); err != nil {
			t.Fatal(err)
		}
		silent := w.handshake(g, name)
		if _, err := io.WriteString(silent, "GET /unread HTTP/1.1\r\nHost: "+name+"\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	if got := do(g.client(true), "GET", "https://"+name+"/", "", nil); got.status != 200 || len(got.body) != len(big) {
		t.Errorf("another program got %d bytes, %v", len(got.body), got.err)
	}
	// The end of the sandbox ends all of it.
	if err := w.g.Remove(g.id); err != nil || w.g.Stats().Sandboxes != 0 {
		t.Errorf("remove: %v", err)
	}
	w.logged("the flow without a handshake", func(e api.NetworkLogEntry) bool { return e.Verdict == api.NetworkDenied })
}

// hello returns the first message of a handshake for a name.
func hello(t *testing.T, name string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: name}).Handshake() // which fails
		client.Close()
	}()
	b := make([]byte, 16<<10)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// TestThroughTheProxyOfTheHost reaches names that are treated and others, by the names that guests show.
func TestThroughTheProxyOfTheHost(t *testing.T) {
	s := &seen{}
	var server *httptest.Server
	address, asked := tunnels(t, func() string { return server.Listener.Addr().String() })
	for _, inTLS := range []bool{false, true} {
		w := newWorld(t, func(w *world) { w.via = w.tunnel(address, inTLS) })
		server = w.serve("443", func(rw http.ResponseWriter, r *http.Request) { s.add(r.Host); _, _ = io.WriteString(rw, "hello") })
		w.put(addr+":443", "127.0.0.1:1") // where nobody listens
		g := w.newGuest("one", `{"allow": ["`+sister+`"], "rules": {"`+name+`": {"methods": ["GET"]}}}`)
		if got := do(g.client(true), "GET", "https://"+name+"/", "", nil); got.body != "hello" {
			t.Errorf("a treated name: %+v", got)
		}
		plain := g.client(true)
		tr, is := plain.Transport.(*http.Transport)
		if !is {
			t.Fatal("the client has another transport")
		}
		tr.TLSClientConfig.RootCAs = w.roots
		if got := do(plain, "GET", "https://"+sister+"/", "", nil); got.body != "hello" {
			t.Errorf("another name: %+v", got)
		}
		tr.CloseIdleConnections()
		if got := asked.take(); !slices.Equal(got, []string{"CONNECT " + name + ":443", "CONNECT " + sister + ":443"}) {
			t.Errorf("the proxy was asked %q", got)
		}
		s.take()
		// The address of one name and the server name of another that is not allowed.
		c, err := g.dial(t.Context(), addr+":443")
		if err != nil {
			t.Fatal(err)
		}
		if err := tls.Client(c, &tls.Config{ServerName: "other.example.com", InsecureSkipVerify: true}).HandshakeContext(t.Context()); err == nil {
			t.Error("a name that is not allowed was reached")
		}
		c.Close()
		if got := asked.take(); got != nil {
			t.Errorf("the proxy was asked %q", got)
		}
	}
}

// tunnel returns a Via that connects through a proxy. With inTLS the connection is none that can be
// spliced.
func (w *world) tunnel(address string, inTLS bool) func(string, uint16) func(context.Context) (net.Conn, error) {
	return func(name string, port uint16) func(context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			if err != nil {
				return nil, err
			}
			if _, err := fmt.Fprintf(c, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n", name, port, name, port); err != nil {
				return nil, err
			}
			const answer = "HTTP/1.1 200 OK\r\n\r\n"
			if _, err := io.ReadFull(c, make([]byte, len(answer))); err != nil {
				return nil, err
			}
			if inTLS {
				return struct{ net.Conn }{c}, nil
			}
			return c, nil
		}
	}
}

// TestNothingIsTreated costs nothing: no authority is read, and no server begins.
func TestNothingIsTreated(t *testing.T) {
	w := newWorld(t, nil)
	r := w.registration("one", `{"allow": ["`+name+`"]}`)
	r.Authority = secrets.NewValue("not even one")
	w.register(r)
	if len(w.p.authorities)+len(w.p.groups) > 0 || w.p.http != nil {
		t.Error("something is there that nobody needs")
	}
	compiled, err := policy.Compile(r.Policy, w.p.cfg.Own)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		st, err := w.p.newState(&r, compiled)
		if err != nil {
			t.Fatal(err)
		}
		w.p.drop(st)
	}); n > 1 {
		t.Errorf("a registration makes %v objects", n)
	}
}

// TestNamesThatOnlyTheProxyKnows have an address that stands for them.
func TestNamesThatOnlyTheProxyKnows(t *testing.T) {
	const hidden = "hidden.example.com"
	var server *httptest.Server
	address, asked := tunnels(t, func() string { return server.Listener.Addr().String() })
	w := newWorld(t, func(w *world) {
		tunnel := w.tunnel(address, false)
		w.via = func(name string, port uint16) func(context.Context) (net.Conn, error) {
			if port != 443 || name == "direct.example.com" {
				return nil
			}
			return tunnel(name, port)
		}
	})
	server = w.serve("443", func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, "hello") })
	g := w.newGuest("one", `{"allow": ["`+hidden+`", "direct.example.com"]}`)
	if got := g.lookUp("direct.example.com"); got != "" {
		t.Errorf("a name that the proxy is not for has the address %s", got)
	}
	if got := g.lookUp("other." + hidden); got != "" {
		t.Errorf("a name that is not allowed has the address %s", got)
	}
	at := g.lookUp(hidden)
	if !strings.HasPrefix(at, "198.19.") {
		t.Fatalf("it has the address %q", at)
	}
	shake := func(address, server string) error {
		c, err := g.dial(t.Context(), address)
		if err != nil {
			return err
		}
		defer c.Close()
		return tls.Client(c, &tls.Config{RootCAs: w.roots, ServerName: server}).HandshakeContext(t.Context())
	}
	if err := shake(at+":443", hidden); err != nil || !slices.Equal(asked.take(), []string{"CONNECT " + hidden + ":443"}) {
		t.Errorf("it is not reached: %v", err)
	}
	for what, c := range map[string][2]string{
		"another name": {at + ":443", name}, "no name": {at + ":443", ""}, "another port": {at + ":80", hidden}, "an address of nobody": {"198.19.255.254:443", hidden},
	} {
		if c[1] == "" {
			conn, err := g.dial(t.Context(), c[0])
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(conn, "SSH-2.0-client\r\n")
			if b, _ := io.ReadAll(conn); len(b) > 0 {
				t.Errorf("%s: %q came back", what, b)
			}
			conn.Close()
		} else if err := shake(c[0], c[1]); err == nil {
			t.Errorf("%s is reached", what)
		}
	}
	if got := asked.take(); got != nil {
		t.Errorf("the proxy was asked %q", got)
	}
}

// TestRealms differ where headers that are put in do, whatever order secrets are in.
func TestRealms(t *testing.T) {
	of := func(headers ...api.NetworkSecret) *policy.Treatment {
		return &policy.Treatment{NetworkTreatment: api.NetworkTreatment{Headers: headers}}
	}
	a, b := api.NetworkSecret{Header: "Authorization", Value: "${A}"}, api.NetworkSecret{Header: "X-Key", Value: "${A}"}
	c := api.NetworkSecret{Header: "X-Key", Value: "${B}"}
	if realm(of(a, b)) == realm(of(a, c)) || realm(of(a)) == realm(of(a, b)) || realm(of()) != "" {
		t.Errorf("realms are %q, %q and %q", realm(of(a, b)), realm(of(a, c)), realm(of(a)))
	}
	if got := inserted(of(a, b)); len(got) != 2 || got[0] != "Authorization" || got[1] != "X-Key" {
		t.Errorf("inserted: %v", got)
	}
}
