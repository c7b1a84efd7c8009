package rest_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

type document struct {
	OpenAPI    string
	Info       struct{ Title, Version string }
	Paths      map[string]map[string]docOperation
	Servers    []struct{ URL string }
	Tags       []struct{ Name, Description string }
	Components struct {
		Schemas   map[string]json.RawMessage
		Responses map[string]docResponse
	}
}

type docResponse struct {
	Ref         string `json:"$ref"`
	Description string
	Content     map[string]json.RawMessage
}

type docOperation struct {
	OperationID string
	Summary     string
	Description string
	Tags        []string
	Parameters  []struct {
		Name, In, Description string
		Required              bool
	}
	Responses map[string]docResponse
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
	if len(doc.Servers) == 0 {
		t.Error("no servers")
	}
	declared := map[string]bool{}
	for _, tag := range doc.Tags {
		if declared[tag.Name] = true; tag.Description == "" {
			t.Errorf("tag %s has no description", tag.Name)
		}
	}
	operationID := regexp.MustCompile(`^[a-z]+(-[a-z]+)+$`)
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
			if op.Summary == "" || op.Description == "" {
				t.Errorf("%s has the summary %q and the description %q", route, op.Summary, op.Description)
			}
			if !operationID.MatchString(op.OperationID) {
				t.Errorf("%s: operation id %q is no verb and noun", route, op.OperationID)
			}
			if len(op.Tags) != 1 || !declared[op.Tags[0]] {
				t.Errorf("%s: tags %q are not declared", route, op.Tags)
			}
			for _, p := range op.Parameters {
				if p.Description == "" {
					t.Errorf("%s: parameter %s has no description", route, p.Name)
				}
			}
			checkResponses(t, &doc, route, op)
			for _, m := range parameter.FindAllStringSubmatch(path, -1) {
				if !slices.ContainsFunc(op.Parameters, func(p struct {
					Name, In, Description string
					Required              bool
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
	for _, m := range regexp.MustCompile(`"\$ref":"#/components/([a-z]*)/([^"]*)"`).FindAllStringSubmatch(a.body, -1) {
		_, schema := doc.Components.Schemas[m[2]]
		_, response := doc.Components.Responses[m[2]]
		if m[1] == "schemas" && !schema || m[1] == "responses" && !response {
			t.Errorf("reference to %s %s leads nowhere", m[1], m[2])
		}
	}
	if i := strings.Index(a.body, `["array","null"]`); i >= 0 {
		t.Errorf("a list may be null: …%s", a.body[max(0, i-200):i])
	}
	for name, schema := range doc.Components.Schemas {
		var s struct {
			Properties map[string]struct{ Description string }
		}
		if err := json.Unmarshal(schema, &s); err != nil {
			t.Fatal(err)
		}
		for member, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("schema %s: %s has no description", name, member)
			}
		}
	}
	for _, name := range []string{"Sandbox", "Snapshot", "Image", "ForkResult", "ExecResult", "Diff", "TreeNode", "Chunk", "Lost", "Position", "Process", "Control", "AttachMessage", "Progress", "Problem"} {
		if doc.Components.Schemas[name] == nil {
			t.Errorf("no schema %s", name)
		}
	}
}

// TestClosedSetsAreComplete compares the values that the document lists with the constants
// of the vocabulary.
func TestClosedSetsAreComplete(t *testing.T) {
	files, err := filepath.Glob("../../../api/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	constants := map[string][]string{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				of, ok := v.Type.(*ast.Ident)
				if !ok || len(v.Values) != 1 {
					continue
				}
				if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
					constants[of.Name] = append(constants[of.Name], strings.Trim(lit.Value, `"`))
				}
			}
		}
	}
	for name, s := range rest.New(rest.Config{Service: &apitest.Service{}}).Document().Components.Schemas.Map() {
		if s.Type != "string" {
			continue
		}
		var listed []string
		for _, v := range s.Enum {
			listed = append(listed, v.(string))
		}
		slices.Sort(listed)
		want := slices.Clone(constants[name])
		slices.Sort(want)
		if !slices.Equal(listed, want) || len(want) == 0 {
			t.Errorf("%s: the document lists %q, the vocabulary has %q", name, listed, want)
		}
	}
}

// checkResponses wants a success, and problems for failures.
func checkResponses(t *testing.T, doc *document, route string, op docOperation) {
	t.Helper()
	success, failure := false, false
	for status, r := range op.Responses {
		if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
			r = doc.Components.Responses[name]
		}
		if r.Description == "" {
			t.Errorf("%s: response %s has no description", route, status)
		}
		switch {
		case status[0] == '1', status[0] == '2', status == "304":
			success = true
		case route == "GET /readyz": // it says the same with another status
		default:
			failure = true
			if r.Content[httpwire.ProblemType] == nil {
				t.Errorf("%s: response %s is no problem: %s", route, status, r.Content)
			}
		}
	}
	switch route {
	case "GET /healthz": // it does not fail
		failure = true
	case "GET /readyz":
		failure = op.Responses["503"].Content["application/json"] != nil
	}
	if !success || !failure {
		t.Errorf("%s: responses of success %t, of failure %t", route, success, failure)
	}
}

const wantRoutes = `
DELETE /v1/explorations/{id}
DELETE /v1/images/{ref}
DELETE /v1/sandboxes/{id}
DELETE /v1/sandboxes/{id}/contexts/{context}
DELETE /v1/sandboxes/{id}/files
DELETE /v1/sandboxes/{id}/ports/published/{hostport}
DELETE /v1/sandboxes/{id}/processes/{pid}
DELETE /v1/secrets/{name}
DELETE /v1/snapshots/{id}
DELETE /v1/tokens/{id}
DELETE /v1/volumes/{ref}
GET /healthz
GET /metrics
GET /openapi.json
GET /readyz
GET /v1/audit
GET /v1/audit/verify
GET /v1/events
GET /v1/explorations
GET /v1/explorations/{id}
GET /v1/explorations/{id}/events
GET /v1/images
GET /v1/images/{ref}
GET /v1/network/profiles
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
GET /v1/sandboxes/{id}/held
GET /v1/sandboxes/{id}/logs
GET /v1/sandboxes/{id}/network
GET /v1/sandboxes/{id}/network/log
GET /v1/sandboxes/{id}/ports
GET /v1/sandboxes/{id}/ports/published
GET /v1/sandboxes/{id}/ports/{port}
GET /v1/sandboxes/{id}/ports/{port}/{path}
GET /v1/sandboxes/{id}/processes
GET /v1/sandboxes/{id}/processes/{pid}
GET /v1/sandboxes/{id}/processes/{pid}/attach
GET /v1/sandboxes/{id}/processes/{pid}/output
GET /v1/sandboxes/{id}/processes/{pid}/wait
GET /v1/sandboxes/{id}/stats
GET /v1/sandboxes/{id}/timeline
GET /v1/sandboxes/{id}/trace
GET /v1/secrets
GET /v1/signing-key
GET /v1/snapshots
GET /v1/snapshots/{id}
GET /v1/snapshots/{id}/export
GET /v1/snapshots/{id}/pack
GET /v1/snapshots/{id}/pack/contents
GET /v1/tenants
GET /v1/tenants/{tenant}
GET /v1/tokens
GET /v1/tree
GET /v1/volumes
GET /v1/volumes/{ref}
HEAD /v1/sandboxes/{id}/files
PATCH /v1/sandboxes/{id}
PATCH /v1/tenants/{tenant}
POST /v1/explorations/{id}/cancel
POST /v1/images
POST /v1/images/prune
POST /v1/sandboxes
POST /v1/sandboxes/{id}/bisect
POST /v1/sandboxes/{id}/commit
POST /v1/sandboxes/{id}/contexts
POST /v1/sandboxes/{id}/contexts/{context}/interrupt
POST /v1/sandboxes/{id}/contexts/{context}/restart
POST /v1/sandboxes/{id}/exec
POST /v1/sandboxes/{id}/explorations
POST /v1/sandboxes/{id}/files/chmod
POST /v1/sandboxes/{id}/files/mkdir
POST /v1/sandboxes/{id}/files/move
POST /v1/sandboxes/{id}/fork
POST /v1/sandboxes/{id}/held/drop
POST /v1/sandboxes/{id}/held/release
POST /v1/sandboxes/{id}/hibernate
POST /v1/sandboxes/{id}/merge
POST /v1/sandboxes/{id}/network/test
POST /v1/sandboxes/{id}/pause
POST /v1/sandboxes/{id}/port-sessions
POST /v1/sandboxes/{id}/ports/published
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
POST /v1/snapshots/pull
POST /v1/snapshots/unpack
POST /v1/snapshots/{id}/commit
POST /v1/snapshots/{id}/push
POST /v1/snapshots/{id}/restore
POST /v1/snapshots/{id}/verify
POST /v1/tenants/{tenant}/images
POST /v1/tokens
POST /v1/tokens/{id}/rotate
POST /v1/volumes
PUT /v1/sandboxes/{id}/files
PUT /v1/sandboxes/{id}/files/archive
PUT /v1/sandboxes/{id}/network
PUT /v1/secrets/{name}
`
