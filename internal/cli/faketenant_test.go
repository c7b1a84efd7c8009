package cli_test

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// fakeTenants knows acme, whose quotas every command finds as they are here.
func fakeTenants() apitest.TenantFuncs {
	get := func(_ context.Context, name string) (*api.Tenant, error) {
		if name != "acme" {
			return nil, api.NotFound("tenant", name)
		}
		return &api.Tenant{
			Name: name, Quota: api.Quota{Sandboxes: 20, Depth: 3, MemoryMiB: 2048, DiskMiB: 512, CPUSeconds: 60},
			Tree: api.Quota{Sandboxes: 5, Depth: 2},
		}, nil
	}
	return apitest.TenantFuncs{
		TenantsFunc: func(ctx context.Context) ([]api.Tenant, error) {
			acme, err := get(ctx, "acme")
			return []api.Tenant{*acme}, err
		},
		GetTenantFunc: get,
		UpdateTenantFunc: func(ctx context.Context, name string, req api.TenantUpdate) (*api.Tenant, error) {
			t, err := get(ctx, name)
			if err != nil {
				t, err = &api.Tenant{Name: name}, nil
			}
			if req.Quota != nil {
				t.Quota = *req.Quota
			}
			if req.Tree != nil {
				t.Tree = *req.Tree
			}
			if req.NetworkMax != nil {
				t.NetworkMax = &req.NetworkMax.NetworkPolicy
			}
			return t, err
		},
	}
}
