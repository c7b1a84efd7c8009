package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// TestSecretsAreNowhere sets a secret in every way, and looks for its value in all that is kept or
// answered.
func TestSecretsAreNowhere(t *testing.T) {
	const value = "hunter2-hunter2"
	var log bytes.Buffer
	var given []string
	svc := &apitest.Service{SecretFuncs: apitest.SecretFuncs{SetSecretFunc: func(_ context.Context, name string, req api.SecretRequest) (*api.Secret, error) {
		given = append(given, req.Value)
		if name == "BAD" {
			return nil, api.Invalid("value", "it has a control character")
		}
		return &api.Secret{Name: name, SecretBinding: req.SecretBinding, CreatedAt: created, UpdatedAt: created}, nil
	}}}
	svc.AuthenticateFunc = testTokens
	server := rest.New(rest.Config{Service: svc, Version: "test", Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	admin := bearer("admin")
	const binding = `"names":["a.example.org"],"header":"X-Key"`
	for _, c := range []struct {
		name, body string
		headers    []string
		status     int
	}{
		{"KEY", `{"value":"` + value + `",` + binding + `}`, admin, 200},
		{"KEY", `{"value":"` + value + `",` + binding + `}`, bearer("exec"), 403},
		{"BAD", `{"value":"` + value + `",` + binding + `}`, admin, 400},
		{"KEY", `{"value":["` + value + `"],` + binding + `}`, admin, 400},
		{"KEY", `{"value":"` + strings.Repeat(value, 1000) + `",` + binding + `}`, admin, 400},
		{"KEY", `{"value":"` + value + `",` + binding + `,"plain":"` + value + `"}`, admin, 400},
		{"KEY", `{"value":"` + value + `\q",` + binding + `}`, admin, 400},
		{"KEY", `{"value":"` + value, admin, 400},
		{"KEY", `"` + value + `"`, admin, 400},
	} {
		w := change(server, "PUT", "/v1/secrets/"+c.name, c.body, "key", c.headers...)
		if w.Code != c.status || contains(w.Body.String(), "hunter2") {
			t.Errorf("%s: %d %s", c.body, w.Code, w.Body)
		}
	}
	if strings.Join(given, " ") != value+" "+value {
		t.Errorf("the service got %q", given)
	}
	kept, err := json.Marshal([]any{svc.Audited(), svc.Kept()})
	if err != nil || contains(string(kept), "hunter2") || !contains(string(kept), `"set-secret"`) || !contains(string(kept), `"KEY"`) {
		t.Errorf("kept is %s, %v", kept, err)
	}
	if got := log.String(); contains(got, "hunter2") || !contains(got, "/v1/secrets/KEY") {
		t.Errorf("the log has %s", got)
	}
	if len(svc.Kept()) != 0 {
		t.Errorf("answers are kept: %+v", svc.Kept())
	}
}
