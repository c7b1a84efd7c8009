package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
	"ramet.dev/ramet/internal/service/audit"
)

func TestChangesAreWrittenDown(t *testing.T) {
	svc := &apitest.Service{
		ForkFunc: func(ctx context.Context, _ string, _ api.ForkRequest) (*api.ForkResult, error) {
			audit.Of(ctx).Object(sbxA)
			audit.Of(ctx).Set(func(d *api.AuditDetails) { d.Children = []string{sbxB} })
			return &api.ForkResult{}, nil
		},
		DestroyFunc: func(context.Context, string) error { return api.NotFound("sandbox", "x") },
		GetFunc:     func(context.Context, string) (*api.Sandbox, error) { return someSandbox(sbxA), nil },
		PauseFunc:   func(context.Context, string) (*api.Sandbox, error) { panic("oh no") },
		ExecFunc: func(_ context.Context, _ string, _ api.ExecRequest, s api.ExecIO) (*api.ExecResult, error) {
			_, _ = s.Stdout.Write([]byte("begun"))
			return nil, api.Errorf(api.CodeSandboxDied, "in the middle")
		},
	}
	server := strangers(svc)
	admin := bearer("admin")
	change(server, "POST", "/v1/sandboxes/base/fork", `{"env":{"A":"hunter2"}}`, "k", admin...)
	change(server, "POST", "/v1/sandboxes/base/fork", `{"env":{"A":"hunter2"}}`, "k", admin...) // the same answer
	do(server, "DELETE", "/v1/sandboxes/x", admin...)
	do(server, "GET", "/v1/sandboxes/x", admin...)
	do(server, "POST", "/v1/sandboxes/x/pause", admin...)
	change(server, "POST", "/v1/sandboxes/a/exec", `{"argv":["hunter2"]}`, "", append(admin, "Accept", httpwire.EventType)...)
	do(server, "POST", "/v1/sandboxes/a/fork", bearer("read")...)
	do(server, "POST", "/v1/sandboxes/a/fork")
	change(server, "POST", "/v1/sandboxes", `{"image":`, "", admin...)
	do(server, "DELETE", "/v1/images/a/b:c", admin...)
	do(server, "DELETE", "/v1/sandboxes/hunter2%20hunter2", admin...)
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
	svc.Full = api.Errorf(api.CodeNoSpace, "the disk is full")
	server := rest.New(rest.Config{Identify: apitest.Owner, Service: svc})
	if w := change(server, "POST", "/v1/sandboxes", `{"image":"a"}`, ""); w.Code != http.StatusInsufficientStorage {
		t.Errorf("create: status %d %s", w.Code, w.Body)
	}
	for _, r := range []string{"GET", "DELETE"} {
		if w := do(server, r, "/v1/sandboxes/a"); w.Code > 299 {
			t.Errorf("%s: status %d %s", r, w.Code, w.Body)
		}
	}
	if strings.Contains(strings.Join(calls, "\n"), "Create") {
		t.Errorf("calls %q", calls)
	}
}
