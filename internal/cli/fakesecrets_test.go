package cli_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// createWith is fakeCreate that also sets the secrets of the request, as the daemon does.
func createWith(secrets apitest.SecretFuncs) func(context.Context, api.CreateRequest) (*api.Sandbox, error) {
	return func(ctx context.Context, req api.CreateRequest) (*api.Sandbox, error) {
		known, _ := secrets.Secrets(ctx)
		for name, asked := range req.Secrets {
			for _, had := range known {
				if had.Name != name {
					continue
				}
				if !strings.EqualFold(had.Header, asked.Header) {
					return nil, api.Errorf(api.CodeConflict, "secret %s is for the header %s, not for %s", name, had.Header, asked.Header)
				}
				asked.Names = append(slices.Clone(had.Names), asked.Names...)
				req.Secrets[name] = asked
			}
		}
		sb, err := fakeCreate(ctx, req)
		if err != nil {
			return nil, err
		}
		for name, asked := range req.Secrets {
			if _, err := secrets.SetSecret(ctx, name, asked); err != nil {
				return nil, err
			}
		}
		return sb, nil
	}
}

// fakeSecrets keeps secrets, and has two held requests of kid.
func fakeSecrets() apitest.SecretFuncs {
	var mu sync.Mutex
	all := map[string]api.Secret{}
	held := func(id string, state api.HeldState) []api.HeldRequest {
		list := []api.HeldRequest{
			{ID: "req_1", Sandbox: kidID, Name: "a.example.org", Port: 443, TLS: true, Method: "POST", Target: "/x?y=1", Size: 2048, State: api.HeldWaiting, Created: created, Changed: created},
			{ID: "req_2", Sandbox: kidID, Name: "b.example.org", Port: 8080, Method: "PUT", Target: "/", State: api.HeldUnknown, Created: created, Changed: created, Note: "the gateway ended"},
		}
		for i := range list {
			if r := &list[i]; r.ID == id || id == "" && r.State == api.HeldWaiting {
				if r.State = state; state == api.HeldSent {
					r.Status = 201
				}
			}
		}
		return list
	}
	return apitest.SecretFuncs{
		SecretsFunc: func(context.Context) (list []api.Secret, err error) {
			mu.Lock()
			defer mu.Unlock()
			for _, name := range slices.Sorted(maps.Keys(all)) {
				list = append(list, all[name])
			}
			return list, nil
		},
		SetSecretFunc: func(_ context.Context, name string, req api.SecretRequest) (*api.Secret, error) {
			mu.Lock()
			defer mu.Unlock()
			if req.Value != "sk-value" {
				return nil, api.Invalid("value", "it is not what the test gives")
			}
			s := api.Secret{Name: name, SecretBinding: req.SecretBinding, CreatedAt: created, UpdatedAt: created}
			all[name] = s
			return &s, nil
		},
		RemoveSecretFunc: func(_ context.Context, name string) error {
			mu.Lock()
			defer mu.Unlock()
			if _, ok := all[name]; !ok {
				return api.NotFound("secret", name)
			}
			delete(all, name)
			return nil
		},
		HeldFunc: func(ctx context.Context, ref string) ([]api.HeldRequest, error) {
			if _, err := find(ctx, ref); err != nil || ref != "kid" {
				return nil, err
			}
			return held("none", ""), nil
		},
		ReleaseFunc: func(_ context.Context, _ string, req api.HeldRelease) ([]api.HeldRequest, error) {
			if req.ID == "req_2" && !req.Again {
				return held("none", ""), nil
			}
			return held(req.ID, api.HeldSent), nil
		},
		DropFunc: func(_ context.Context, _, id string) ([]api.HeldRequest, error) {
			return held(id, api.HeldDropped), nil
		},
	}
}
