package tracing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// collector keeps what it gets.
type collector struct {
	*httptest.Server
	mu    sync.Mutex
	spans []spanData
	// services are those that the spans belong to, by id.
	services map[string]string
	header   http.Header
	path     string
}

func newCollector(t *testing.T, status int) *collector {
	t.Helper()
	c := &collector{services: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var req exportRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.header, c.path = r.Header, r.URL.Path
		for _, rs := range req.ResourceSpans {
			for _, ss := range rs.ScopeSpans {
				c.spans = append(c.spans, ss.Spans...)
				for _, s := range ss.Spans {
					for _, a := range rs.Resource.Attributes {
						if a.Key == "service.name" {
							c.services[s.SpanID] = fmt.Sprint(a.Value["stringValue"])
						}
					}
				}
			}
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(c.Close)
	return c
}

// span returns the span of a name.
func (c *collector) span(t *testing.T, name string) spanData {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.spans, func(s spanData) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no span %q in %+v", name, c.spans)
	}
	return c.spans[i]
}

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// fails reports what must not go wrong.
func fails(t *testing.T) func(error) { return func(err error) { t.Error(err) } }

// TestTraceFromCommandToSentry follows one request.
func TestTraceFromCommandToSentry(t *testing.T) {
	ctx := context.Background()
	c := newCollector(t, http.StatusOK)
	tr, err := Open("ramet", "v1", env("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL+"/base", "OTEL_EXPORTER_OTLP_HEADERS", "X-Key=a%20b, X-Other=c"), fails(t))
	if err != nil || tr == nil {
		t.Fatalf("%v, %v", tr, err)
	}
	daemon := httptest.NewServer(tr.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		opCtx, end := Observer{}.Begin(r.Context(), "fork")
		callCtx, call := Start(opCtx, "sentry freeze")
		for began := time.Now(); time.Since(began) < 10*time.Microsecond; { // as long as its stages, at least
		}
		Sentry(callCtx, "freeze", []Stage{{"find", 0.001}, {"save", 0.002}})
		call(nil)
		end(api.NotFound("sandbox", "secret name"))
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, "answer")
	})))
	defer daemon.Close()
	const parent = "4bf92f3577b34da6a3ce929d0e0e4736"
	ctx, ended := tr.Root(ctx, "ramet fork", "00-"+parent+"-00f067aa0ba902b7-01")
	client := http.Client{Transport: Transport(http.DefaultTransport)}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, "POST", daemon.URL+"/v1/sandboxes/sbx_a/fork", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "answer" {
		t.Errorf("%q, %v", b, err)
	}
	resp.Body.Close()
	ended("exit code 3")
	if err := tr.Close(context.Background()); err != nil {
		t.Fatal(err)
	}

	root, fork, freeze := c.span(t, "ramet fork"), c.span(t, "node fork"), c.span(t, "sentry freeze")
	var asked, served spanData
	for _, s := range c.spans {
		if s.Name == "POST /v1/sandboxes/{}/fork" && s.Kind == 3 {
			asked = s
		} else if s.Name == "POST /v1/sandboxes/{}/fork" && s.Kind == 2 {
			served = s
		}
	}
	line := []spanData{root, asked, served, fork, freeze}
	for i, s := range line {
		if s.TraceID != parent || s.End < s.Start || s.Start == 0 {
			t.Errorf("span %q: %+v", s.Name, s)
		}
		if i > 0 && s.ParentID != line[i-1].SpanID {
			t.Errorf("%q is not below %q", s.Name, line[i-1].Name)
		}
	}
	find, save := c.span(t, "freeze find"), c.span(t, "freeze save")
	for _, s := range []spanData{find, save} {
		if s.TraceID != parent || s.ParentID != freeze.SpanID || s.Start < freeze.Start || s.End > freeze.End || c.services[s.SpanID] != "ramet-sentry" {
			t.Errorf("of the service %q: %+v, below %+v", c.services[s.SpanID], s, freeze)
		}
	}
	if find.End != save.Start || save.End-save.Start != 2000 || c.services[freeze.SpanID] != "ramet" {
		t.Errorf("%+v, and then %+v", find, save)
	}
	if root.ParentID != "00f067aa0ba902b7" || len(c.spans) != len(line)+2 {
		t.Errorf("%d spans, the first below %q", len(c.spans), root.ParentID)
	}
	if fork.Status != (status{Message: "not_found", Code: 2}) || freeze.Status != (status{}) || root.Status != (status{Message: "exit code 3", Code: 2}) || asked.Status.Code != 2 {
		t.Errorf("status %+v, %+v, %+v, %+v", fork.Status, freeze.Status, root.Status, asked.Status)
	}
	if c.header.Get("X-Key") != "a b" || c.header.Get("X-Other") != "c" || c.path != "/base/v1/traces" {
		t.Errorf("sent to %s with %v", c.path, c.header)
	}
	if all, err := json.Marshal(c.spans); err != nil || strings.Contains(string(all), "secret") {
		t.Errorf("words of an error are in %s, %v", all, err)
	}
}

// TestSentriesAreNotBelieved has one say things of its time that cannot be.
func TestSentriesAreNotBelieved(t *testing.T) {
	c := newCollector(t, http.StatusOK)
	tr, err := Open("ramet", "v1", env("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL), fails(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, ended := tr.Root(context.Background(), "call", "")
	stages := []Stage{{"early", 1e300}, {strings.Repeat("y", 100), math.Inf(1)}, {"nan", math.NaN()}, {"negative", -1}, {"\xff", 0.001}}
	for i := range 100 {
		stages = append(stages, Stage{fmt.Sprint("z", i), 0})
	}
	Sentry(ctx, "freeze", stages)
	ended("")
	Sentry(ctx, "late", stages) // the span has ended
	Sentry(context.Background(), "nobody's", stages)
	if err := tr.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	call := c.span(t, "call")
	if len(c.spans) != 1+maxStages {
		t.Errorf("%d spans", len(c.spans))
	}
	for _, s := range c.spans {
		if s.Start < call.Start || s.End > call.End || s.End < s.Start || len(s.Name) > maxStage+len("freeze ") {
			t.Errorf("%+v in %+v", s, call)
		}
	}
	if all := c.span(t, "freeze "+strings.Repeat("y", maxStage)); all.Start != call.Start || c.span(t, "freeze nan").End != c.span(t, "freeze nan").Start || c.span(t, "freeze ?").ParentID != call.SpanID {
		t.Errorf("%+v", c.spans)
	}
}

func TestOffByDefault(t *testing.T) {
	for _, e := range []func(string) string{env(), env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a", "OTEL_SDK_DISABLED", "true"), env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a", "OTEL_TRACES_EXPORTER", "none")} {
		tr, err := Open("ramet", "v1", e, fails(t))
		if tr != nil || err != nil {
			t.Errorf("%v, %v", tr, err)
		}
	}
	var off *Tracing
	ctx, ended := off.Root(context.Background(), "x", "")
	ended("")
	if _, end := Start(ctx, "y"); end == nil {
		t.Error("no end")
	}
	handler := http.NotFoundHandler()
	served := httptest.NewRecorder()
	off.Handler(handler).ServeHTTP(served, httptest.NewRequest("GET", "/", nil))
	if served.Code != http.StatusNotFound || off.Close(ctx) != nil {
		t.Errorf("without traces: %d", served.Code)
	}
	seen := ""
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header.Get("traceparent") }))
	defer server.Close()
	resp, err := Transport(http.DefaultTransport).RoundTrip(httptest.NewRequest("GET", server.URL, nil))
	if err != nil || seen != "" {
		t.Errorf("%v, traceparent %q", err, seen)
	}
	resp.Body.Close()
}

func TestEnvironmentThatMakesNoSense(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	for name, e := range map[string][]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT":        {endpoint, "localhost:4317"},
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ftp://x"},
		"OTEL_EXPORTER_OTLP_PROTOCOL":        {endpoint, "http://x", "OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		"OTEL_EXPORTER_OTLP_TIMEOUT":         {endpoint, "http://x", "OTEL_EXPORTER_OTLP_TIMEOUT", "soon"},
		"OTEL_EXPORTER_OTLP_HEADERS":         {endpoint, "http://x", "OTEL_EXPORTER_OTLP_HEADERS", "secret"},
	} {
		_, err := Open("ramet", "v1", env(e...), fails(t))
		var bad *api.Error
		if !errors.As(err, &bad) || bad.Code != api.CodeInvalid || bad.Field != name || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCollectorRefuses checks that a collector which fails harms nobody and is told of.
func TestCollectorRefuses(t *testing.T) {
	c := newCollector(t, http.StatusTeapot)
	var mu sync.Mutex
	var reported []error
	tr, err := Open("ramet", "v1", env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.URL+"/own/path"), func(err error) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, err)
	})
	if err != nil {
		t.Fatal(err)
	}
	_, ended := tr.Root(context.Background(), "x", "nonsense")
	ended("")
	err = tr.Close(context.Background())
	mu.Lock()
	defer mu.Unlock()
	if all := errors.Join(append(reported, err)...); all == nil || !strings.Contains(all.Error(), "418") {
		t.Errorf("nobody was told: %v", all)
	}
	if c.path != "/own/path" {
		t.Errorf("sent to %s", c.path)
	}
}

func TestRouteOf(t *testing.T) {
	for path, want := range map[string]string{
		"/healthz": "/healthz", "/v1/sandboxes": "/v1/sandboxes", "/v1/sandboxes/a": "/v1/sandboxes/{}",
		"/v1/sandboxes/a/processes/7/output": "/v1/sandboxes/{}/processes/{}/output", "/v1/sandboxes/a/ports/80/x/y/z": "/v1/sandboxes/{}/ports/{}", "/": "/{}", "/reset?token": "/{}", "": "/{}",
	} {
		if got := routeOf(path); got != want {
			t.Errorf("%s is %s, not %s", path, got, want)
		}
	}
}
