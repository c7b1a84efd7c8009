package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/server/rest"
	who "ramet.dev/ramet/internal/service/access"
	"ramet.dev/ramet/test/harness"
)

// bodies are requests that would be carried out if the caller saw the thing in the
// path. SNAP, IMAGE and BOX stand for things of another.
var bodies = map[string]string{
	"PATCH /v1/sandboxes/{id}":                       `{"name":"stolen"}`,
	"POST /v1/sandboxes/{id}/commit":                 `{"name":"stolen"}`,
	"POST /v1/snapshots/{id}/commit":                 `{"name":"stolen"}`,
	"POST /v1/snapshots/{id}/push":                   `{"ref":"127.0.0.1:1/stolen:v1"}`,
	"POST /v1/sandboxes/{id}/contexts":               `{"language":"python"}`,
	"POST /v1/sandboxes/{id}/exec":                   `{"argv":["/bin/guest"]}`,
	"POST /v1/sandboxes/{id}/explorations":           `{"run":{"argv":["/bin/guest"]}}`,
	"POST /v1/sandboxes/{id}/bisect":                 `{"argv":["true"]}`,
	"POST /v1/sandboxes/{id}/run-code":               `{"code":"1"}`,
	"POST /v1/sandboxes/{id}/merge":                  `{"from":["BOX"]}`,
	"POST /v1/sandboxes/{id}/port-sessions":          `{"port":80}`,
	"POST /v1/sandboxes/{id}/processes":              `{"argv":["/bin/guest"]}`,
	"POST /v1/sandboxes/{id}/processes/{pid}/resize": `{"rows":1,"cols":1}`,
	"POST /v1/sandboxes/{id}/processes/{pid}/signal": `{"signal":"KILL"}`,
	"POST /v1/sandboxes/{id}/rollback":               `{"snapshot":"SNAP"}`,
	"PUT /v1/sandboxes/{id}/files":                   `x`,
	"PUT /v1/sandboxes/{id}/network":                 `{"profile":"none"}`,
	"POST /v1/sandboxes/{id}/network/test":           `{"host":"files.example.org","port":443}`,
	"POST /v1/sandboxes/{id}/ports/published":        `{"port":80}`,
	"POST /v1/sandboxes/{id}/held/release":           `{}`,
	"POST /v1/sandboxes/{id}/held/drop":              `{}`,
	"POST /v1/sandboxes":                             `{"image":"IMAGE"}`,
	"POST /v1/images":                                `{"name":"stolen","path":"/etc"}`,
	"POST /v1/tokens":                                `{"scope":"read","sandbox":"BOX"}`,
}

var queries = map[string]string{
	"POST /v1/sandboxes/{id}/files/chmod":  "?path=/bin&mode=0777",
	"POST /v1/sandboxes/{id}/files/mkdir":  "?path=/stolen",
	"POST /v1/sandboxes/{id}/files/move":   "?path=/bin&to=/stolen",
	"GET /v1/sandboxes/{id}/diff":          "?to=BOX",
	"GET /v1/sandboxes/{id}/files":         "?path=/bin/guest",
	"HEAD /v1/sandboxes/{id}/files":        "?path=/bin/guest",
	"PUT /v1/sandboxes/{id}/files":         "?path=/stolen",
	"DELETE /v1/sandboxes/{id}/files":      "?path=/bin/guest",
	"PUT /v1/sandboxes/{id}/files/archive": "?path=/",
	"GET /v1/sandboxes/{id}/files/archive": "?path=/bin",
	"GET /v1/sandboxes/{id}/files/list":    "?path=/",
	"GET /v1/sandboxes/{id}/files/search":  "?path=/&name=*",
	"GET /v1/sandboxes/{id}/files/stat":    "?path=/bin",
	"GET /v1/sandboxes/{id}/files/watch":   "?path=/",
	"GET /v1/tree":                         "?sandbox=BOX",
}

// sockets are routes that ask for a WebSocket first.
var sockets = map[string]bool{"GET /v1/sandboxes/{id}/exec": true, "GET /v1/sandboxes/{id}/processes/{pid}/attach": true}

var anyParameter = regexp.MustCompile(`\{[^}]*\}`)

// TestAnotherTenantReachesNothing walks every route of the document with tokens of
// another tenant, and of callers that are bound elsewhere, and asks for the things
// of a tenant by their ids and names. What the answer says of them is nothing, and
// nothing is done to them.
func TestAnotherTenantReachesNothing(t *testing.T) {
	n := harness.NewNode(t)
	server := rest.New(rest.Config{Service: n.Machine, Version: "test"})
	owner := who.With(harness.AsOwner, who.Owner(0))
	n.GiveImage("a")
	box := n.CreateAs(harness.AsTenant("a"), "secretbox")
	img, err := n.Machine.Commit(harness.AsTenant("a"), "secretbox", api.CommitRequest{Name: "secretimage"}, func(api.Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	snap, err := n.Machine.Snapshot(harness.AsTenant("a"), "secretbox", api.SnapshotRequest{Name: "secretsnap"})
	if err != nil {
		t.Fatal(err)
	}
	mine, err := n.Machine.CreateToken(owner, api.TokenRequest{Tenant: "a", Scope: api.ScopeAdmin, Name: "secrettoken"})
	if err != nil {
		t.Fatal(err)
	}
	tried, err := n.Machine.Explore(harness.AsTenant("a"), "secretbox", api.ExplorePlan{Run: api.ExploreRun{Argv: []string{"/bin/guest", "true"}}, Keep: api.KeepNone})
	if err != nil {
		t.Fatal(err)
	}
	n.Create("own")
	secret := func(req api.TokenRequest) string {
		tok, err := n.Machine.CreateToken(owner, req)
		if err != nil {
			t.Fatal(err)
		}
		return tok.Secret
	}
	secrets := map[string]string{
		"another tenant":        secret(api.TokenRequest{Tenant: "b", Scope: api.ScopeAdmin}),
		"the default tenant":    secret(api.TokenRequest{Scope: api.ScopeAdmin}),
		"bound to another tree": secret(api.TokenRequest{Scope: api.ScopeAdmin, Tree: "own"}),
	}
	things := map[string][]string{
		"sandboxes": {box.ID, box.Name}, "snapshots": {snap.ID, snap.Name}, "images": {img.ID, "secretimage"}, "tokens": {mine.ID}, "explorations": {tried.ID},
	}
	mineAre := []string{box.ID, box.Name, snap.ID, snap.Name, mine.ID, mine.Name, img.ID, "secretimage", tried.ID}
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(askAs(server, "", "GET", "/openapi.json", "").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for path, methods := range doc.Paths {
		for method := range methods {
			route := strings.ToUpper(method) + " " + path
			if !strings.HasPrefix(path, "/v1/") {
				continue
			}
			kind, _, _ := strings.Cut(strings.TrimPrefix(path, "/v1/"), "/")
			first, _, bound := strings.Cut(path, "}")
			refs := things[kind]
			if !bound || kind == "tenants" {
				refs = []string{""}
			}
			for by, token := range secrets {
				for _, ref := range refs {
					target := path
					if bound {
						target = anyParameter.ReplaceAllString(first+"}", ref) + anyParameter.ReplaceAllString(strings.TrimPrefix(path, first+"}"), "1")
					}
					fill := strings.NewReplacer("SNAP", snap.ID, "IMAGE", img.ID, "BOX", box.ID)
					w := askAs(server, token, strings.ToUpper(method), target+fill.Replace(queries[route]), fill.Replace(bodies[route]))
					asked++
					if sockets[route] && w.Code == http.StatusUpgradeRequired {
						continue // see below
					}
					if hidden := w.Code == http.StatusNotFound || w.Code == http.StatusForbidden; !hidden && (ref != "" || bodies[route] != "" || queries[route] != "") {
						t.Errorf("%s of %q, %s: status %d %s", route, ref, by, w.Code, w.Body)
					}
					for _, s := range mineAre {
						if route != "GET /v1/audit" && s != ref && strings.Contains(w.Body.String(), s) && !toldBack(bodies[route]+queries[route], s, map[string]string{"BOX": box.ID, "SNAP": snap.ID, "IMAGE": img.ID}) {
							t.Errorf("%s, %s: the answer tells of %s: %s", route, by, s, w.Body)
						}
					}
				}
			}
		}
	}
	if asked < 200 {
		t.Errorf("%d requests were made", asked)
	}
	if entries, err := n.Machine.AuditEntries(harness.AsTenant("b"), 0, 1000); err != nil || len(entries) == 0 || slices.ContainsFunc(entries, func(e api.AuditEntry) bool { return e.Tenant != "b" }) {
		t.Errorf("the audit for another tenant: %+v, %v", entries, err)
	}
	web := httptest.NewServer(server)
	defer web.Close()
	for by, token := range secrets {
		c, err := client.Open(client.Config{Address: web.URL, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, err = c.Processes.ExecStream(harness.AsOwner, box.ID, api.ExecRequest{Argv: []string{"/bin/guest"}}, api.ExecIO{Stdin: strings.NewReader("")})
		if api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("exec with input, %s: %v", by, err)
		}
		if _, err := c.Ports.Dial(harness.AsOwner, box.ID, 80, 0); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("connect to a port, %s: %v", by, err)
		}
	}
	after, err := n.Machine.Get(harness.AsTenant("a"), box.ID)
	if err != nil || after.Name != box.Name || after.State != api.StateRunning {
		t.Errorf("the sandbox is %+v, %v", after, err)
	}
	if _, err := n.Machine.GetSnapshot(harness.AsTenant("a"), snap.ID); err != nil {
		t.Error(err)
	}
	if _, err := n.Machine.Authenticate(harness.AsOwner, mine.Secret, false); err != nil {
		t.Error(err)
	}
	if w := askAs(server, mine.Secret, "GET", "/v1/sandboxes/secretbox", ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), box.ID) {
		t.Errorf("its own tenant: status %d %s", w.Code, w.Body)
	}
	if err := errors.Join(n.Machine.Destroy(harness.AsTenant("a"), box.ID), n.Machine.DeleteSnapshot(harness.AsTenant("a"), snap.ID, api.SnapshotDeletion{})); err != nil {
		t.Error(err)
	}
}

// toldBack reports whether a request named the thing by itself.
func toldBack(request, thing string, named map[string]string) bool {
	for word, id := range named {
		if thing == id && strings.Contains(request, word) {
			return true
		}
	}
	return false
}

func askAs(server http.Handler, secret, method, target, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, bytes.NewReader([]byte(body)))
	r.Header.Set("Content-Type", "application/json")
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	return w
}
