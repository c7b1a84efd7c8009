package e2b

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/e2b/grant"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// demands has what each route of the service demands: a key of a scope, or a token that is derived from one.
// A route that is not listed fails the test: decide, then add it.
var demands = map[string]string{
	"GET /health": "read", "GET /sandboxes": "read", "GET /v2/sandboxes": "read", "GET /sandboxes/{id}": "read", "GET /sandboxes/{id}/metrics": "read", "GET /sandboxes/{id}/logs": "read",
	"GET /v2/sandboxes/{id}/logs": "read", "GET /snapshots": "read", "GET /templates": "read", "GET /v2/templates": "read", "GET /templates/{id}/tags": "read",
	"GET /templates/aliases/{alias}": "read", "GET /templates/{id}/builds/{build}/status": "read", "GET /secrets": "read", "GET /secrets/{id}": "read",
	"GET /volumes": "read", "GET /volumes/{id}": "read",

	"POST /sandboxes": "admin", "POST /v2/sandboxes": "admin", "DELETE /sandboxes/{id}": "admin", "POST /sandboxes/{id}/fork": "admin", "PUT /sandboxes/{id}/network": "admin",
	"POST /sandboxes/{id}/timeout": "admin", "POST /sandboxes/{id}/refreshes": "admin", "POST /sandboxes/{id}/pause": "admin", "POST /sandboxes/{id}/resume": "admin",
	"POST /sandboxes/{id}/connect": "admin", "POST /v2/sandboxes/{id}/connect": "admin", "POST /sandboxes/{id}/snapshots": "admin", "DELETE /templates/{id}": "admin",
	"POST /v3/templates": "admin", "GET /templates/{id}/files/{hash}": "admin", "POST /v2/templates/{id}/builds/{build}": "admin", "POST /templates/tags": "admin", "DELETE /templates/tags": "admin",
	"POST /secrets": "admin", "POST /secrets/{id}": "admin", "DELETE /secrets/{id}": "admin", "POST /volumes": "admin", "DELETE /volumes/{id}": "admin",

	"GET /volumecontent/{id}/dir": "volume", "POST /volumecontent/{id}/dir": "volume", "GET /volumecontent/{id}/path": "volume", "PATCH /volumecontent/{id}/path": "volume",
	"DELETE /volumecontent/{id}/path": "volume", "GET /volumecontent/{id}/file": "volume", "PUT /volumecontent/{id}/file": "volume",
	"PUT /templates/{id}/files/{hash}": "upload",
}

var parameter = regexp.MustCompile(`\{[a-z]+\}`)

// admitted sends a request, and reports whether a handler was reached: one without a service may panic.
func admitted(s *Server, method, path string, headers ...string) (status int) {
	defer func() {
		if recover() != nil {
			status = 200
		}
	}()
	return ask(s, method, path, "", headers...).Code
}

// TestEveryRouteIsGuarded walks all routes of the service with each kind of secret.
func TestEveryRouteIsGuarded(t *testing.T) {
	svc := &apitest.Service{ListFunc: func(context.Context, api.ListFilter) ([]api.Sandbox, error) {
		return []api.Sandbox{{ID: boxID, Tenant: "acme", State: api.StateRunning}}, nil
	}}
	all := keys{"read": api.ScopeRead, "exec": api.ScopeExec, "admin": api.ScopeAdmin}
	all.install(svc)
	s := newServer(t, svc)
	session, err := svc.SessionOf(t.Context(), "admin")
	if err != nil {
		t.Fatal(err)
	}
	const volume = "vol_aaaaaaaaaaaaaaaa"
	bearers := map[string]string{
		"access": s.grants.Token(session, grant.Access, boxID), "volume": s.grants.Token(session, grant.Volume, volume), "volume of another": s.grants.Token(session, grant.Volume, "vol_b"),
	}
	for _, route := range s.routes {
		need, listed := demands[route]
		if !listed {
			t.Errorf("%s is not in the table of what routes demand", route)
			continue
		}
		method, pattern, _ := strings.Cut(route, " ")
		path := parameter.ReplaceAllString(pattern, volume)
		if got := admitted(s, method, path); got != 401 {
			t.Errorf("%s without a secret: %d", route, got)
		}
		for name, scope := range all {
			got := admitted(s, method, path, "X-API-KEY: "+httpwire.SecretPrefix+name)
			enters := api.Scope(need).Valid() && scope.Covers(api.Scope(need))
			if (got != 401 && got != 403) != enters {
				t.Errorf("%s with a key of scope %s: %d", route, scope, got)
			}
		}
		for name, token := range bearers {
			if got := admitted(s, method, path, "Authorization: Bearer "+token); (got != 401 && got != 403) != (name == need) {
				t.Errorf("%s with the token %s: %d", route, name, got)
			}
		}
	}
	for route := range demands {
		if !slices.Contains(s.routes, route) {
			t.Errorf("%s is in the table, and not served", route)
		}
	}
	// What is in a sandbox demands the access token of that sandbox, at all routes of its agent and interpreter.
	for _, route := range s.Routes()[len(s.routes):] {
		method, pattern, _ := strings.Cut(route, " ")
		for _, port := range []string{"49983", "49999", "8000"} {
			to := []string{"E2b-Sandbox-Id: " + outer(boxID), "E2b-Sandbox-Port: " + port}
			for what, header := range map[string]string{
				"nothing": "X: x", "a key": "X-API-KEY: " + httpwire.SecretPrefix + "admin", "the token of a volume": "X-Access-Token: " + bearers["volume"],
				"another sandbox's": "X-Access-Token: " + s.grants.Token(session, grant.Access, "sbx_aaaaaaaaaaaaaaab"),
			} {
				if pattern == "/health" && port == "49983" && (what == "nothing" || what == "a key") {
					continue // the health of an agent needs no token
				}
				if got := admitted(s, method, parameter.ReplaceAllString(pattern, "x"), append(to, header)...); got != 401 {
					t.Errorf("%s at port %s with %s: %d", route, port, what, got)
				}
			}
		}
	}
}
