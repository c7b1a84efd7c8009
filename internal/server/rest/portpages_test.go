package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/portproxy"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// portPages serves an API with hosts of ports, on which the sandboxes named by inside have
// servers. gone ends all tokens. Its client takes each host for the API's address.
func portPages(t *testing.T, inside map[string]http.Handler, gone <-chan struct{}) (origin string, client *http.Client) {
	t.Helper()
	addrs := map[string]string{}
	for id, h := range inside {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		addrs[id] = s.Listener.Addr().String()
	}
	svc := &apitest.Service{
		GetFunc: func(_ context.Context, ref string) (*api.Sandbox, error) { return someSandbox(ref), nil },
		DialPortFunc: func(ctx context.Context, ref string, port uint16, _ time.Duration) (service.PortConn, error) {
			if c := access.From(ctx); c.Tenant != "acme" || !c.Scope.Covers(api.ScopeExec) || addrs[ref] == "" {
				return nil, api.NotFound("sandbox", ref)
			}
			return dialTo(addrs[ref])(ctx, ref, port, 0)
		},
	}
	svc.AuthenticateFunc = func(ctx context.Context, secret string, inURL bool) (*service.Session, error) {
		s, err := testTokens(ctx, secret, inURL)
		if err == nil {
			s.Gone = gone
		}
		return s, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String()) // it is one
	hosts, err := portproxy.ParseHosts("localhost", false, port)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: rest.New(rest.Config{Service: svc, PortHosts: hosts})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
	}}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		server.Close()
		<-served
	})
	return "http://" + l.Addr().String(), &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get asks for a URL, which may be of another host.
func get(t *testing.T, c *http.Client, target string, headers ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest("GET", target, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := c.Do(req)
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

// openSession asks for a URL of a port.
func openSession(t *testing.T, c *http.Client, origin, id, scope, body string) (*http.Response, api.PortSession) {
	t.Helper()
	req, err := http.NewRequest("POST", origin+"/v1/sandboxes/"+id+"/port-sessions", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", bearer(scope)[1])
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var s api.PortSession
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return resp, s
}

// TestPortSession lets a browser in at one port, and has it try all else with what it got.
func TestPortSession(t *testing.T) {
	gone := make(chan struct{})
	seen := make(chan *http.Request, 1)
	inside := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r })
	origin, c := portPages(t, map[string]http.Handler{sbxA: inside, sbxB: inside}, gone)
	for body, status := range map[string]int{`{"port":80,"path":"//evil.com/"}`: 400, `{"port":0}`: 422, `{"port":80,"path":"x"}`: 400} {
		if resp, _ := openSession(t, c, origin, sbxA, "exec", body); resp.StatusCode != status && resp.StatusCode != 400 {
			t.Errorf("%s: %s", body, resp.Status)
		}
	}
	if resp, _ := openSession(t, c, origin, sbxA, "read", `{"port":80}`); resp.StatusCode != http.StatusForbidden {
		t.Errorf("by a token that may only look: %s", resp.Status)
	}
	resp, s := openSession(t, c, origin, sbxA, "exec", `{"port":80,"path":"/lab//x?y=1"}`)
	u, err := url.Parse(s.URL)
	if err != nil || resp.StatusCode != http.StatusCreated || !strings.HasPrefix(u.Host, "80-sbx-aaaaaaaaaaaaaaaa.localhost:") || time.Until(s.ExpiresAt) > 5*time.Minute {
		t.Fatalf("%s %+v %v", resp.Status, s, err)
	}
	pages := "http://" + u.Host
	elsewhere := strings.Replace(s.URL, "sbx-a", "sbx-b", 1)
	if resp, _ := get(t, c, elsewhere); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the code at another host: %s", resp.Status)
	}
	resp, _ = get(t, c, s.URL)
	cookies := resp.Cookies()
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/lab//x?y=1" || len(cookies) != 1 || resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Referrer-Policy") != "no-referrer" {
		t.Fatalf("%s %v", resp.Status, resp.Header)
	}
	if k := cookies[0]; !k.HttpOnly || k.SameSite != http.SameSiteLaxMode || k.Domain != "" || k.Path != "/" || k.MaxAge <= 0 {
		t.Errorf("cookie %v", k)
	}
	if resp, _ := get(t, c, s.URL); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the code again: %s", resp.Status)
	}
	cookie := cookies[0].Name + "=" + cookies[0].Value
	if resp, text := get(t, c, pages+"/x?access_token=ramet_exec", "Cookie", "mine=1; "+cookie); resp.StatusCode != http.StatusOK {
		t.Fatalf("with the cookie: %s %s", resp.Status, text)
	}
	if r := <-seen; r.RequestURI != "/x" || r.Host != "localhost:80" || r.Header.Get("Cookie") != "mine=1" {
		t.Errorf("the server saw %s %s %v", r.RequestURI, r.Host, r.Header)
	}
	for what, target := range map[string]string{
		"another sandbox": strings.Replace(pages, "sbx-a", "sbx-b", 1) + "/", "another port": strings.Replace(pages, "80-", "81-", 1) + "/",
		"its path": origin + "/v1/sandboxes/" + sbxA + "/ports/80/", "REST": origin + "/v1/sandboxes/" + sbxA, "a name": strings.Replace(pages, "sbx-aaaaaaaaaaaaaaaa", "name", 1) + "/",
	} {
		if resp, _ := get(t, c, target, "Cookie", cookie); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s with the cookie: %s", what, resp.Status)
		}
	}
	if resp, _ := get(t, c, pages+"/?access_token=ramet_exec"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token in the URL: %s", resp.Status)
	}
	if resp, _ := get(t, c, pages+"/", "Cookie", cookie, "Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "image"); resp.StatusCode != http.StatusForbidden {
		t.Errorf("for a page of another sandbox: %s", resp.Status)
	}
	close(gone)
	if resp, _ := get(t, c, pages+"/", "Cookie", cookie); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("without its token: %s", resp.Status)
	}
	if len(seen) != 0 {
		t.Errorf("the server saw %v", <-seen)
	}
}

// TestNoPortSessionWithoutBrowsers: a daemon that browsers cannot reach says so.
func TestNoPortSessionWithoutBrowsers(t *testing.T) {
	svc := &apitest.Service{GetFunc: func(_ context.Context, ref string) (*api.Sandbox, error) { return someSandbox(ref), nil }}
	a := ask(t, testClient(t, apitest.Serve(t, svc)), "POST", "/v1/sandboxes/a/port-sessions", `{"port":80}`)
	if p := a.problem(t); p.Code != api.CodeUnsupported || !strings.Contains(p.Detail, "--listen") {
		t.Errorf("%+v", p)
	}
}

// TestPathsOfPortsAreForPrograms: on the API's origin no page of a sandbox is shown, and no
// header of one means more than itself.
func TestPathsOfPortsAreForPrograms(t *testing.T) {
	inside := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Link", "</x>; rel=preload")
		h.Set("Clear-Site-Data", "*")
		w.WriteHeader(http.StatusEarlyHints)
		h.Set("Content-Type", "text/html")
		h.Set("Service-Worker-Allowed", "/")
		h.Set("Strict-Transport-Security", "max-age=9")
		h.Set(httpwire.InterfaceHeader, "9.9")
		h.Set(httpwire.RequestIDHeader, "theirs")
		h.Set("Set-Cookie", "a=1; Path=/; Domain=localhost")
		_, _ = io.WriteString(w, "<script>1</script>") // the client's connection tells
	})
	origin, c := portPages(t, map[string]http.Handler{sbxA: inside}, nil)
	const path = "/v1/sandboxes/" + sbxA + "/ports/80/"
	for _, headers := range [][]string{
		{"Sec-Fetch-Mode", "navigate"}, {"Sec-Fetch-Dest", "document"}, {"Sec-Fetch-Dest", "iframe"}, {"Sec-Fetch-Dest", "script"}, {"Sec-Fetch-Dest", "serviceworker"}, {"Service-Worker", "script"},
	} {
		if resp, text := get(t, c, origin+path, append(headers, bearer("exec")...)...); resp.StatusCode != http.StatusForbidden || resp.Header.Get("Content-Type") != httpwire.ProblemType || !strings.Contains(text, "port-sessions") {
			t.Errorf("%v: %s %s", headers, resp.Status, text)
		}
	}
	resp, _ := get(t, c, origin+path+"?access_token=ramet_exec")
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token in the URL: %s", resp.Status)
	}
	resp, text := get(t, c, origin+path, bearer("exec")...)
	if resp.StatusCode != http.StatusOK || text != "<script>1</script>" || !slices.Contains(resp.Header["Content-Security-Policy"], "sandbox") || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("a program: %s %v", resp.Status, resp.Header)
	}
	for _, name := range []string{"Service-Worker-Allowed", "Clear-Site-Data", "Strict-Transport-Security"} {
		if v := resp.Header.Get(name); v != "" {
			t.Errorf("%s is %q", name, v)
		}
	}
	if got := resp.Header.Values(httpwire.InterfaceHeader); !slices.Equal(got, []string{api.InterfaceVersion}) || slices.Contains(resp.Header.Values(httpwire.RequestIDHeader), "theirs") {
		t.Errorf("the daemon's headers are %q: %v", got, resp.Header)
	}
	if got := resp.Header["Set-Cookie"]; !slices.Equal(got, []string{"a=1; Path=" + path}) {
		t.Errorf("cookies %q", got)
	}
}

// TestWebSocketsToPorts connects as a program, and as a page of the port and of another.
func TestWebSocketsToPorts(t *testing.T) {
	gone := make(chan struct{})
	inside := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := websocket.Accept(w, r, nil) // which compares Origin and Host
		if err != nil {
			return
		}
		defer s.CloseNow()
		kind, text, err := s.Read(r.Context())
		if err != nil || s.Write(r.Context(), kind, text) != nil {
			return
		}
		_, _, _ = s.Read(r.Context()) // until the other end is gone
	})
	origin, c := portPages(t, map[string]http.Handler{sbxA: inside}, gone)
	_, s := openSession(t, c, origin, sbxA, "exec", `{"port":80}`)
	resp, _ := get(t, c, s.URL)
	cookie, _, _ := strings.Cut(resp.Header.Get("Set-Cookie"), ";")
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	page := "http://" + u.Host
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dial := func(target string, headers ...string) (*websocket.Conn, error) {
		h := http.Header{}
		for i := 0; i < len(headers); i += 2 {
			h.Set(headers[i], headers[i+1])
		}
		conn, _, err := websocket.Dial(ctx, target, &websocket.DialOptions{HTTPClient: c, HTTPHeader: h})
		return conn, err
	}
	path := origin + "/v1/sandboxes/" + sbxA + "/ports/80/"
	var last *websocket.Conn
	for what, call := range map[string][]string{
		"a program, by its path": append([]string{path}, bearer("exec")...),
		"a program, by the host": append([]string{page + "/"}, bearer("exec")...),
		"its page":               {page + "/", "Cookie", cookie, "Origin", page, "Sec-Fetch-Site", "same-origin", "Sec-Fetch-Mode", "websocket"},
	} {
		conn, err := dial(call[0], call[1:]...)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		defer conn.CloseNow()
		err = conn.Write(ctx, websocket.MessageText, []byte("echo"))
		if err == nil {
			_, _, err = conn.Read(ctx)
		}
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		last = conn
	}
	for what, call := range map[string][]string{
		"another page":                   {page + "/", "Cookie", cookie, "Origin", "http://80-sbx-bbbbbbbbbbbbbbbb.localhost", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "websocket"},
		"another page in an old browser": {page + "/", "Cookie", cookie, "Origin", "http://80-sbx-bbbbbbbbbbbbbbbb.localhost"},
		"nobody":                         {page + "/", "Origin", page},
		"a token in the URL":             {path + "?access_token=ramet_exec"},
	} {
		if conn, err := dial(call[0], call[1:]...); err == nil {
			conn.CloseNow()
			t.Errorf("%s is connected", what)
		}
	}
	close(gone)
	if _, _, err := last.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("a connection goes on without its token: %v", err)
	}
}

// TestTokensInURLs walks the document: tokens in URLs are taken for what a browser can ask
// for in no other way, and for nothing else.
func TestTokensInURLs(t *testing.T) {
	taken := false
	svc := &apitest.Service{}
	svc.AuthenticateFunc = func(ctx context.Context, secret string, inURL bool) (*service.Session, error) {
		taken = true
		return nil, api.Errorf(api.CodeUnknownUser, "no")
	}
	server := rest.New(rest.Config{Service: svc, Identify: apitest.Owner})
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(do(server, "GET", "/openapi.json").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	parameter := regexp.MustCompile(`\{[^}]*\}`)
	var got []string
	for path, methods := range doc.Paths {
		for method := range methods {
			method = strings.ToUpper(method)
			target := parameter.ReplaceAllString(path, "1") + "?access_token=ramet_exec"
			if taken = false; strings.HasPrefix(path, "/v1/") {
				if w := do(server, method, target); w.Code != http.StatusUnauthorized || taken {
					t.Errorf("%s %s: status %d", method, path, w.Code)
				}
			}
			do(server, method, target, "Upgrade", "websocket", "Accept", "text/event-stream")
			if taken {
				got = append(got, method+" "+path)
			}
		}
	}
	slices.Sort(got)
	if want := []string{
		"GET /v1/events", "GET /v1/explorations/{id}/events", "GET /v1/sandboxes/{id}/events", "GET /v1/sandboxes/{id}/exec", "GET /v1/sandboxes/{id}/files/watch", "GET /v1/sandboxes/{id}/logs",
		"GET /v1/sandboxes/{id}/network/log", "GET /v1/sandboxes/{id}/processes/{pid}/attach", "GET /v1/sandboxes/{id}/processes/{pid}/output",
	}; !slices.Equal(got, want) {
		t.Errorf("taken for %q", got)
	}
}
