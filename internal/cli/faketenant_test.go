package cli_test

import (
	"context"

	"ramet.dev/ramet/internal/httpapi/apitest"
	"ramet.dev/ramet/internal/sandbox"
)

// fakeTenants knows acme, whose quotas every command finds as they are here.
func fakeTenants() apitest.TenantFuncs {
	get := func(_ context.Context, name string) (*sandbox.Tenant, error) {
		if name != "acme" {
			return nil, sandbox.NotFound("tenant", name)
		}
		return &sandbox.Tenant{
			Name: name, Quota: sandbox.Quota{Sandboxes: 20, Depth: 3, MemoryMiB: 2048, DiskMiB: 512, CPUSeconds: 60},
			Tree: sandbox.Quota{Sandboxes: 5, Depth: 2},
		}, nil
	}
	return apitest.TenantFuncs{
		TenantsFunc: func(ctx context.Context) ([]sandbox.Tenant, error) {
			acme, err := get(ctx, "acme")
			return []sandbox.Tenant{*acme}, err
		},
		GetTenantFunc: get,
		UpdateTenantFunc: func(ctx context.Context, name string, req sandbox.TenantUpdate) (*sandbox.Tenant, error) {
			t, err := get(ctx, name)
			if err != nil {
				t, err = &sandbox.Tenant{Name: name}, nil
			}
			if req.Quota != nil {
				t.Quota = *req.Quota
			}
			if req.Tree != nil {
				t.Tree = *req.Tree
			}
			return t, err
		},
	}
}
