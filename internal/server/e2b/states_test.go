package e2b

import (
	"context"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/e2b/grant"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestAPausedSandboxIsNotThere: what is in it answers as if there were none, unless requests wake it.
func TestAPausedSandboxIsNotThere(t *testing.T) {
	for _, c := range []struct {
		state api.State
		wakes bool
		there bool
	}{
		{api.StateRunning, false, true}, {api.StateHibernated, false, false}, {api.StatePaused, false, false}, {api.StatePaused, true, false},
		{api.StateHibernated, true, true}, {"", false, false},
	} {
		svc := &apitest.Service{} // each server reads its own in the background
		keys{"a": api.ScopeAdmin}.install(svc)
		session, err := svc.SessionOf(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		svc.ListFunc = func(context.Context, api.ListFilter) ([]api.Sandbox, error) {
			if c.state == "" {
				return nil, nil
			}
			return []api.Sandbox{{ID: boxID, Tenant: "acme", State: c.state, Lifecycle: &api.Lifecycle{AutoWake: c.wakes}}}, nil
		}
		s := newServer(t, svc)
		token := s.grants.Token(session, grant.Access, boxID)
		for _, r := range [][3]string{
			{"GET", "/envs", "49983"}, {"GET", "/health", "49983"}, {"POST", "/filesystem.Filesystem/Stat", "49983"}, {"GET", "/health", "49999"},
			{"POST", "/execute", "49999"}, {"GET", "/", "8000"},
		} {
			got := admitted(s, r[0], r[1], "E2b-Sandbox-Id: "+outer(boxID), "E2b-Sandbox-Port: "+r[2], "X-Access-Token: "+token)
			if (got == 502) == c.there {
				t.Errorf("%s %s at port %s of a sandbox that is %q: %d", r[0], r[1], r[2], c.state, got)
			}
		}
	}
}

// TestUnknownIDs are 404, whatever their form is.
func TestUnknownIDs(t *testing.T) {
	svc := &apitest.Service{}
	svc.DeleteSnapshotFunc = func(_ context.Context, ref string, _ api.SnapshotDeletion) error {
		if err := api.ValidRef(api.KindSnapshot, "snapshot", ref); err != nil {
			return err
		}
		return api.NotFound("snapshot", ref)
	}
	svc.SnapshotsFunc = func(context.Context) ([]api.Snapshot, error) { return nil, nil }
	keys{"a": api.ScopeAdmin}.install(svc)
	s := newServer(t, svc)
	own, _ := s.Routes()
	for _, route := range own {
		method, pattern, _ := strings.Cut(route, " ")
		if !strings.Contains(pattern, "/sandboxes/{id}") && route != "DELETE /templates/{id}" {
			continue
		}
		for _, id := range []string{"nonexistingsandbox", "UPPER", "a..b", "-a", "sbx_x", strings.Repeat("x", 300), "%C3%BC"} {
			w := ask(s, method, strings.ReplaceAll(pattern, "{id}", id), "{}", "X-API-KEY: "+httpwire.SecretPrefix+"a")
			if w.Code != 404 {
				t.Errorf("%s of %.20s: %d %s", route, id, w.Code, w.Body)
			}
		}
	}
}
