package e2b

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/e2b/grant"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

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

// TestInsideIsGuarded asks for all routes in a sandbox with secrets for other things. Package surface walks all routes
// with those that are for them.
func TestInsideIsGuarded(t *testing.T) {
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
	bearers := map[string]string{"volume": s.grants.Token(session, grant.Volume, volume)}
	// What is in a sandbox demands the access token of that sandbox, at all routes of its agent and interpreter.
	_, within := s.Routes()
	for _, route := range within {
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
