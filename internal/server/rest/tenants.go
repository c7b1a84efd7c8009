package rest

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

// TenantInput is the input of what concerns one tenant.
type TenantInput struct {
	Tenant string `path:"tenant" doc:"name of the tenant"`
}

type tenantUpdateInput struct {
	TenantInput
	Body api.TenantUpdate
}

type giveInput struct {
	TenantInput
	Body api.GiveRequest
}

func (a *API) routeTenants() {
	const tag, one = "tenants", "/v1/tenants/{tenant}"
	register(a, operation(http.MethodGet, "/v1/tenants", "list-tenants", tag, "List tenants, with what they may have and what they use"),
		func(ctx context.Context, _ *struct{}) (*out[httpwire.List[api.Tenant]], error) {
			all, err := a.svc.Tenants(ctx)
			slices.SortFunc(all, func(x, y api.Tenant) int { return strings.Compare(x.Name, y.Name) })
			return &out[httpwire.List[api.Tenant]]{httpwire.List[api.Tenant]{Items: list(all)}}, err
		})
	register(a, operation(http.MethodGet, one, "get-tenant", tag, "What a tenant may have, and what it uses", statusNotFound),
		func(ctx context.Context, in *TenantInput) (*out[*api.Tenant], error) {
			t, err := a.svc.GetTenant(ctx, in.Tenant)
			return &out[*api.Tenant]{t}, err
		})
	register(a, operation(http.MethodPatch, one, "update-tenant", tag, "Change what a tenant may have", statusNotFound, statusTooLarge, statusUnsupported),
		func(ctx context.Context, in *tenantUpdateInput) (*out[*api.Tenant], error) {
			if in.Body.Quota == nil && in.Body.Tree == nil {
				return nil, api.Invalid("quota", "neither quota nor tree_quota is to be changed")
			}
			t, err := a.svc.UpdateTenant(ctx, in.Tenant, in.Body)
			return &out[*api.Tenant]{t}, err
		})
	register(a, withStatus(operation(http.MethodPost, one+"/images", "give-image", tag, "Let a tenant use an image", statusNotFound, statusConflict, statusTooLarge, statusUnsupported), http.StatusCreated),
		func(ctx context.Context, in *giveInput) (*out[*api.Image], error) {
			if err := validImageRef("image", in.Body.Image); err != nil {
				return nil, err
			}
			img, err := a.svc.GiveImage(ctx, in.Tenant, in.Body)
			if err != nil {
				return nil, err
			}
			return &out[*api.Image]{namedImage(img)}, nil
		})
}
