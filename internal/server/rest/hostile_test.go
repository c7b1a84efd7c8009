package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

func contains(s, sub string) bool { return strings.Contains(s, sub) }

func TestRefusals(t *testing.T) {
	const one = "/v1/sandboxes/" + sbxA
	big := strings.Repeat("x", 1<<20)
	var calls []string
	client := testClient(t, apitest.Serve(t, recorder(&calls)))
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		field                    string
	}{
		{"path as id", "GET", "/v1/sandboxes/..%2f..%2fetc%2fpasswd", "", 400, "id"},
		{"upper-case id", "GET", "/v1/sandboxes/SBX_AAAAAAAAAAAAAAAA", "", 400, "id"},
		{"id with NUL", "DELETE", "/v1/sandboxes/a%00b", "", 400, "id"},
		{"long id", "GET", "/v1/sandboxes/" + strings.Repeat("a", 4000), "", 400, "id"},
		{"id with newline", "GET", "/v1/snapshots/a%0a", "", 400, "id"},
		{"dots in image", "GET", "/v1/images/a%2f..%2f..%2fb", "", 400, "ref"},
		{"long image", "GET", "/v1/images/" + strings.Repeat("a", 256), "", 400, "ref"},
		{"image that is absolute", "GET", "/v1/images/%2fetc", "", 400, "ref"},
		{"unclean path", "GET", "/v1/sandboxes/../images", "", 404, ""},
		{"double slash", "GET", "/v1//sandboxes", "", 404, ""},
		{"trailing slash", "GET", "/v1/sandboxes/", "", 404, ""},
		{"unknown route", "GET", "/v1/contexts", "", 404, ""},
		{"documentation pages", "GET", "/docs", "", 404, ""},
		{"wrong method", "PUT", "/v1/sandboxes", "", 405, ""},
		{"wrong method of a list", "DELETE", "/v1/images", "", 405, ""},
		{"wrong method of a list with a query", "DELETE", "/v1/images?limit=1", "", 405, ""},
		{"query: unknown", "GET", "/v1/sandboxes?stat=running", "", 400, "stat"},
		{"query: unknown to a route of ours", "GET", one + "/ports/80?wiat=1s", "", 400, "wiat"},
		{"query: unknown to a WebSocket", "GET", one + "/exec?cwd=%2F", "", 400, "cwd"},
		{"query: number without a value", "GET", "/v1/sandboxes?limit=", "", 400, "limit"},
		{"query: state without a value", "GET", "/v1/sandboxes?state=", "", 400, "state"},
		{"query: name without a value", "GET", "/v1/sandboxes?name=", "", 400, "name"},
		{"query: flag without a value", "GET", one + "/logs?follow", "", 400, "follow"},
		{"query: one of two without a value", "GET", "/v1/sandboxes?metadata=k%3Dv&metadata=", "", 400, "metadata"},
		{"query: two values", "GET", "/v1/sandboxes?limit=1&limit=2", "", 400, "limit"},
		{"query: percent", "GET", "/v1/sandboxes?name=%zz", "", 400, "query"},
		{"query: semicolon", "GET", "/v1/sandboxes?limit=1;state=running", "", 400, "query"},
		{"query: state", "GET", "/v1/sandboxes?state=dead", "", 400, "state"},
		{"query: limit 0", "GET", "/v1/sandboxes?limit=0", "", 400, "limit"},
		{"query: limit", "GET", "/v1/sandboxes?limit=1001", "", 400, "limit"},
		{"query: limit text", "GET", "/v1/sandboxes?limit=x", "", 400, "limit"},
		{"query: token", "GET", "/v1/sandboxes?page_token=%21", "", 400, "page_token"},
		{"query: forged token", "GET", "/v1/sandboxes?page_token=MS4uLi8uLg", "", 400, "page_token"},
		{"query: metadata", "GET", "/v1/sandboxes?metadata=k", "", 400, "metadata"},
		{"query: parent", "GET", "/v1/sandboxes?parent=img_aaaaaaaaaaaaaaaa", "", 400, "parent"},
		{"query: ancestor", "GET", "/v1/sandboxes?ancestor=..", "", 400, "ancestor"},
		{"diff without to", "GET", one + "/diff", "", 400, "to"},
		{"diff with what", "GET", one + "/diff?to=img_aaaaaaaaaaaaaaaa", "", 400, "to"},
		{"diff path", "GET", one + "/diff?to=a&path=../x", "", 400, "path"},
		{"diff empty path", "GET", one + "/diff?to=a&path=", "", 400, "path"},
		{"diff empty path first", "GET", one + "/diff?to=a&path=&path=/a", "", 400, "path"},
		{"merge of nothing", "POST", one + "/merge", `{"from":[]}`, 400, "from"},
		{"merge of what", "POST", one + "/merge", `{"from":["img_aaaaaaaaaaaaaaaa"]}`, 400, "from"},
		{"merge somehow", "POST", one + "/merge", `{"from":["a"],"strategy":"magic"}`, 400, "strategy"},
		{"merge path", "POST", one + "/merge", `{"from":["a"],"paths":["x"]}`, 400, "paths"},
		{"diff unclean path", "GET", one + "/diff?to=a&path=/a/../b", "", 400, "path"},
		{"no body", "POST", "/v1/sandboxes", "", 400, ""},
		{"no JSON", "POST", "/v1/sandboxes", "{", 400, ""},
		{"no UTF-8", "POST", "/v1/sandboxes", "{\"image\":\"a\",\"metadata\":{\"k\":\"\xff\"}}", 400, ""},
		{"half a character", "POST", one + "/exec", `{"argv":["echo","\udcff"]}`, 400, ""},
		{"two values", "POST", "/v1/sandboxes", `{"image":"a"}{}`, 400, ""},
		{"wrong type", "POST", "/v1/sandboxes", `{"image":1}`, 400, "image"},
		{"not an object", "POST", "/v1/sandboxes", `[]`, 400, ""},
		{"unknown field", "POST", "/v1/sandboxes", `{"image":"a","imgae":1}`, 400, "imgae"},
		{"unknown nested field", "POST", "/v1/sandboxes", `{"image":"a","limits":{"ram":1}}`, 400, "limits.ram"},
		{"negative limit", "POST", "/v1/sandboxes", `{"image":"a","limits":{"pids":-1}}`, 400, "limits.pids"},
		{"limit of no number", "POST", "/v1/sandboxes", `{"image":"a","limits":{"open_files":"many"}}`, 400, "limits.open_files"},
		{"name", "POST", "/v1/sandboxes", `{"image":"a","name":"../x"}`, 400, "name"},
		{"name like an id", "POST", "/v1/sandboxes", `{"image":"a","name":"A"}`, 400, "name"},
		{"image", "POST", "/v1/sandboxes", `{"image":"../x"}`, 400, "image"},
		{"env", "POST", "/v1/sandboxes", `{"image":"a","env":{"A=B":"c"}}`, 400, "env"},
		{"env NUL", "POST", "/v1/sandboxes", `{"image":"a","env":{"A":"\u0000"}}`, 400, "env"},
		{"metadata key", "POST", "/v1/sandboxes", `{"image":"a","metadata":{"":"c"}}`, 400, "metadata"},
		{"metadata space", "POST", "/v1/sandboxes", `{"image":"a","metadata":{"a b":"c"}}`, 400, "metadata"},
		{"metadata NUL", "POST", one + "/fork", `{"metadata":{"a":"\u0000"}}`, 400, "metadata"},
		{"self-control without a number", "POST", "/v1/sandboxes", `{"image":"a","self_control":{"forks":1}}`, 400, "self_control"},
		{"self-control of too much", "POST", "/v1/sandboxes", `{"image":"a","self_control":{"forks":1001,"depth":1}}`, 400, "self_control.forks"},
		{"update of nothing", "PATCH", one, `{}`, 400, "name"},
		{"update without body", "PATCH", one, ``, 400, ""},
		{"update of a number", "PATCH", one, `{"metadata":{"a":1}}`, 400, "metadata.a"},
		{"update of the state", "PATCH", one, `{"state":"paused"}`, 400, "state"},
		{"too large", "POST", "/v1/sandboxes", `{"image":"` + big + `"}`, 413, ""},
		{"fork 0", "POST", one + "/fork", `{"count":0}`, 400, "count"},
		{"fork too many", "POST", one + "/fork", `{"count":1001}`, 400, "count"},
		{"fork names", "POST", one + "/fork", `{"count":3,"names":["a"]}`, 400, "names"},
		{"fork bad name", "POST", one + "/fork", `{"count":1,"names":["-"]}`, 400, "names"},
		{"fork one name twice", "POST", one + "/fork", `{"names":["a","b","a"]}`, 400, "names"},
		{"rollback", "POST", one + "/rollback", `{"snapshot":"/"}`, 400, "snapshot"},
		{"rollback without snapshot", "POST", one + "/rollback", `{}`, 400, "snapshot"},
		{"image of nothing", "POST", "/v1/images", `{"name":"a"}`, 400, "build"},
		{"image of two", "POST", "/v1/images", `{"name":"a","path":"/a","ref":"b"}`, 400, "build"},
		{"image of relative path", "POST", "/v1/images", `{"name":"a","path":"a"}`, 400, "path"},
		{"exec of nothing", "POST", one + "/exec", `{}`, 400, "argv"},
		{"exec of two", "POST", one + "/exec", `{"argv":["a"],"shell":"b"}`, 400, "argv"},
		{"exec NUL", "POST", one + "/exec", `{"argv":["a\u0000"]}`, 400, "argv"},
		{"exec empty program", "POST", one + "/exec", `{"argv":[""]}`, 400, "argv"},
		{"exec relative cwd", "POST", one + "/exec", `{"shell":"b","cwd":"x"}`, 400, "cwd"},
		{"exec negative timeout", "POST", one + "/exec", `{"shell":"b","timeout_ms":-1}`, 400, "timeout_ms"},
		{"exec stdin too large", "POST", one + "/exec", `{"shell":"b","stdin":"` + strings.Repeat(big, 8) + `y"}`, 400, "stdin"},
		{"exec far too large", "POST", one + "/exec", `{"shell":"b","stdin":"` + strings.Repeat(big, 18) + `"}`, 413, ""},
		{"exec socket without upgrade", "GET", one + "/exec", "", 426, ""},
		{"exec socket of a bad id", "GET", "/v1/sandboxes/A/exec", "", 400, "id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls = nil
			got := ask(t, client, c.method, c.path, c.body)
			p := got.problem(t)
			if got.status != c.status || p.Field != c.field {
				t.Errorf("status %d, field %q; want %d, %q\n%s", got.status, p.Field, c.status, c.field, got.body)
			}
			if len(calls) > 0 {
				t.Errorf("the service was called: %s", calls)
			}
			if c.status == 405 && got.header.Get("Allow") == "" {
				t.Error("no Allow header")
			}
		})
	}
}

func TestMediaTypesAreComparedAsHTTPDoes(t *testing.T) {
	c := testClient(t, apitest.Serve(t, &apitest.Service{CreateFunc: func(context.Context, api.CreateRequest) (*api.Sandbox, error) {
		return someSandbox(sbxA), nil
	}}))
	for mediaType, status := range map[string]int{
		"APPLICATION/JSON": 201, "Application/Json; charset=UTF-8": 201, "application/json;charset=\"utf-8\"": 201, "application/json; charset": 201, " application/json ": 201,
		"application/jsonp": 415, "text/json": 415, "TEXT/PLAIN": 415,
	} {
		if got := ask(t, c, "POST", "/v1/sandboxes", `{"image":"a"}`, "Content-Type", mediaType); got.status != status {
			t.Errorf("%q: status %d, want %d: %s", mediaType, got.status, status, got.body)
		}
	}
}

// hungUp is the connection of a client that goes away while it is answered.
type hungUp struct {
	http.ResponseWriter
	leave    func()
	statuses []int
}

// WriteHeader implements http.ResponseWriter.
func (w *hungUp) WriteHeader(status int) { w.statuses = append(w.statuses, status) }

// Write implements io.Writer.
func (w *hungUp) Write([]byte) (int, error) {
	w.leave()
	return 0, io.ErrClosedPipe
}

func TestAnAnswerHasOneStatus(t *testing.T) {
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: &apitest.Service{GetFunc: func(context.Context, string) (*api.Sandbox, error) {
		return someSandbox(sbxA), nil
	}}})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w := &hungUp{ResponseWriter: httptest.NewRecorder(), leave: cancel}
	server.ServeHTTP(w, httptest.NewRequest("GET", "/v1/sandboxes/a", nil).WithContext(ctx))
	if !slices.Equal(w.statuses, []int{200}) {
		t.Errorf("statuses %v", w.statuses)
	}
}

func TestAWebSocketIsRefusedWithAProblem(t *testing.T) {
	c := testClient(t, apitest.Serve(t, &apitest.Service{}))
	const path = "/v1/sandboxes/" + sbxA + "/exec"
	for name, h := range map[string]struct {
		headers []string
		status  int
	}{
		"without a key":  {nil, 400},
		"old version":    {[]string{"Sec-WebSocket-Version", "8", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}, 400},
		"another origin": {[]string{"Origin", "https://evil.example", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}, 403},
	} {
		got := ask(t, c, "GET", path, "", append([]string{"Connection", "Upgrade", "Upgrade", "websocket"}, h.headers...)...)
		if got.problem(t); got.status != h.status {
			t.Errorf("%s: status %d, want %d: %s", name, got.status, h.status, got.body)
		}
	}
}

func TestMediaTypeAndSecretsOfARefusedBody(t *testing.T) {
	c := testClient(t, apitest.Serve(t, &apitest.Service{}))
	got := ask(t, c, "POST", "/v1/sandboxes", `image: x`, "Content-Type", "application/yaml")
	if got.problem(t); got.status != http.StatusUnsupportedMediaType || !contains(got.body, "needs the header Content-Type: application/json") {
		t.Errorf("YAML: status %d: %s", got.status, got.body)
	}
	got = ask(t, c, "POST", "/v1/sandboxes", `{"image":"a","env":{"TOKEN":7,"B":"hunter2"}}`)
	if got.problem(t); contains(got.body, "hunter2") {
		t.Errorf("the problem repeats the body: %s", got.body)
	}
}

func TestRequestIDs(t *testing.T) {
	c := testClient(t, apitest.Serve(t, &apitest.Service{}))
	for given, kept := range map[string]bool{"abc-1._": true, "": false, "a b": false, strings.Repeat("a", 65): false} {
		got := ask(t, c, "GET", "/v1/tree", "", httpwire.RequestIDHeader, given)
		id := got.header.Get(httpwire.RequestIDHeader)
		if (id == given) != kept || id == "" {
			t.Errorf("request id %q became %q", given, id)
		}
		got.problem(t)
	}
}

func TestPanicBecomesAProblem(t *testing.T) {
	var logged bytes.Buffer
	server := rest.New(rest.Config{Identify: apitest.Owner, Logger: slog.New(slog.NewTextHandler(&logged, nil)), Service: &apitest.Service{
		GetFunc: func(context.Context, string) (*api.Sandbox, error) { panic("oh no") },
		ExecFunc: func(_ context.Context, _ string, _ api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
			if _, err := io.WriteString(s.Stdout, "half"); err != nil {
				return nil, err
			}
			panic("in the middle")
		},
	}})
	srv := httptest.NewServer(server)
	defer srv.Close()
	defer srv.Client().CloseIdleConnections()
	resp, err := srv.Client().Get(srv.URL + "/v1/sandboxes/a")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var p httpwire.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != 500 || p.Code != api.CodeInternal || p.RequestID == "" {
		t.Errorf("status %d, %+v, %v", resp.StatusCode, p, err)
	}
	if contains(p.Detail, "oh no") || !contains(logged.String(), "oh no") || !contains(logged.String(), p.RequestID) {
		t.Errorf("problem %q, log %q", p.Detail, logged.String())
	}

	req, err := http.NewRequest("POST", srv.URL+"/v1/sandboxes/a/exec", strings.NewReader(`{"shell":"x"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", httpwire.EventType)
	cut, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer cut.Body.Close()
	if b, err := io.ReadAll(cut.Body); err == nil {
		t.Errorf("a stream that broke ended cleanly: %q", b)
	}
}

// FuzzRequest feeds bodies and references to every route that takes them: the
// answer is success or a client error with a problem, never a defect.
func FuzzRequest(f *testing.F) {
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: &apitest.Service{}})
	routes := allRoutes(f, server)
	for i := range routes {
		f.Add(uint8(i), "a", `{"image":"a","limits":{"cpus":1e400}}`)
	}
	for i, c := range []struct{ ref, body string }{
		{sbxA, `{"argv":["a"],"env":{"A":"b"},"timeout_ms":9223372036854775808}`},
		{"a/../b", `{"count":1,"names":[null]}`},
		{"%2e%2e", `{"snapshot":"s","x":{}}`},
		{"\x00", `{"name":"a","build":{"from":"debian","include":[]}}`},
		{"?limit=1&page_token=", strings.Repeat("[", 20000)},
		{"/a/b", `{"code":"1","language":"python"}`},
		{"8000", `{"rows":1,"cols":65536}`},
		{"bytes=1-2,-3", `{"from":["a"],"paths":["/"]}`},
		{`"a", W/"b"`, `{"metadata":{"a":null}}`},
	} {
		f.Add(uint8(i), c.ref, c.body)
	}
	f.Fuzz(func(t *testing.T, which uint8, ref, body string) {
		route := routes[int(which)%len(routes)]
		r := route.request(ref, body)
		if r == nil {
			return
		}
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		if w.Code >= 500 || (w.Code >= 300 && w.Code < 400) {
			t.Fatalf("%s with %q: status %d %s", route.path, ref, w.Code, w.Body)
		}
		if w.Code >= 400 && r.Method != http.MethodHead {
			var p httpwire.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code == "" {
				t.Fatalf("%s with %q: %v %s", route.path, ref, err, w.Body)
			}
		}
	})
}

// route is one of the document.
type route struct {
	method, path string
	docOperation
}

// allRoutes returns what the document has, in one order.
func allRoutes(t testing.TB, server http.Handler) (all []route) {
	t.Helper()
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var doc document
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		for method, op := range methods {
			all = append(all, route{strings.ToUpper(method), path, op})
		}
	}
	slices.SortFunc(all, func(a, b route) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return all
}

// request makes one with value for each parameter; nil if it has no place there.
func (r *route) request(value, body string) *http.Request {
	path, query, header := r.path, url.Values{}, http.Header{}
	for _, p := range r.Parameters {
		switch p.In {
		case "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(value))
		case "query":
			query.Set(p.Name, value)
		case "header":
			header.Set(p.Name, value)
		}
	}
	u, err := url.Parse(path)
	if err != nil {
		return nil
	}
	u.RawQuery = query.Encode()
	req := httptest.NewRequest(r.method, "/", strings.NewReader(body))
	req.URL, req.Header = u, header
	return req
}
