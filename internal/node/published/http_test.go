package published

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
)

const token = "a-token-of-30-characters.~+/=="

// web is a server that says which request it got.
func web(t *testing.T) net.Addr {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "echo" {
			c, in, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			_, _ = io.Copy(c, in)
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Clear-Site-Data", "*")
		fmt.Fprintf(w, "%s %s host=%s body=%s auth=%q cookie=%q referer=%q x=%q", r.Method, r.RequestURI, r.Host, body, r.Header.Get("Authorization"), r.Header.Get("Cookie"), r.Header.Get("Referer"), r.Header.Get("X-Ramet-Token"))
	})}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	t.Cleanup(func() {
		srv.Close()
		wg.Wait()
	})
	return l.Addr()
}

// request sends a request over a connection of its own, and follows no redirect.
func request(t *testing.T, method, target string, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader("text"))
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func TestToken(t *testing.T) {
	h := newHost(t, web(t))
	p := h.publish("a", api.PublishRequest{Port: 80, Token: token})
	if !p.Protected {
		t.Errorf("published is %+v", p)
	}
	for _, reopened := range []bool{false, true} {
		if reopened {
			h.Close()
			h.open()
		}
		u := "http://" + p.At() + "/a%2Fb?x=1"
		inURL := u + "&token=" + url.QueryEscape(token)
		bare := func(more string) string {
			return "POST /a%2Fb?x=1 host=" + p.At() + " body=text " + more
		}
		for name, c := range map[string]struct {
			url    string
			header http.Header
			status int
			body   string // as far as it is compared
		}{
			"nothing":        {u, nil, 401, "this port needs its token"},
			"another":        {u, http.Header{"Authorization": {"Bearer " + token + "x"}}, 401, ""},
			"another scheme": {u, http.Header{"Authorization": {"Basic " + token}}, 401, ""},
			"header":         {u, http.Header{"Authorization": {"Bearer " + token}}, 200, bare(`auth="" cookie="" referer="" x=""`)},
			"own header":     {u, http.Header{"X-Ramet-Token": {token}, "Authorization": {"Bearer app"}}, 200, bare(`auth="Bearer app" cookie="" referer="" x=""`)},
			"query":          {inURL, nil, 200, bare(`auth=""`)},
			"query of an application": {u + "&token=app", http.Header{"Authorization": {"Bearer " + token}, "Referer": {inURL}, "Cookie": {"a=b; ramet_port_7=secret"}}, 200,
				"POST /a%2Fb?x=1&token=app host=" + p.At() + ` body=text auth="" cookie="a=b" referer="` + u + `" x=""`},
			"a cookie that was made up": {u, http.Header{"Cookie": {"ramet_port_" + strconv.Itoa(p.HostPort) + "=" + token}}, 401, ""},
		} {
			resp, body := request(t, http.MethodPost, c.url, c.header)
			if resp.StatusCode != c.status || !strings.HasPrefix(body, c.body) {
				t.Errorf("%s (reopened: %t): %d %s\nwant %d %s", name, reopened, resp.StatusCode, body, c.status, c.body)
			}
			if c.status == 401 && resp.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: no WWW-Authenticate", name)
			}
			if resp.Header.Get("Clear-Site-Data") != "" {
				t.Errorf("%s: a header that affects all ports of the host has passed", name)
			}
		}
		browser(t, u, inURL)
		// Four of those requests lacked the token. The first is told at once, and the others wait.
		l, all := h.list("a")[0], h.Usage()
		if l.Refused != 4 || all.Refused != 4 || all.Ports != 1 {
			t.Errorf("refused were %d, of all %+v", l.Refused, all)
		}
		h.mu.Lock()
		if e := h.events[len(h.events)-1]; e != "port_refused a 80 "+p.At()+" 1" {
			t.Errorf("the last event is %q", e)
		}
		starts := 1
		if reopened {
			starts = 2
		}
		if len(h.audit) != starts || h.audit[0].Action != "refuse-port" || h.audit[0].Object != "a" || h.audit[0].Details.Refused != 1 {
			t.Errorf("the audit has %+v", h.audit)
		}
		h.mu.Unlock()
	}
}

// browser opens a URL with a token, and follows with the cookie.
func browser(t *testing.T, u, inURL string) {
	t.Helper()
	resp, _ := request(t, http.MethodGet, inURL, http.Header{"Accept": {"text/html,*/*"}})
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/a%2Fb?x=1" || len(resp.Cookies()) != 1 {
		t.Fatalf("a browser gets %d, %v", resp.StatusCode, resp.Header)
	}
	c := resp.Cookies()[0]
	if strings.Contains(c.Value, token) || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode {
		t.Errorf("the cookie is %v", c)
	}
	cookie := c.Name + "=" + c.Value
	for name, want := range map[string]struct {
		site   string
		status int
	}{"own page": {"same-origin", 200}, "a page of another port": {"same-site", 403}, "a page of another host": {"cross-site", 403}} {
		resp, body := request(t, http.MethodPost, u, http.Header{"Cookie": {cookie}, "Sec-Fetch-Site": {want.site}})
		if resp.StatusCode != want.status || strings.Contains(body, c.Value) {
			t.Errorf("%s: %d %s", name, resp.StatusCode, body)
		}
	}
}

// TestTokenAndOtherProtocols sends what is not HTTP, and a connection that becomes another
// protocol's.
func TestTokenAndOtherProtocols(t *testing.T) {
	h := newHost(t, web(t))
	p := h.publish("a", api.PublishRequest{Port: 80, Token: token})
	if got, err := exchange(p.At(), "SSH-2.0-x\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 400 ") || err != nil {
		t.Errorf("what is no HTTP is answered with %q, %v", got, err)
	}
	if n := h.dials.Load(); n != 0 {
		t.Errorf("%d connections to the sandbox", n)
	}
	c := dial(t, p.At())
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAuthorization: Bearer %s\r\n\r\n", token); err != nil {
		t.Fatal(err)
	}
	head := make([]byte, len("HTTP/1.1 101 "))
	if _, err := io.ReadFull(c, head); string(head) != "HTTP/1.1 101 " || err != nil {
		t.Fatalf("upgrade: %q, %v", head, err)
	}
	if _, err := io.WriteString(c, "over there"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(c); !bytes.HasSuffix(b, []byte("\r\n\r\nover there")) || err != nil {
		t.Errorf("after the upgrade: %q, %v", b, err)
	}
	// One that is open when the port ends is closed.
	c = dial(t, p.At())
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: echo\r\nAuthorization: Bearer %s\r\n\r\n", token); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, head); err != nil {
		t.Fatal(err)
	}
	if err := h.UnpublishPort(owner, "a", p.HostPort); err != nil {
		t.Fatal(err)
	}
	var failed net.Error
	if _, err := io.Copy(io.Discard, c); errors.As(err, &failed) && failed.Timeout() {
		t.Error("an upgraded connection stays")
	}
	p = h.publish("a", api.PublishRequest{Port: 1, Token: token})
	if resp, body := request(t, http.MethodGet, "http://"+p.At(), http.Header{"Authorization": {"Bearer " + token}}); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("nobody listens: %d %s", resp.StatusCode, body)
	}
}
