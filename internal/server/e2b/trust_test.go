package e2b

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/e2b/grant"
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
	s, err := New(Config{Service: svc, Key: make([]byte, 32), Dir: t.TempDir() + "/files", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// keys are API keys by their secrets, of tenant acme.
type keys map[string]api.Scope

func (k keys) install(svc *apitest.Service) {
	svc.SessionOfFunc = func(_ context.Context, key string) (*service.Session, error) {
		scope, ok := k[key]
		if !ok {
			return nil, api.Errorf(api.CodeUnknownUser, "no such key")
		}
		return &service.Session{Key: key, Caller: access.Caller{Tenant: "acme", Scope: scope, Token: "tok_" + key}}, nil
	}
	svc.AuthenticateFunc = func(ctx context.Context, secret string, _ bool) (*service.Session, error) {
		return svc.SessionOf(ctx, strings.TrimPrefix(secret, httpwire.SecretPrefix))
	}
	svc.SessionsFunc = func(ctx context.Context, tenant string) (all []*service.Session) {
		for key := range k {
			if s, err := svc.SessionOf(ctx, key); err == nil && tenant == "acme" {
				all = append(all, s)
			}
		}
		return all
	}
}

// ask sends a request with headers NAME: VALUE.
func ask(s http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// TestKeysGetWhatTheirScopeCovers asks with keys of each scope for what lets its holder write.
func TestKeysGetWhatTheirScopeCovers(t *testing.T) {
	svc := &apitest.Service{
		ListFunc: func(context.Context, api.ListFilter) ([]api.Sandbox, error) {
			return []api.Sandbox{{ID: boxID, Tenant: "acme", State: api.StateRunning}}, nil
		},
		VolumeFuncs: apitest.VolumeFuncs{GetVolumeFunc: func(context.Context, string) (*api.Volume, error) {
			return &api.Volume{ID: "vol_aaaaaaaaaaaaaaaa", Tenant: "acme"}, nil
		}},
	}
	all := keys{"r": api.ScopeRead, "e": api.ScopeExec, "a": api.ScopeAdmin}
	all.install(svc)
	s := newServer(t, svc)
	hash := strings.Repeat("0", 64)
	token := func(key, path, field string) (int, string) {
		w := ask(s, "GET", path, "", "X-API-KEY: "+httpwire.SecretPrefix+key)
		var got map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		text, _ := got[field].(string)
		return w.Code, text
	}
	for _, c := range []struct {
		path, field, has string
		status           int // of a key without it
	}{
		{"/sandboxes/" + outer(boxID), "envdAccessToken", "ea", 200}, {"/volumes/vol_aaaaaaaaaaaaaaaa", "token", "a", 200},
		{"/templates/x/files/" + hash, "url", "a", 403},
	} {
		for key := range all {
			status, got := token(key, c.path, c.field)
			want := strings.Contains(c.has, key)
			if (got != "") != want || !want && status != c.status {
				t.Errorf("key %s at %s: %d and %q", key, c.path, status, got)
			}
		}
	}

	// What was given ends with the key.
	_, access := token("e", "/sandboxes/"+outer(boxID), "envdAccessToken")
	use := func() int {
		return ask(s, "GET", "/envs", "", "E2b-Sandbox-Id: "+outer(boxID), "X-Access-Token: "+access).Code
	}
	if got := use(); got != 200 {
		t.Errorf("the access token of a key: %d", got)
	}
	delete(all, "e")
	if got := use(); got != 401 {
		t.Errorf("the access token of a key that has ended: %d", got)
	}
}

// TestASignatureIsForFilesAlone, and not for a server at another port that has the path.
func TestASignatureIsForFilesAlone(t *testing.T) {
	dialed := 0
	svc := &apitest.Service{
		ListFunc: func(context.Context, api.ListFilter) ([]api.Sandbox, error) {
			return []api.Sandbox{{ID: boxID, Tenant: "acme", State: api.StateRunning}}, nil
		},
		DialPortFunc: func(context.Context, string, uint16, time.Duration) (service.PortConn, error) {
			dialed++
			return nil, api.Errorf(api.CodeUnavailable, "no server")
		},
		Files: missing{},
	}
	keys{"e": api.ScopeExec}.install(svc)
	s := newServer(t, svc)
	session, err := svc.SessionOf(t.Context(), "e")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("/a:read::" + s.grants.Token(session, grant.Access, boxID)))
	target := "/files?" + url.Values{"path": {"/a"}, "signature": {"v1_" + base64.RawStdEncoding.EncodeToString(sum[:])}}.Encode()
	for _, c := range []struct {
		port, path string
		want       int
	}{{"", target, 404}, {"49983", target, 404}, {"8000", target, 401}, {"49999", target, 401}, {"49983", "/envs" + target[6:], 401}} {
		headers := []string{"E2b-Sandbox-Id: " + outer(boxID), "E2b-Sandbox-Port: " + c.port}
		if c.port == "" {
			headers = nil // the signature names the sandbox
		}
		if w := ask(s, "GET", c.path, "", headers...); w.Code != c.want {
			t.Errorf("port %q, %.6s: %d %s, want %d", c.port, c.path, w.Code, w.Body, c.want)
		}
	}
	if dialed != 0 {
		t.Error("a server of the sandbox was reached")
	}
}

// TestServersInSandboxesSeeNoTokens asks a server that answers with what it was sent.
func TestServersInSandboxesSeeNoTokens(t *testing.T) {
	guest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Set-Cookie": "x=1; Domain=localhost", "Strict-Transport-Security": "max-age=9", "Clear-Site-Data": `"*"`, "Alt-Svc": `h3=":1"`, "Service-Worker-Allowed": "/", "X-Own": "kept",
		} {
			w.Header().Set(name, value)
		}
		w.Header().Add("Link", "</early>")
		w.WriteHeader(http.StatusEarlyHints)
		fmt.Fprintln(w, r.URL.RawQuery)
		_ = r.Header.Write(w)
	}))
	defer guest.Close()
	svc := &apitest.Service{DialPortFunc: func(ctx context.Context, _ string, _ uint16, _ time.Duration) (service.PortConn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", guest.Listener.Addr().String())
		if err != nil {
			return nil, err
		}
		return c.(service.PortConn), nil
	}, ListFunc: func(context.Context, api.ListFilter) ([]api.Sandbox, error) {
		return []api.Sandbox{{ID: boxID, Tenant: "acme", State: api.StateRunning}}, nil
	}}
	keys{"a": api.ScopeAdmin}.install(svc)
	s := newServer(t, svc)
	session, err := svc.SessionOf(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	secret := httpwire.SecretPrefix + strings.Repeat("a", 52)
	access := s.grants.Token(session, grant.Access, boxID)
	w := ask(s, "GET", "/x?a=1&access_token="+secret, "", "E2b-Sandbox-Id: "+outer(boxID), "E2b-Sandbox-Port: 8000", "E2B-Traffic-Access-Token: "+access,
		"Authorization: Bearer "+httpwire.E2BKey(secret), "X-Ramet-Token: "+secret, "X-API-KEY: "+secret, "X-Other: "+secret, "Cookie: ramet_port_1=x; own=1")
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	got := w.Body.String()
	for _, hidden := range []string{secret, httpwire.E2BKey(secret), access, "ramet_port_1"} {
		if strings.Contains(got, hidden) {
			t.Errorf("the server sees %.12s…:\n%s", hidden, got)
		}
	}
	if !strings.Contains(got, "a=1\n") || !strings.Contains(got, "Cookie: own=1") {
		t.Errorf("the server misses what is its own:\n%s", got)
	}
	for _, name := range []string{"Strict-Transport-Security", "Clear-Site-Data", "Alt-Svc", "Service-Worker-Allowed"} {
		if v := w.Header().Get(name); v != "" {
			t.Errorf("%s: %s passes", name, v)
		}
	}
	if c := w.Header().Get("Set-Cookie"); c != "x=1" || w.Header().Get("X-Own") != "kept" {
		t.Errorf("%v", w.Header())
	}
}

// missing has no files.
type missing struct{ service.Files }

func (missing) OpenFile(_ context.Context, _ string, f api.FileRef) (service.OpenFile, error) {
	return nil, api.NotFound("file", f.Path)
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
	if !api.IsTemplateName(warm) || api.IsTemplateName("e2b-mine") || api.IsTemplateName("mine-01234567") {
		t.Errorf("the name %s is not kept for templates, or others are", warm)
	}
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
		`{"mcp":{"x":{}}}`:                           "", // the client starts the gateway, if the template has it
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
