package rest_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// change makes a request with a key.
func change(server http.Handler, method, target, body, key string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(httpwire.IdempotencyHeader, key)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w
}

// counting is a service that makes another sandbox with each call.
func counting(made *atomic.Int32) *apitest.Service {
	return &apitest.Service{CreateFunc: func(_ context.Context, req api.CreateRequest) (*api.Sandbox, error) {
		n := made.Add(1)
		if req.Name == "bad" {
			return nil, api.Errorf(api.CodeNoMemory, "try again")
		}
		return someSandbox(fmt.Sprintf("sbx_%s%d", strings.Repeat("a", 15), n+1)), nil
	}}
}

func TestARequestWithAKeyIsDoneOnce(t *testing.T) {
	var made atomic.Int32
	svc := counting(&made)
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: svc})
	first := change(server, "POST", "/v1/sandboxes", `{"image":"a"}`, "k")
	server = rest.New(rest.Config{Identify: apitest.Owner, Service: svc}) // another daemon
	again := change(server, "POST", "/v1/sandboxes", `{"image":"a"}`, "k")
	if first.Code != 201 || again.Code != 201 || first.Body.String() != again.Body.String() || first.Header().Get("Content-Type") != again.Header().Get("Content-Type") {
		t.Errorf("status %d %s, then %d %s", first.Code, first.Body, again.Code, again.Body)
	}
	if first.Header().Get(httpwire.ReplayedHeader) != "" || again.Header().Get(httpwire.ReplayedHeader) != "true" {
		t.Error("the answers do not say which is the repeated one")
	}
	if other := change(server, "POST", "/v1/sandboxes", `{"image":"b"}`, "k"); other.Code != 422 {
		t.Errorf("another request with this key: status %d %s", other.Code, other.Body)
	}
	if other := change(server, "POST", "/v1/sandboxes", `{"image":"a"}`, "k", "If-Match", `"etag"`); other.Code != 422 {
		t.Errorf("another condition with this key: status %d %s", other.Code, other.Body)
	}
	if other := change(server, "POST", "/v1/sandboxes", `{"image":"a"}`, "l"); other.Code != 201 || other.Body.String() == first.Body.String() {
		t.Errorf("another key: status %d %s", other.Code, other.Body)
	}
	if n := made.Load(); n != 2 {
		t.Errorf("%d sandboxes were made", n)
	}
	for _, key := range []string{"a b", "\x01", strings.Repeat("k", 256), "ü"} {
		if w := change(server, "POST", "/v1/sandboxes", `{"image":"a"}`, key); w.Code != 400 {
			t.Errorf("key %q: status %d", key, w.Code)
		}
	}
}

func TestWhatFailedMayBeTriedAgain(t *testing.T) {
	var made atomic.Int32
	svc := counting(&made)
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: svc})
	for range 2 {
		if w := change(server, "POST", "/v1/sandboxes", `{"image":"a","name":"bad"}`, "k"); w.Code != 507 {
			t.Errorf("status %d %s", w.Code, w.Body)
		}
	}
	if w := change(server, "POST", "/v1/sandboxes", `{"image":"a"}`, "k"); w.Code != 201 {
		t.Errorf("status %d %s", w.Code, w.Body)
	}
	if n := made.Load(); n != 3 {
		t.Errorf("%d calls", n)
	}
}

func TestCallersHaveKeysOfTheirOwn(t *testing.T) {
	var made atomic.Int32
	svc := counting(&made)
	server := strangers(svc)
	for _, who := range []string{"admin.a", "admin.b"} {
		if w := change(server, "POST", "/v1/sandboxes", `{"image":"a"}`, "k", bearer(who)...); w.Code != 201 || w.Header().Get(httpwire.ReplayedHeader) != "" {
			t.Errorf("%s: status %d %s", who, w.Code, w.Body)
		}
	}
	var of []string
	for _, a := range svc.Kept() {
		of = append(of, a.Tenant)
	}
	if slices.Sort(of); !slices.Equal(of, []string{"a", "b"}) {
		t.Errorf("answers are kept for %q", of)
	}
	if w := change(server, "POST", "/v1/sandboxes", `{"image":"a"}`, "k", bearer("read.a")...); w.Code != 403 {
		t.Errorf("a reader: status %d %s", w.Code, w.Body)
	}
}

func TestTheSameKeyAtTheSameTime(t *testing.T) {
	var made atomic.Int32
	begun, end := make(chan struct{}), make(chan struct{})
	svc := &apitest.Service{CreateFunc: func(context.Context, api.CreateRequest) (*api.Sandbox, error) {
		made.Add(1)
		close(begun)
		<-end
		return someSandbox(sbxA), nil
	}}
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: svc})
	var wg sync.WaitGroup
	answers := make(chan *httptest.ResponseRecorder, 5)
	ask := func() { answers <- change(server, "POST", "/v1/sandboxes", `{"image":"a"}`, "k") }
	wg.Go(ask)
	<-begun
	for range 4 {
		wg.Go(ask)
	}
	close(end)
	wg.Wait()
	close(answers)
	for w := range answers {
		if w.Code != 201 || !strings.Contains(w.Body.String(), sbxA) {
			t.Errorf("status %d %s", w.Code, w.Body)
		}
	}
	if n := made.Load(); n != 1 {
		t.Errorf("it was done %d times", n)
	}
}

func TestADaemonThatDiedLeavesTheOutcomeOpen(t *testing.T) {
	svc := counting(new(atomic.Int32))
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: svc})
	svc.CreateFunc = func(context.Context, api.CreateRequest) (*api.Sandbox, error) {
		// Another daemon, to which this one died in the middle.
		later := rest.New(rest.Config{Identify: apitest.Owner, Service: svc})
		w := change(later, "POST", "/v1/sandboxes", `{"image":"a"}`, "k")
		if w.Code != 409 || !strings.Contains(w.Body.String(), "nobody knows") {
			t.Errorf("status %d %s", w.Code, w.Body)
		}
		return someSandbox(sbxA), nil
	}
	change(server, "POST", "/v1/sandboxes", `{"image":"a"}`, "k")
}

func TestSecretAndLargeAnswersAreNotKept(t *testing.T) {
	svc := &apitest.Service{ExecFunc: func(_ context.Context, _ string, req api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
		if req.Shell == "fail" {
			_, _ = io.WriteString(s.Stdout, "begun")
			return nil, api.Errorf(api.CodeSandboxDied, "in the middle")
		}
		_, err := io.WriteString(s.Stdout, strings.Repeat("x", 300<<10))
		return &api.ExecResult{OK: true}, err
	}}
	svc.CreateTokenFunc = func(context.Context, api.TokenRequest) (*api.IssuedToken, error) {
		return &api.IssuedToken{Secret: "ramet_hunter2"}, nil
	}
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: svc})
	for _, c := range [][2]string{{"/v1/tokens", `{"scope":"read"}`}, {"/v1/sandboxes/a/exec", `{"shell":"x"}`}} {
		if w := change(server, "POST", c[0], c[1], "k"+c[0]); w.Code > 299 {
			t.Errorf("%s: status %d %s", c[0], w.Code, w.Body)
		}
		if w := change(server, "POST", c[0], c[1], "k"+c[0]); w.Code != 409 {
			t.Errorf("%s again: status %d", c[0], w.Code)
		}
	}
	for _, a := range svc.Kept() {
		if len(a.Body) > 0 {
			t.Errorf("it was kept: %.100q", a.Body)
		}
	}
	for _, accept := range []string{httpwire.EventType, httpwire.FrameType} {
		for range 2 {
			if w := change(server, "POST", "/v1/sandboxes/a/exec", `{"shell":"fail"}`, "f", "Accept", accept); w.Code != 200 || w.Header().Get(httpwire.ReplayedHeader) != "" {
				t.Errorf("a stream that ended with an error: status %d, %q", w.Code, w.Header())
			}
		}
	}
}

// TestAKeyOfAnUpload has a body that is too long to be kept, with the key that SDKs send.
func TestAKeyOfAnUpload(t *testing.T) {
	const long = 20 << 20
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: &apitest.Service{SnapshotFuncs: apitest.SnapshotFuncs{
		UnpackFunc: func(_ context.Context, r io.Reader, req api.UnpackRequest) (*api.Snapshot, error) {
			if n, err := io.Copy(io.Discard, r); err != nil || n != long || !slices.Equal(req.Trust, []string{"a", "b"}) {
				return nil, api.Errorf(api.CodeCorrupt, "%d bytes, %v, %v", n, err, req)
			}
			return &api.Snapshot{ID: "snap_aaaaaaaaaaaaaaaa"}, nil
		},
	}}})
	w := httptest.NewServer(server)
	defer w.Close()
	req, err := http.NewRequest(http.MethodPost, w.URL+"/v1/snapshots/unpack?trust=a&trust=b", strings.NewReader(strings.Repeat("x", long)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(httpwire.IdempotencyHeader, "k")
	req.Header.Set("Content-Type", "application/x-tar")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusCreated {
		t.Errorf("status %d %s, %v", res.StatusCode, body, err)
	}
}
