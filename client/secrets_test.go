package client_test

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// Every method of secrets and held requests is called once.
func TestSecretsAndHeld(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	binding := api.SecretBinding{Names: []string{"llm.example.com"}, Header: "Authorization", Methods: []string{"POST"}}
	secret := &api.Secret{Name: "KEY", SecretBinding: binding, CreatedAt: at, UpdatedAt: at}
	requests := []api.HeldRequest{{ID: "req_1", Name: "llm.example.com", Port: 443, TLS: true, Method: "POST", Target: "/x?y", State: api.HeldWaiting, Created: at, Changed: at}}
	var got string
	note := func(args ...any) { got = fmt.Sprintf("%+v", args) }
	c := connect(t, &apitest.Service{SecretFuncs: apitest.SecretFuncs{
		SecretsFunc: func(context.Context) ([]api.Secret, error) { note(); return []api.Secret{*secret}, nil },
		SetSecretFunc: func(_ context.Context, name string, req api.SecretRequest) (*api.Secret, error) {
			note(name, req)
			return secret, nil
		},
		RemoveSecretFunc: func(_ context.Context, name string) error { note(name); return nil },
		HeldFunc:         func(_ context.Context, ref string) ([]api.HeldRequest, error) { note(ref); return requests, nil },
		ReleaseFunc: func(_ context.Context, ref string, req api.HeldRelease) ([]api.HeldRequest, error) {
			note(ref, req)
			return requests, nil
		},
		DropFunc: func(_ context.Context, ref, id string) ([]api.HeldRequest, error) { note(ref, id); return nil, nil },
	}})
	check := func(method, args string, want, result any, err error) {
		t.Helper()
		if err != nil || got != args || !reflect.DeepEqual(want, result) {
			t.Errorf("%s: the service was called with %s\nand %+v, %v came back", method, got, result, err)
		}
		got = ""
	}
	ctx := t.Context()
	list, err := c.Secrets.List(ctx)
	check("List", "[]", []api.Secret{*secret}, list, err)
	req := api.SecretRequest{Value: "sk-1", SecretBinding: binding}
	set, err := c.Secrets.Set(ctx, "KEY", req)
	check("Set", fmt.Sprintf("%+v", []any{"KEY", req}), secret, set, err)
	check("Remove", "[KEY]", nil, nil, c.Secrets.Remove(ctx, "KEY"))
	held, err := c.Held.List(ctx, "x")
	check("List", "[x]", requests, held, err)
	held, err = c.Held.Release(ctx, "x", api.HeldRelease{ID: "req_1", Again: true})
	check("Release", "[x {ID:req_1 Again:true}]", requests, held, err)
	held, err = c.Held.Drop(ctx, "x", api.HeldDrop{ID: "req_1"})
	check("Drop", "[x req_1]", []api.HeldRequest{}, held, err)
	if _, err := c.Held.Release(ctx, "x", api.HeldRelease{Again: true}); api.CodeOf(err) != api.CodeInvalid || got != "" {
		t.Errorf("all are sent again: %v, after %s", err, got)
	}
}
