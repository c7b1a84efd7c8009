package rest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

// A token of the tests is the prefix and its scope, and perhaps its tenant.
func testTokens(_ context.Context, secret string, _ bool) (*service.Session, error) {
	scope, tenant, ok := strings.Cut(strings.TrimPrefix(secret, httpwire.SecretPrefix), ".")
	if !ok {
		tenant = "acme"
	}
	if !api.Scope(scope).Valid() {
		return nil, api.Errorf(api.CodeUnknownUser, "no such token")
	}
	return &service.Session{Caller: access.Caller{Tenant: tenant, Scope: api.Scope(scope), Token: "tok_" + scope}}, nil
}

// strangers serves a service to those with a token only.
func strangers(svc *apitest.Service) *rest.API {
	svc.AuthenticateFunc = testTokens
	return rest.New(rest.Config{Service: svc, Version: "test"})
}

func do(server http.Handler, method, target string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w
}

func bearer(scope string) []string {
	return []string{"Authorization", "Bearer " + httpwire.SecretPrefix + scope}
}

// open are the routes that say nothing about anybody.
var open = []string{"GET /healthz", "GET /readyz", "GET /openapi.json"}

// TestEveryRouteAsksWhoIsThere walks the document: without a token nothing is
// answered, and with one of a scope that is too narrow nothing is done. What each
// route demands is in the document, and this is all that it is compared with.
func TestEveryRouteAsksWhoIsThere(t *testing.T) {
	var calls []string
	server := strangers(recorder(&calls))
	var doc struct {
		Paths map[string]map[string]struct {
			Security []map[string][]string
		}
	}
	if err := json.Unmarshal(do(server, "GET", "/openapi.json").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	parameter := regexp.MustCompile(`\{[^}]*\}`)
	count := 0
	for path, methods := range doc.Paths {
		for method, op := range methods {
			method = strings.ToUpper(method)
			route, target := method+" "+path, parameter.ReplaceAllString(path, "1")
			count++
			w := do(server, method, target)
			if slices.Contains(open, route) {
				if w.Code != http.StatusOK || len(op.Security) > 0 {
					t.Errorf("%s: status %d, %v", route, w.Code, op.Security)
				}
				continue
			}
			if w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("%s without a token: status %d", route, w.Code)
			}
			if w := do(server, method, target, bearer("nobody")...); w.Code != http.StatusUnauthorized {
				t.Errorf("%s with a bad token: status %d", route, w.Code)
			}
			if len(op.Security) < 2 || len(op.Security[0]["token"]) != 1 {
				t.Errorf("%s: the document says %v", route, op.Security)
				continue
			}
			need := api.Scope(op.Security[0]["token"][0])
			if !need.Valid() || need == api.ScopeRead && method != "GET" && method != "HEAD" && route != "POST /v1/sandboxes/{id}/network/test" {
				t.Errorf("%s needs scope %q", route, need)
			}
			for _, scope := range []api.Scope{api.ScopeRead, api.ScopeExec} {
				if w := do(server, method, target, bearer(string(scope)+".default")...); (w.Code == http.StatusForbidden) != !scope.Covers(need) {
					t.Errorf("%s, which needs %s, with %s: status %d %s", route, need, scope, w.Code, w.Body)
				}
			}
		}
	}
	if count < 60 {
		t.Errorf("%d routes were walked", count)
	}
	if w := do(server, "GET", "/v1/nothing"); w.Code != http.StatusUnauthorized {
		t.Errorf("a route that is not there: status %d", w.Code)
	}
	if w := do(server, "POST", "/v1/sandboxes/a/ports/80/x", bearer("read")...); w.Code != http.StatusForbidden {
		t.Errorf("passing a request on: status %d", w.Code)
	}
	for _, c := range calls {
		if slices.ContainsFunc([]string{"Create", "Destroy", "Fork", "Update", "Promote", "Merge"}, func(p string) bool { return strings.HasPrefix(c, p+" ") }) {
			t.Errorf("it was done: %s", c)
		}
	}
}

// TestServiceIsToldWhoAsks: the caller of the token is in the context.
func TestServiceIsToldWhoAsks(t *testing.T) {
	var got []access.Caller
	server := strangers(&apitest.Service{ListFunc: func(ctx context.Context, _ api.ListFilter) ([]api.Sandbox, error) {
		got = append(got, access.From(ctx))
		return nil, nil
	}})
	do(server, "GET", "/v1/sandboxes", bearer("read.b")...)
	do(server, "GET", "/v1/sandboxes", httpwire.TokenHeader, httpwire.SecretPrefix+"exec.c")
	want := []access.Caller{
		{Tenant: "b", Scope: api.ScopeRead, Token: "tok_read"}, {Tenant: "c", Scope: api.ScopeExec, Token: "tok_exec"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// secretText has the form of a token's secret.
const secretText = httpwire.SecretPrefix + "abcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrst"

// TestTokenGoesNoFurther has a request passed on to a server in a sandbox: it gets
// what is meant for it, and not the token, wherever that stood. One in the URL lets
// nobody in, and does not go further either.
func TestTokenGoesNoFurther(t *testing.T) {
	for name, c := range map[string]struct {
		target  string
		headers []string
		auth    string
		query   string
	}{
		"bearer":    {"/", bearer("exec"), "", ""},
		"header":    {"/?a=1", []string{httpwire.TokenHeader, "ramet_exec", "Authorization", "Bearer theirs"}, "Bearer theirs", "a=1"},
		"parameter": {"/?a=%20&access_token=ramet_exec&b&access%5Ftoken=ramet_exec", bearer("exec"), "", "a=%20&b"},
		"twice":     {"/", []string{"Authorization", "Bearer ramet_exec", "Authorization", "Bearer " + secretText, "Authorization", "Basic " + secretText}, "", ""},
		"second":    {"/", []string{"Authorization", "Bearer theirs", "Authorization", "bearer  ramet_exec"}, "Bearer theirs", ""},
		"elsewhere": {"/", append(bearer("exec"), "Referer", "http://api/x?access_token=ramet_exec&a=1", "Cookie", "a=1; ramet-port=x; b="+secretText+"; __Host-ramet-port=y; c=2",
			"X-Original-Url", "/?t="+secretText, "X-Ramet-Wait", "1s"), "", ""},
		"its parameter": {"/?access_token=theirs", bearer("exec"), "", "access_token=theirs"},
	} {
		t.Run(name, func(t *testing.T) {
			var seen *http.Request
			inside := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r }))
			defer inside.Close()
			server := strangers(&apitest.Service{DialPortFunc: dialTo(inside.Listener.Addr().String())})
			outside := httptest.NewServer(server)
			defer outside.Close()
			req, err := http.NewRequest("GET", outside.URL+"/v1/sandboxes/a/ports/80"+c.target, nil)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(c.headers); i += 2 {
				req.Header.Add(c.headers[i], c.headers[i+1])
			}
			resp, err := outside.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			outside.Client().CloseIdleConnections()
			if seen == nil {
				t.Fatalf("status %d", resp.StatusCode)
			}
			for name, values := range seen.Header {
				if text := strings.Join(values, "\n"); strings.Contains(text, httpwire.SecretPrefix) || strings.HasPrefix(name, "X-Ramet") {
					t.Errorf("the server was sent %s: %s", name, text)
				}
			}
			if got := seen.Header.Get("Cookie"); got != "" && got != "a=1; c=2" {
				t.Errorf("cookies %q", got)
			}
			if got := seen.Header.Get("Referer"); got != "" && got != "http://api/x?a=1" {
				t.Errorf("referer %q", got)
			}
			if strings.Join(seen.Header["Authorization"], "\n") != c.auth || seen.URL.RawQuery != c.query || seen.Header.Get(httpwire.TokenHeader) != "" {
				t.Errorf("the server was sent %q, %q, %q", seen.Header.Get("Authorization"), seen.URL.RawQuery, seen.Header.Get(httpwire.TokenHeader))
			}
		})
	}
}

// TestRevokedTokenEndsWhatItBegan: a call that goes on ends with its token.
func TestRevokedTokenEndsWhatItBegan(t *testing.T) {
	gone, began := make(chan struct{}), make(chan struct{})
	svc := &apitest.Service{EventsFunc: func(ctx context.Context, _ api.EventRequest, start func(), _ func(api.Event) error) error {
		start()
		close(began)
		<-ctx.Done()
		return context.Cause(ctx)
	}}
	svc.AuthenticateFunc = func(context.Context, string, bool) (*service.Session, error) {
		return &service.Session{Caller: access.Caller{Tenant: "a", Scope: api.ScopeRead}, Gone: gone}, nil
	}
	server := rest.New(rest.Config{Service: svc})
	ended := make(chan *httptest.ResponseRecorder)
	go func() { ended <- do(server, "GET", "/v1/events?follow=true", bearer("x")...) }()
	<-began
	close(gone)
	if w := <-ended; !strings.Contains(w.Body.String(), `"unauthenticated"`) {
		t.Errorf("status %d %s", w.Code, w.Body)
	}
}

// TestTokenThatChangesItselfIsAnswered: a request that ends its own token gets its answer,
// with a key too, and is written down as one that succeeded.
func TestTokenThatChangesItselfIsAnswered(t *testing.T) {
	for method, path := range map[string]string{"POST": "/v1/tokens/tok_aaaaaaaaaaaaaaaa/rotate", "DELETE": "/v1/tokens/tok_aaaaaaaaaaaaaaaa"} {
		for _, key := range []string{"", "k1"} {
			gone := make(chan struct{})
			end := func(ctx context.Context) {
				close(gone)
				<-ctx.Done()
			}
			svc := &apitest.Service{}
			svc.AuthenticateFunc = func(context.Context, string, bool) (*service.Session, error) {
				return &service.Session{Caller: access.Caller{Tenant: "a", Scope: api.ScopeAdmin}, Gone: gone}, nil
			}
			svc.RotateTokenFunc = func(ctx context.Context, id string, _ api.RotateRequest) (*api.IssuedToken, error) {
				end(ctx)
				return &api.IssuedToken{Token: api.Token{ID: id}, Secret: "ramet_new"}, nil
			}
			svc.RemoveTokenFunc = func(ctx context.Context, _ string) error {
				end(ctx)
				return nil
			}
			w := do(rest.New(rest.Config{Service: svc}), method, path, append(bearer("x"), httpwire.IdempotencyHeader, key)...)
			if method == "POST" && (w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "ramet_new")) || method == "DELETE" && w.Code != http.StatusNoContent {
				t.Errorf("%s with key %q: status %d %s", method, key, w.Code, w.Body)
			}
			if e := svc.Audited(); len(e) != 1 || e[0].Result != "ok" {
				t.Errorf("%s with key %q is written down as %+v", method, key, e)
			}
		}
	}
}

// TestMangledTokenIsNotTheOwners: who connects as the owner and shows a token that is none
// of ours is not let in, but where it may be meant for a server in the sandbox.
func TestMangledTokenIsNotTheOwners(t *testing.T) {
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: &apitest.Service{ListFunc: func(context.Context, api.ListFilter) ([]api.Sandbox, error) { return nil, nil }}})
	for header, want := range map[string]int{"Bearer bad": 401, "bearer x": 401, "Basic bad": 200, "": 200} {
		if w := do(server, "GET", "/v1/sandboxes", "Authorization", header); w.Code != want {
			t.Errorf("%q: status %d %s", header, w.Code, w.Body)
		}
	}
	if w := do(server, "GET", "/v1/sandboxes/a/ports/80/", "Authorization", "Bearer bad"); w.Code == http.StatusUnauthorized {
		t.Errorf("for a server in a sandbox: status %d %s", w.Code, w.Body)
	}
}

func TestDrainingRefusesNewRequestsAndEndsOldOnes(t *testing.T) {
	began, end := make(chan struct{}), make(chan struct{})
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: &apitest.Service{GetFunc: func(context.Context, string) (*api.Sandbox, error) {
		close(began)
		<-end
		return someSandbox(sbxA), nil
	}}})
	old := make(chan *httptest.ResponseRecorder)
	go func() { old <- do(server, "GET", "/v1/sandboxes/a") }()
	<-began
	server.Drain()
	w := do(server, "GET", "/v1/sandboxes/a")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"unavailable"`) {
		t.Errorf("a new request: status %d %s", w.Code, w.Body)
	}
	if w := do(server, "GET", "/healthz"); w.Code != http.StatusOK {
		t.Errorf("health: status %d", w.Code)
	}
	if w := do(server, "GET", "/readyz"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("readiness: status %d", w.Code)
	}
	waited := make(chan struct{})
	go func() {
		server.Wait()
		close(waited)
	}()
	select {
	case <-waited:
		t.Error("it did not wait")
	default:
	}
	close(end)
	if w := <-old; w.Code != http.StatusOK {
		t.Errorf("the old request: status %d %s", w.Code, w.Body)
	}
	<-waited
}

// TestDrainingEndsFollowers has clients follow something for ever: they are told that the
// daemon ends, which does not wait for them.
func TestDrainingEndsFollowers(t *testing.T) {
	following := make(chan struct{}, 4)
	follow := func(ctx context.Context) error {
		following <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: &apitest.Service{
		EventsFunc: func(ctx context.Context, _ api.EventRequest, begin func(), _ func(api.Event) error) error {
			begin()
			return follow(ctx)
		},
		ProcessFuncs: apitest.ProcessFuncs{
			LogsFunc: func(ctx context.Context, _ string, _ bool, _ func(), _ func(api.LogPiece) error) error {
				return follow(ctx)
			},
			AttachFunc: func(ctx context.Context, _ string, _ int, _ api.AttachRequest, _ api.AttachIO) (*api.Position, error) {
				return nil, follow(ctx)
			},
		},
	}})
	paths := []string{"/v1/events?follow=true", "/v1/sandboxes/a/logs?follow=true", "/v1/sandboxes/a/processes/7/output?follow=true"}
	answers := make(chan *httptest.ResponseRecorder)
	for _, p := range paths {
		go func() { answers <- do(server, "GET", p, "Accept", "text/event-stream") }()
		<-following
	}
	server.Drain()
	for range paths {
		if w := <-answers; !strings.Contains(w.Body.String(), `"unavailable"`) {
			t.Errorf("status %d %s", w.Code, w.Body)
		}
	}
	server.Wait()
}

// dialTo connects to a server of the test instead of a port of a sandbox.
func dialTo(addr string) func(context.Context, string, uint16, time.Duration) (service.PortConn, error) {
	return func(ctx context.Context, _ string, _ uint16, _ time.Duration) (service.PortConn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		return c.(*net.TCPConn), nil
	}
}

// TestStrangersDoNotHoldConnections has some who announce a body and send none: each
// would keep a connection for ever.
func TestStrangersDoNotHoldConnections(t *testing.T) {
	s := httptest.NewServer(strangers(&apitest.Service{}))
	t.Cleanup(func() {
		s.CloseClientConnections() // else it waits for them
		s.Close()
	})
	for name, c := range map[string]struct {
		head string
		want int
	}{
		"refused":   {"POST /v1/sandboxes HTTP/1.1", http.StatusUnauthorized},
		"forbidden": {"DELETE /v1/sandboxes/x HTTP/1.1\r\nAuthorization: Bearer " + httpwire.SecretPrefix + "read", http.StatusForbidden},
		"open":      {"GET /openapi.json HTTP/1.1", http.StatusOK},
		"nowhere":   {"POST /nowhere HTTP/1.1", http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, c.head+"\r\nHost: ramet\r\nContent-Length: 1000\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != c.want {
				t.Errorf("%s, %v", resp.Status, err)
			}
			if _, err := in.ReadByte(); err != io.EOF {
				t.Errorf("the connection is not closed: %v", err)
			}
		})
	}
}
