package httpapi_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/audit"
	"ramet.dev/ramet/internal/httpapi"
	"ramet.dev/ramet/internal/httpapi/apitest"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/sandbox"
)

func TestChangesAreWrittenDown(t *testing.T) {
	svc := &apitest.Service{
		ForkFunc: func(ctx context.Context, _ string, _ sandbox.ForkRequest) (*sandbox.ForkResult, error) {
			audit.Of(ctx).Object(sbxA)
			audit.Of(ctx).Set(func(d *sandbox.AuditDetails) { d.Children = []string{sbxB} })
			return &sandbox.ForkResult{}, nil
		},
		DestroyFunc: func(context.Context, string) error { return sandbox.NotFound("sandbox", "x") },
		GetFunc:     func(context.Context, string) (*sandbox.Sandbox, error) { return someSandbox(sbxA), nil },
		PauseFunc:   func(context.Context, string) (*sandbox.Sandbox, error) { panic("oh no") },
		ExecFunc: func(_ context.Context, _ string, _ sandbox.ExecRequest, s httpapi.ExecIO) (*sandbox.ExecResult, error) {
			_, _ = s.Stdout.Write([]byte("begun"))
			return nil, sandbox.Errorf(sandbox.CodeSandboxDied, "in the middle")
		},
	}
	api := strangers(svc)
	admin := bearer("admin")
	change(api, "POST", "/v1/sandboxes/base/fork", `{"env":{"A":"hunter2"}}`, "k", admin...)
	change(api, "POST", "/v1/sandboxes/base/fork", `{"env":{"A":"hunter2"}}`, "k", admin...) // the same answer
	do(api, "DELETE", "/v1/sandboxes/x", admin...)
	do(api, "GET", "/v1/sandboxes/x", admin...)
	do(api, "POST", "/v1/sandboxes/x/pause", admin...)
	change(api, "POST", "/v1/sandboxes/a/exec", `{"argv":["hunter2"]}`, "", append(admin, "Accept", httpwire.EventType)...)
	do(api, "POST", "/v1/sandboxes/a/fork", bearer("read")...)
	do(api, "POST", "/v1/sandboxes/a/fork")
	change(api, "POST", "/v1/sandboxes", `{"image":`, "", admin...)
	do(api, "DELETE", "/v1/images/a/b:c", admin...)
	do(api, "DELETE", "/v1/sandboxes/hunter2%20hunter2", admin...)
	var got []string
	for _, e := range svc.Audited() {
		if e.Tenant != "acme" || e.Token == "" || e.UID != nil || e.Request == "" || e.Time.IsZero() {
			t.Errorf("incomplete: %+v", e)
		}
		got = append(got, e.Action+" "+e.Object+" "+e.Result)
	}
	want := []string{
		"fork-sandbox " + sbxA + " ok", "destroy-sandbox x not_found", "pause-sandbox x internal", "exec-command a sandbox_died", "fork-sandbox a forbidden",
		"create-sandbox  invalid_argument", "remove-image a/b:c unsupported", "destroy-sandbox  invalid_argument",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("written down:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	text, err := json.Marshal(svc.Audited())
	if err != nil || contains(string(text), "hunter2") || !contains(string(text), sbxB) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestNothingIsChangedThatCannotBeWrittenDown: but room can be made.
func TestNothingIsChangedThatCannotBeWrittenDown(t *testing.T) {
	var calls []string
	svc := recorder(&calls)
	svc.Full = sandbox.Errorf(sandbox.CodeNoSpace, "the disk is full")
	api := httpapi.New(httpapi.Config{Identify: apitest.Owner, Service: svc})
	if w := change(api, "POST", "/v1/sandboxes", `{"image":"a"}`, ""); w.Code != http.StatusInsufficientStorage {
		t.Errorf("create: status %d %s", w.Code, w.Body)
	}
	for _, r := range []string{"GET", "DELETE"} {
		if w := do(api, r, "/v1/sandboxes/a"); w.Code > 299 {
			t.Errorf("%s: status %d %s", r, w.Code, w.Body)
		}
	}
	if strings.Contains(strings.Join(calls, "\n"), "Create") {
		t.Errorf("calls %q", calls)
	}
}
