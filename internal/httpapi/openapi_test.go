package httpapi_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/httpapi/apitest"
	"ramet.dev/ramet/internal/httpwire"
)

type document struct {
	OpenAPI    string
	Info       struct{ Title, Version string }
	Paths      map[string]map[string]docOperation
	Components struct{ Schemas map[string]json.RawMessage }
}

type docOperation struct {
	OperationID string
	Summary     string
	Parameters  []struct {
		Name, In string
		Required bool
	}
	Responses map[string]struct {
		Description string
		Content     map[string]json.RawMessage
	}
}

func TestOpenAPIDocument(t *testing.T) {
	a := ask(t, testClient(t, apitest.Serve(t, &apitest.Service{})), "GET", "/openapi.json", "")
	var doc document
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") || doc.Info.Title == "" || doc.Info.Version != "test" {
		t.Errorf("document of %q %+v", doc.OpenAPI, doc.Info)
	}
	parameter := regexp.MustCompile(`\{([^}]*)\}`)
	ids := map[string]string{}
	var routes []string
	for path, methods := range doc.Paths {
		for method, op := range methods {
			route := strings.ToUpper(method) + " " + path
			routes = append(routes, route)
			if other := ids[op.OperationID]; op.OperationID == "" || other != "" {
				t.Errorf("%s: operation id %q is also that of %q", route, op.OperationID, other)
			}
			ids[op.OperationID] = route
			if op.Summary == "" {
				t.Errorf("%s has no summary", route)
			}
			checkResponses(t, route, op)
			for _, m := range parameter.FindAllStringSubmatch(path, -1) {
				if !slices.ContainsFunc(op.Parameters, func(p struct {
					Name, In string
					Required bool
				}) bool {
					return p.Name == m[1] && p.In == "path" && p.Required
				}) {
					t.Errorf("%s: parameter %s is not described", route, m[1])
				}
			}
		}
	}
	slices.Sort(routes)
	if got := strings.Join(routes, "\n"); got != strings.TrimSpace(wantRoutes) {
		t.Errorf("routes:\n%s", got)
	}
	for _, m := range regexp.MustCompile(`"\$ref":"([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		name, ok := strings.CutPrefix(m[1], "#/components/schemas/")
		if _, found := doc.Components.Schemas[name]; !ok || !found {
			t.Errorf("reference to %s leads nowhere", m[1])
		}
	}
	for _, name := range []string{"Sandbox", "Snapshot", "Image", "ForkResult", "ExecResult", "Diff", "TreeNode", "Chunk", "Lost", "Position", "Process", "Control", "AttachMessage", "Progress", "Problem"} {
		if doc.Components.Schemas[name] == nil {
			t.Errorf("no schema %s", name)
		}
	}
}

// checkResponses wants a success, and problems for failures.
func checkResponses(t *testing.T, route string, op docOperation) {
	t.Helper()
	success, failure := false, false
	for status, r := range op.Responses {
		if r.Description == "" {
			t.Errorf("%s: response %s has no description", route, status)
		}
		switch {
		case status[0] == '1', status[0] == '2', status == "304":
			success = true
		default:
			failure = true
			if r.Content[httpwire.ProblemType] == nil {
				t.Errorf("%s: response %s is no problem: %s", route, status, r.Content)
			}
		}
	}
	if !success || !failure {
		t.Errorf("%s: responses of success %t, of failure %t", route, success, failure)
	}
}

const wantRoutes = `
DELETE /v1/images/{ref}
DELETE /v1/sandboxes/{id}
DELETE /v1/sandboxes/{id}/contexts/{context}
DELETE /v1/sandboxes/{id}/files
DELETE /v1/sandboxes/{id}/processes/{pid}
DELETE /v1/snapshots/{id}
DELETE /v1/tokens/{id}
GET /healthz
GET /metrics
GET /openapi.json
GET /readyz
GET /v1/audit
GET /v1/audit/verify
GET /v1/events
GET /v1/images
GET /v1/images/{ref}
GET /v1/sandboxes
GET /v1/sandboxes/{id}
GET /v1/sandboxes/{id}/contexts
GET /v1/sandboxes/{id}/diff
GET /v1/sandboxes/{id}/events
GET /v1/sandboxes/{id}/exec
GET /v1/sandboxes/{id}/export
GET /v1/sandboxes/{id}/files
GET /v1/sandboxes/{id}/files/archive
GET /v1/sandboxes/{id}/files/list
GET /v1/sandboxes/{id}/files/search
GET /v1/sandboxes/{id}/files/stat
GET /v1/sandboxes/{id}/files/watch
GET /v1/sandboxes/{id}/logs
GET /v1/sandboxes/{id}/ports
GET /v1/sandboxes/{id}/ports/{port}
GET /v1/sandboxes/{id}/ports/{port}/{path}
GET /v1/sandboxes/{id}/processes
GET /v1/sandboxes/{id}/processes/{pid}
GET /v1/sandboxes/{id}/processes/{pid}/attach
GET /v1/sandboxes/{id}/processes/{pid}/output
GET /v1/sandboxes/{id}/processes/{pid}/wait
GET /v1/sandboxes/{id}/stats
GET /v1/sandboxes/{id}/timeline
GET /v1/snapshots
GET /v1/snapshots/{id}
GET /v1/snapshots/{id}/export
GET /v1/tenants
GET /v1/tenants/{tenant}
GET /v1/tokens
GET /v1/tree
HEAD /v1/sandboxes/{id}/files
PATCH /v1/sandboxes/{id}
PATCH /v1/tenants/{tenant}
POST /v1/images
POST /v1/images/prune
POST /v1/sandboxes
POST /v1/sandboxes/{id}/bisect
POST /v1/sandboxes/{id}/commit
POST /v1/sandboxes/{id}/contexts
POST /v1/sandboxes/{id}/contexts/{context}/interrupt
POST /v1/sandboxes/{id}/contexts/{context}/restart
POST /v1/sandboxes/{id}/exec
POST /v1/sandboxes/{id}/files/chmod
POST /v1/sandboxes/{id}/files/mkdir
POST /v1/sandboxes/{id}/files/move
POST /v1/sandboxes/{id}/fork
POST /v1/sandboxes/{id}/hibernate
POST /v1/sandboxes/{id}/merge
POST /v1/sandboxes/{id}/pause
POST /v1/sandboxes/{id}/processes
POST /v1/sandboxes/{id}/processes/{pid}/resize
POST /v1/sandboxes/{id}/processes/{pid}/signal
POST /v1/sandboxes/{id}/processes/{pid}/stdin
POST /v1/sandboxes/{id}/promote
POST /v1/sandboxes/{id}/resume
POST /v1/sandboxes/{id}/rollback
POST /v1/sandboxes/{id}/run-code
POST /v1/sandboxes/{id}/snapshots
POST /v1/sandboxes/{id}/wake
POST /v1/snapshots/{id}/commit
POST /v1/snapshots/{id}/restore
POST /v1/snapshots/{id}/verify
POST /v1/tenants/{tenant}/images
POST /v1/tokens
POST /v1/tokens/{id}/rotate
PUT /v1/sandboxes/{id}/files
PUT /v1/sandboxes/{id}/files/archive
`
