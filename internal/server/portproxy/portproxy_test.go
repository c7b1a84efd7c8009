package portproxy

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

const (
	sbxA = "sbx_aaaaaaaaaaaaaaaa"
	sbxB = "sbx_bbbbbbbbbbbbbbbb"
)

func TestHosts(t *testing.T) {
	root := &url.URL{Path: "/"}
	for _, c := range []struct {
		domain string
		secure bool
		url    string // "" if the domain is refused
	}{
		{"localhost", false, "http://80-sbx-aaaaaaaaaaaaaaaa.localhost:7300/?ramet_code=c"},
		{"localhost", true, "https://80-sbx-aaaaaaaaaaaaaaaa.localhost:7300/?ramet_code=c"},
		{"Ports.Example.com", true, "https://80-sbx-aaaaaaaaaaaaaaaa.ports.example.com:7300/?ramet_code=c"},
		{"ports.example.com", false, "https://80-sbx-aaaaaaaaaaaaaaaa.ports.example.com/?ramet_code=c"},
		{"ports.example.com:8443", false, "https://80-sbx-aaaaaaaaaaaaaaaa.ports.example.com:8443/?ramet_code=c"},
		{"ports.example.com:443", true, "https://80-sbx-aaaaaaaaaaaaaaaa.ports.example.com/?ramet_code=c"},
		{domain: ""}, {domain: ".example.com"}, {domain: "example..com"}, {domain: "a/b"}, {domain: "https://a.b"}, {domain: "127.0.0.1"}, {domain: "a.b:0"}, {domain: "a.b:x"},
		{domain: "a b"}, {domain: "-a.b"}, {domain: strings.Repeat("a", 201)},
	} {
		h, err := ParseHosts(c.domain, c.secure, "7300")
		if c.url == "" {
			if api.CodeOf(err) != api.CodeInvalid {
				t.Errorf("%q is taken: %v", c.domain, err)
			}
			continue
		}
		if got := h.URL(sbxA, 80, root, "c"); err != nil || got != c.url {
			t.Errorf("%q leads to %s, %v", c.domain, got, err)
		}
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := h.Parse(u.Host); err != nil || *got != (Target{sbxA, 80}) {
			t.Errorf("%q is %v, %v", u.Host, got, err)
		}
		if k := h.Cookie("s", 1); k.Secure != strings.HasPrefix(c.url, "https") || k.Secure != strings.HasPrefix(k.Name, "__Host-") || !k.HttpOnly || k.SameSite != http.SameSiteLaxMode || k.Domain != "" || k.Path != "/" {
			t.Errorf("%q has the cookie %s", c.domain, k)
		}
	}
	if h := (Hosts{}); h.ForBrowsers() || h.Domain() != "localhost" {
		t.Errorf("no hosts are %+v", h)
	}
	if h, _ := ParseHosts("ports.example.com", true, "1"); h.ForBrowsers() {
		for _, host := range []string{"80-a.localhost", "ports.example.com", "evil-ports.example.com", "80-a.ports.example.com.evil.com", "80-aports.example.com", "api.ports.example.com", ""} {
			if got, err := h.Parse(host); got != nil || err != nil {
				t.Errorf("%q is %v, %v", host, got, err)
			}
		}
	}
}

func TestPaths(t *testing.T) {
	for path, ok := range map[string]bool{"/": true, "/lab?x=1#y": true, "/%2f": true, "": false, "x": false, "//evil.com/": false, "http://evil.com/": false, "javascript:1": false, "/\x00": false} {
		if _, err := ParsePath(path); (err == nil) != ok {
			t.Errorf("%q: %v", path, err)
		}
	}
}

// TestSessions has codes and cookies used where and when they are not good.
func TestSessions(t *testing.T) {
	s := NewSessions()
	now := time.Unix(1e9, 0)
	s.now = func() time.Time { return now }
	gone := make(chan struct{})
	here := Target{sbxA, 80}
	of := Session{Sandbox: sbxA, Port: 80, Caller: access.Caller{Tenant: "a"}, Until: now.Add(time.Hour), Gone: gone}
	begin := func() string {
		t.Helper()
		code, _ := s.Issue(of)
		secret, until, err := s.Redeem(code, here)
		if err != nil || !of.Until.IsZero() && until.After(of.Until) {
			t.Fatal(until, err)
		}
		return secret
	}
	in := func(secret string, at Target) bool { return s.Find([]string{"x", secret}, at) != nil }
	refused := func(what, code string, at Target) {
		t.Helper()
		if _, _, err := s.Redeem(code, at); api.CodeOf(err) != api.CodeUnknownUser {
			t.Errorf("%s: %v", what, err)
		}
	}
	code, until := s.Issue(of)
	if !until.Equal(now.Add(codeLife)) {
		t.Errorf("a code lives until %v", until)
	}
	for _, at := range []Target{{sbxB, 80}, {sbxA, 81}, {"name", 80}} {
		refused("elsewhere", code, at)
	}
	if in(code, here) {
		t.Error("a code is no cookie")
	}
	secret, _, err := s.Redeem(code, here)
	if err != nil || !in(secret, here) || in(secret, Target{sbxB, 80}) || in(secret, Target{sbxA, 81}) {
		t.Errorf("the cookie is not good for exactly its port: %v", err)
	}
	refused("again", code, here)
	refused("a cookie is no code", secret, here)
	if got := s.Find([]string{secret}, here); got.Caller != of.Caller || !got.Until.Equal(of.Until) {
		t.Errorf("%+v", got)
	}

	late, _ := s.Issue(of)
	now = now.Add(codeLife)
	refused("late", late, here)
	if !in(secret, here) {
		t.Error("the session ended with the time of its code")
	}
	now = of.Until
	if in(secret, here) {
		t.Error("it goes on after the token")
	}
	of.Until = time.Time{}
	secret = begin()
	now = now.Add(sessionLife - 1)
	if !in(secret, here) {
		t.Error("it ended too early")
	}
	if now = now.Add(1); in(secret, here) {
		t.Error("it goes on for ever")
	}
	secret = begin()
	code, _ = s.Issue(of)
	close(gone)
	if in(secret, here) {
		t.Error("it goes on without its token")
	}
	refused("without its token", code, here)
}

// TestSessionsAreBounded: a tenant's last ones are kept, whatever others do.
func TestSessionsAreBounded(t *testing.T) {
	s := NewSessions()
	other, _ := s.Issue(Session{Sandbox: sbxB, Port: 1, Caller: access.Caller{Tenant: "b"}})
	var codes []string
	for range maxPasses + 1 {
		code, _ := s.Issue(Session{Sandbox: sbxA, Port: 1, Caller: access.Caller{Tenant: "a"}})
		codes = append(codes, code)
	}
	if len(s.passes) != maxPasses+1 {
		t.Errorf("%d are kept", len(s.passes))
	}
	for i, code := range []string{codes[1], codes[maxPasses], other, codes[0]} {
		at := Target{sbxA, 1}
		if code == other {
			at.Ref = sbxB
		}
		if _, _, err := s.Redeem(code, at); (err == nil) != (i < 3) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestCleanResponse(t *testing.T) {
	answer := func() http.Header {
		h := http.Header{"Content-Type": {"text/html"}, "X-Theirs": {"1"}, "Service-Worker-Allowed": {"/"}, "Content-Security-Policy": {"default-src 'self'"}}
		for _, name := range wide {
			if name != http.CanonicalHeaderKey(name) {
				t.Errorf("%s would not be found", name)
			}
			h.Set(name, "x")
		}
		for _, name := range []string{"Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc", "NEL", "Report-To", "Reporting-Endpoints", "Origin-Agent-Cluster", "Public-Key-Pins"} {
			if h.Get(name) == "" {
				t.Errorf("%s passes", name)
			}
		}
		for _, c := range []string{
			"root=1; Path=/", "wide=1; Domain=localhost; Path=/; HttpOnly", "app=1; Path=/app/", "none=1", "up=1; Path=/a/../..", "odd=1; Path=x", "__Host-x=1; Secure; Path=/",
			"ramet-port=evil; Path=/", "__Host-ramet-port=evil; Secure; Path=/", "bad name=1",
		} {
			h.Add("Set-Cookie", c)
		}
		return h
	}
	h := answer()
	CleanResponse(h, "/p", "", "localhost:80")
	if got := h["Set-Cookie"]; !slices.Equal(got, []string{"root=1; Path=/p/", "wide=1; Path=/p/; HttpOnly", "app=1; Path=/p/app/", "none=1; Path=/p/", "up=1; Path=/p", "odd=1; Path=/p/"}) {
		t.Errorf("below a prefix, cookies are %q", got)
	}
	for _, name := range append(wide, "Service-Worker-Allowed") {
		if h.Get(name) != "" {
			t.Errorf("below a prefix, %s passes", name)
		}
	}
	if got := h["Content-Security-Policy"]; !slices.Contains(got, "sandbox") || len(got) != 2 || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Theirs") != "1" {
		t.Errorf("below a prefix, the answer is %v", h)
	}

	h = answer()
	h.Set("Location", "http://localhost:80/login?x")
	CleanResponse(h, "", "80-a.localhost:7300", "localhost:80")
	if got := h["Set-Cookie"]; !slices.Equal(got, []string{"root=1; Path=/", "wide=1; Path=/; HttpOnly", "app=1; Path=/app/", "none=1", "up=1; Path=/a/../..", "odd=1; Path=x", "__Host-x=1; Path=/; Secure"}) {
		t.Errorf("at a host, cookies are %q", got)
	}
	for _, name := range wide {
		if v := h.Get(name); v != "" && (name != "Origin-Agent-Cluster" || v != "?1") {
			t.Errorf("at a host, %s passes", name)
		}
	}
	if h.Get("Service-Worker-Allowed") != "/" || h.Get("Location") != "//80-a.localhost:7300/login?x" || len(h["Content-Security-Policy"]) != 1 {
		t.Errorf("at a host, the answer is %v", h)
	}
}

// TestOwnPagesAreOwn: requests of the server's pages look like ones from itself, and those
// of other pages do not.
func TestOwnPagesAreOwn(t *testing.T) {
	for origin, want := range map[string]string{"http://80-a.localhost:7300": "http://localhost:80", "http://81-a.localhost:7300": "http://81-a.localhost:7300", "null": "null"} {
		h := http.Header{"Origin": {origin}, "Referer": {origin + "/x?ramet_code=c&a=1"}}
		CleanRequest(h, "80-a.localhost:7300", "localhost:80")
		if h.Get("Origin") != want || h.Get("Referer") != want+"/x?a=1" {
			t.Errorf("%s became %v", origin, h)
		}
	}
}

func TestForeign(t *testing.T) {
	for _, c := range []struct {
		method, site, mode, dest, origin string
		want                             bool
	}{
		{"GET", "same-origin", "cors", "empty", "", false},
		{"POST", "same-origin", "cors", "empty", "http://h", false},
		{"GET", "none", "navigate", "document", "", false},
		{"GET", "cross-site", "navigate", "document", "", false},
		{"POST", "cross-site", "navigate", "document", "null", true},
		{"GET", "same-site", "navigate", "iframe", "", true},
		{"GET", "same-site", "no-cors", "image", "", true},
		{"GET", "same-site", "websocket", "websocket", "http://evil", true},
		{"GET", "odd", "", "", "", true},
		{"GET", "", "", "", "", false},
		{"POST", "", "", "", "", true},
		{"GET", "", "", "", "http://h", false},
		{"GET", "", "", "", "http://evil", true},
		{"GET", "", "", "", "null", true},
	} {
		h := http.Header{}
		for name, v := range map[string]string{"Sec-Fetch-Site": c.site, "Sec-Fetch-Mode": c.mode, "Sec-Fetch-Dest": c.dest, "Origin": c.origin} {
			if v != "" {
				h.Set(name, v)
			}
		}
		if got := Foreign(&http.Request{Method: c.method, Host: "h", Header: h}); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("80-sbx-aaaaaaaaaaaaaaaa.localhost:1")
	f.Add("1-../x.localhost")
	f.Fuzz(func(t *testing.T, host string) {
		got, err := Hosts{}.Parse(host)
		if err == nil && got != nil && (got.Port == 0 || api.ValidRef(api.KindSandbox, "id", got.Ref) != nil || strings.Contains(got.Ref, ".")) {
			t.Errorf("%q is %+v", host, got)
		}
	})
}
