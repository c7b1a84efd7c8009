package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sbxA  = "sbx_aaaaaaaaaaaaaaaa"
	xplA  = "xpl_aaaaaaaaaaaaaaaa"
	sbxB  = "sbx_bbbbbbbbbbbbbbbb"
	snapA = "snap_aaaaaaaaaaaaaaaa"
	imgA  = "img_aaaaaaaaaaaaaaaa"
)

var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func someSandbox(id string) *api.Sandbox {
	on := api.LayerOn
	return &api.Sandbox{ID: id, State: api.StateRunning, Image: imgA, CreatedAt: created, Isolation: api.Isolation{
		Sentry: on, Systrap: on, Seccomp: on, NoNewPrivs: on, Caps: on, UserNS: on, OwnUser: api.LayerOff, Namespaces: on, EmptyRoot: on, Landlock: on, Rlimits: on, Cgroup: api.LayerOff,
	}}
}

func someExploration(id string, state api.ExplorationState) *api.Exploration {
	return &api.Exploration{ID: id, State: state, Strategy: api.SearchAll, Goal: api.GoalMax, Then: api.ThenNone, CreatedAt: created}
}

// testClient is a plain HTTP client of a socket.
func testClient(t *testing.T, socket string) *http.Client {
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

type answer struct {
	status int
	header http.Header
	body   string
}

func ask(t *testing.T, c *http.Client, method, path, body string, headers ...string) answer {
	t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, "http://ramet"+path, in)
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
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
	return answer{resp.StatusCode, resp.Header, string(b)}
}

// problem checks that a is a problem document and returns it.
func (a answer) problem(t *testing.T) httpwire.Problem {
	t.Helper()
	var p httpwire.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("status %d, not a problem: %v\n%s", a.status, err, a.body)
	}
	if ct := a.header.Get("Content-Type"); ct != httpwire.ProblemType {
		t.Errorf("Content-Type = %q", ct)
	}
	if p.Status != a.status || p.Code == "" || p.Title == "" || p.Detail == "" || p.Type == "" {
		t.Errorf("incomplete problem of status %d: %s", a.status, a.body)
	}
	if id := a.header.Get(httpwire.RequestIDHeader); id == "" || p.RequestID != id {
		t.Errorf("request id %q in the header, %q in the problem", id, p.RequestID)
	}
	return p
}

func record(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}
