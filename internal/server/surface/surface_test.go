package surface

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/mcp"
	"ramet.dev/ramet/internal/server/e2b"
	"ramet.dev/ramet/internal/server/e2b/grant"
	"ramet.dev/ramet/internal/server/portguard"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

var update = flag.Bool("update", false, "write routes.txt anew: read the difference")

const (
	box    = "sbx_aaaaaaaaaaaaaaaa"
	volume = "vol_aaaaaaaaaaaaaaaa"
)

// callers are those that tokens stand for.
var callers = map[string]access.Caller{
	"read":     {Tenant: "acme", Scope: api.ScopeRead},
	"exec":     {Tenant: "acme", Scope: api.ScopeExec},
	"admin":    {Tenant: "acme", Scope: api.ScopeAdmin},
	"operator": {Tenant: access.DefaultTenant, Scope: api.ScopeAdmin},
}

// fake returns a service with callers and nothing else: what reaches it is refused with another code than
// those of guards, or panics.
func fake() *apitest.Service {
	svc := &apitest.Service{ListFunc: func(context.Context, api.ListFilter) ([]api.Sandbox, error) {
		return []api.Sandbox{{ID: box, Tenant: "acme", State: api.StateRunning}}, nil
	}}
	svc.SessionOfFunc = func(_ context.Context, key string) (*service.Session, error) {
		c, ok := callers[key]
		if !ok {
			return nil, api.Errorf(api.CodeUnknownUser, "no such key")
		}
		c.Token = "tok_" + key
		return &service.Session{Key: key, Caller: c}, nil
	}
	svc.AuthenticateFunc = func(ctx context.Context, secret string, _ bool) (*service.Session, error) {
		return svc.SessionOf(ctx, strings.TrimPrefix(secret, httpwire.SecretPrefix))
	}
	svc.SessionsFunc = func(ctx context.Context, tenant string) (all []*service.Session) {
		for key, c := range callers {
			if s, err := svc.SessionOf(ctx, key); err == nil && c.Tenant == tenant {
				all = append(all, s)
			}
		}
		return all
	}
	return svc
}

// asker asks one server.
type asker struct {
	handler http.Handler
	svc     *apitest.Service
	// headers returns those that carry a secret, or none if it is empty.
	headers func(secret string) map[string]string
}

// ask sends a request, and reports whether it passed the guards and how many entries the audit log got.
func (a *asker) ask(method, path, secret string) (admitted bool, audited int) {
	before := len(a.svc.Audited())
	body := &endless{}
	r := httptest.NewRequest(method, path, body)
	r.Header.Set("Content-Type", "application/json")
	for name, value := range a.headers(secret) {
		r.Header.Set(name, value)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if recover() != nil {
				w.Code = http.StatusNotImplemented // a handler met what the service does not have
			}
		}()
		a.handler.ServeHTTP(w, r.WithContext(ctx))
	}()
	if body.read > maxBody {
		audited = -1 << 20 // it is no line of the table
	}
	return w.Code != http.StatusUnauthorized && w.Code != http.StatusForbidden, audited + len(a.svc.Audited()) - before
}

// maxBody is more than a route reads of a body before it knows that it is none of its own.
const maxBody = 64 << 20

// endless is a body of zeros that is longer than a server should read.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	if e.read > maxBody {
		return 0, io.EOF
	}
	clear(b)
	e.read += len(b)
	return len(b), nil
}

var parameter = regexp.MustCompile(`\{[a-z_]+(\.\.\.)?\}`)

// pathOf fills in the parameters of a route.
func pathOf(pattern string) string {
	return parameter.ReplaceAllStringFunc(pattern, func(p string) string {
		switch strings.Trim(p, "{.}") {
		case "id":
			if strings.Contains(pattern, "volume") {
				return volume
			}
			return box
		case "port", "hostport", "pid":
			return "8080"
		}
		return "x"
	})
}

// line returns the line of a route in the table. more are secrets besides tokens, by what they need.
func (a *asker) line(t *testing.T, server, route string, more map[string]string) string {
	t.Helper()
	method, pattern, _ := strings.Cut(route, " ")
	path := pathOf(pattern)
	needs := ""
	audit := "-"
	if open, n := a.ask(method, path, ""); open {
		needs = "open"
		if n > 0 {
			audit = "audited"
		}
	}
	if needs == "" {
		if in, _ := a.ask(method, path, httpwire.SecretPrefix+"nobody"); in {
			t.Errorf("%s %s lets an unknown token in", server, route)
		}
		secrets := []struct{ name, secret string }{}
		for _, name := range []string{"read", "exec", "admin", "operator"} {
			secrets = append(secrets, struct{ name, secret string }{name, httpwire.SecretPrefix + name})
		}
		for name, secret := range more {
			secrets = append(secrets, struct{ name, secret string }{name, secret})
		}
		var enter []string
		for _, s := range secrets {
			in, n := a.ask(method, path, s.secret)
			if n < 0 {
				t.Errorf("%s %s reads more than %d bytes of a body that is not its own", server, route, maxBody)
			}
			if !in {
				continue
			}
			if enter = append(enter, s.name); n > 0 {
				audit = "audited"
			}
		}
		switch strings.Join(enter, " ") {
		case "read exec admin operator":
			needs = "read"
		case "exec admin operator":
			needs = "exec"
		case "admin operator":
			needs = "admin"
		case "operator":
			needs = "operator"
		default:
			needs = strings.Join(enter, "+")
		}
	}
	if needs == "" {
		t.Errorf("%s %s lets nobody in", server, route)
	}
	return strings.Join([]string{server, method, pattern, needs, audit}, " ")
}

func bearer(secret string) map[string]string {
	if secret == "" {
		return nil
	}
	return map[string]string{"Authorization": "Bearer " + secret}
}

// TestEveryRouteOfEveryServer compares the routes of all servers with the table.
func TestEveryRouteOfEveryServer(t *testing.T) {
	svc := fake()
	lines := slices.Concat(restLines(t, svc), e2bLines(t, fake()), mcpLines(t, svc), portLines(t))
	slices.Sort(lines)
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile("routes.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	table, err := os.ReadFile("routes.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(table)), "\n")
	for _, line := range lines {
		if !slices.Contains(want, line) {
			t.Errorf("not in the table: %s", line)
		}
	}
	for _, line := range want {
		if !slices.Contains(lines, line) {
			t.Errorf("in the table only: %s", line)
		}
	}
}

// restLines are the routes of REST, which its document names.
func restLines(t *testing.T, svc *apitest.Service) (lines []string) {
	a := &asker{handler: rest.New(rest.Config{Service: svc, Metrics: http.NotFoundHandler()}), svc: svc, headers: bearer}
	w := httptest.NewRecorder()
	a.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method := range methods {
			if method = strings.ToUpper(method); slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}, method) {
				lines = append(lines, a.line(t, "rest", method+" "+path, nil))
			}
		}
	}
	return lines
}

// e2bLines are the routes of the E2B server: its own, and those in sandboxes.
func e2bLines(t *testing.T, svc *apitest.Service) (lines []string) {
	s, err := e2b.New(e2b.Config{Service: svc, Key: make([]byte, 32), Dir: t.TempDir() + "/files", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	grants := grant.New(make([]byte, 32), svc)
	session, err := svc.SessionOf(t.Context(), "admin")
	if err != nil {
		t.Fatal(err)
	}
	outside := &asker{handler: s, svc: svc, headers: func(secret string) map[string]string {
		if strings.HasPrefix(secret, httpwire.SecretPrefix) {
			return map[string]string{"X-API-KEY": secret}
		}
		return bearer(secret)
	}}
	inside := func(port string) *asker {
		return &asker{handler: s, svc: svc, headers: func(secret string) map[string]string {
			h := map[string]string{"E2b-Sandbox-Id": strings.TrimPrefix(box, "sbx_"), "E2b-Sandbox-Port": port}
			if secret != "" {
				h["X-Access-Token"] = secret
			}
			return h
		}}
	}
	agent, interpreter := inside("49983"), inside("49999")
	own, within := s.Routes()
	for _, route := range own {
		if strings.HasPrefix(route, "PUT /templates/{id}/files/") { // see package grant
			lines = append(lines, "e2b "+route+" upload -")
			continue
		}
		lines = append(lines, outside.line(t, "e2b", route, map[string]string{"volume": grants.Token(session, grant.Volume, volume)}))
	}
	for _, route := range within {
		at := agent
		if strings.Contains(route, " /contexts") || strings.Contains(route, " /execute") {
			at = interpreter
		}
		lines = append(lines, at.line(t, "e2b-sandbox", route, map[string]string{"sandbox": grants.Token(session, grant.Access, box)}))
	}
	return lines
}

// mcpLines is the only route of MCP over HTTP, whose calls are requests to REST with the caller's token.
func mcpLines(t *testing.T, svc *apitest.Service) []string {
	daemon := httptest.NewServer(rest.New(rest.Config{Service: svc}))
	t.Cleanup(daemon.Close)
	svc.SnapshotFuncs.SnapshotsFunc = func(context.Context) ([]api.Snapshot, error) { return nil, nil }
	a := &asker{svc: svc, headers: bearer, handler: mcp.Handler("test", func(token string) (*client.Client, error) {
		return client.Open(client.Config{Address: daemon.URL, Token: token})
	})}
	return []string{a.line(t, "mcp", "POST /", nil)}
}

// portLines is the only route of a published port.
func portLines(t *testing.T) []string {
	svc := fake()
	dial := func(context.Context) (net.Conn, error) { return nil, api.Errorf(api.CodeUnavailable, "nobody listens") }
	a := &asker{svc: svc, headers: bearer, handler: portguard.New(func(s string) bool { return s == "secret" }, func() {}, 8080, dial, slog.New(slog.DiscardHandler))}
	return []string{a.line(t, "port", "GET /", map[string]string{"port": "secret"})}
}

// TestTheDocumentOfE2B lists each route that clients of E2B are served, and no other as served.
func TestTheDocumentOfE2B(t *testing.T) {
	table, err := os.ReadFile("routes.txt")
	if err != nil {
		t.Fatal(err)
	}
	var served []string
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); strings.HasPrefix(f[0], "e2b") {
			served = append(served, f[1]+" "+f[2])
		}
	}
	slices.Sort(served)
	served = slices.Compact(served)
	doc, err := os.ReadFile("../../../docs/e2b-interface.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]*)` \\| served \\|").FindAllStringSubmatch(string(doc), -1) {
		listed = append(listed, m[1])
	}
	slices.Sort(listed)
	listed = slices.Compact(listed)
	for _, route := range served {
		if !slices.Contains(listed, route) {
			t.Errorf("docs/e2b-interface.md does not list %s as served", route)
		}
	}
	for _, route := range listed {
		if !slices.Contains(served, route) {
			t.Errorf("docs/e2b-interface.md lists %s as served, which is not", route)
		}
	}
}
