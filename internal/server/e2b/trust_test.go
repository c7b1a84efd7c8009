package e2b

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service"
	"ramet.dev/ramet/internal/service/access"
)

const boxID = "sbx_aaaaaaaaaaaaaaaa"

// newServer returns a server for svc.
func newServer(t *testing.T, svc *apitest.Service) *Server {
	t.Helper()
	if svc.ListFunc == nil {
		svc.ListFunc = func(context.Context, api.ListFilter) ([]api.Sandbox, error) { return nil, nil }
	}
	s, err := New(Config{Service: svc, Key: newTokens(), Dir: t.TempDir() + "/files", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestASandboxCannotOpenItsPorts asks for a port of a sandbox whose ports are public, by its own word and by that of
// the request that made it.
func TestASandboxCannotOpenItsPorts(t *testing.T) {
	for _, c := range []struct {
		claimed []string
		want    int
	}{{[]string{metaPublic}, 401}, {nil, 502}} {
		svc := &apitest.Service{
			ListFunc: func(context.Context, api.ListFilter) ([]api.Sandbox, error) {
				return []api.Sandbox{{ID: boxID, State: api.StateRunning, Metadata: map[string]string{metaPublic: "true"}, Claimed: c.claimed}}, nil
			},
			DialPortFunc: func(context.Context, string, uint16, time.Duration) (service.PortConn, error) {
				return nil, api.Errorf(api.CodeUnavailable, "no server")
			},
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set("E2b-Sandbox-Id", outer(boxID))
		r.Header.Set("E2b-Sandbox-Port", "8000")
		w := httptest.NewRecorder()
		newServer(t, svc).ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("with claims %v: %d %s, want %d", c.claimed, w.Code, w.Body, c.want)
		}
	}
}

// TestTemplatesAreKnownByTheirMark has a caller plant a snapshot with the name of a template.
func TestTemplatesAreKnownByTheirMark(t *testing.T) {
	warm := recipes[templateBase].snapshot(templateBase)
	planted := api.Snapshot{ID: "snap_planted", Name: warm, State: api.SnapshotReady}
	all := []api.Snapshot{planted}
	svc := &apitest.Service{}
	svc.SnapshotsFunc = func(context.Context) ([]api.Snapshot, error) { return all, nil }
	svc.GetSnapshotFunc = func(_ context.Context, ref string) (*api.Snapshot, error) {
		for i := range all {
			if all[i].Name == ref {
				return &all[i], nil
			}
		}
		return nil, api.NotFound("snapshot", ref)
	}
	svc.CreateImageFunc = func(context.Context, api.ImageRequest, func(api.Progress)) (*api.Image, error) {
		return &api.Image{ID: "img_x"}, nil
	}
	svc.CreateFunc = func(context.Context, api.CreateRequest) (*api.Sandbox, error) { return &api.Sandbox{ID: boxID}, nil }
	svc.DestroyFunc = func(context.Context, string) error { return nil }
	svc.ExecFunc = func(context.Context, string, api.ExecRequest, api.ExecIO) (*api.ExecResult, error) {
		return &api.ExecResult{OK: true}, nil
	}
	svc.SnapshotFunc = func(_ context.Context, _ string, req api.SnapshotRequest) (*api.Snapshot, error) {
		if req.Name == warm {
			return nil, api.Errorf(api.CodeNameTaken, "the name is taken")
		}
		all = append(all, api.Snapshot{ID: "snap_made", Name: req.Name, State: api.SnapshotReady, Template: req.Template})
		return &all[len(all)-1], nil
	}
	s := newServer(t, svc)
	ctx := access.With(t.Context(), access.Caller{Tenant: "acme", Scope: api.ScopeAdmin, Token: "tok_x"})
	for range 2 { // the second one finds it
		from, as, err := s.templates.find(ctx, "")
		if err != nil || from != "snap_made" || as != user || len(all) != 2 {
			t.Errorf("the template is %s for %s (%v) of %d snapshots", from, as, err, len(all))
		}
	}
}

// TestWhatIsNotThereIsRefused: nothing that a client asks for is left out in silence.
func TestWhatIsNotThereIsRefused(t *testing.T) {
	for body, code := range map[string]api.Code{
		`{}`: "", `{"autoPause":true}`: "", `{"metadata":{"a":"b"}}`: "",
		`{"mcp":{"x":{}}}`:                           api.CodeUnsupported,
		`{"iam":{"tokens":{}}}`:                      api.CodeUnsupported,
		`{"autoPause":true,"autoPauseMemory":false}`: api.CodeUnsupported,
		`{"metadata":{"e2b/user":"root"}}`:           api.CodeInvalid,
	} {
		var n newSandbox
		if err := json.Unmarshal([]byte(body), &n); err != nil {
			t.Fatal(err)
		}
		if err := n.unsupported(); api.CodeOf(err) != code {
			t.Errorf("%s: %v", body, err)
		}
	}
}
