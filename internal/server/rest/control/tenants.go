package control

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"ramet.dev/ramet/internal/server/rest/route"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// tenants serves tenants and their quotas.
type tenants struct{ svc service.Tenants }

// TenantInput is the input of operations on a tenant.
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

func (h *tenants) routeTenants(r *route.Router) {
	const tag, one = "tenants", "/v1/tenants/{tenant}"
	route.Register(r, route.Operation(http.MethodGet, "/v1/tenants", "list-tenants", tag, "List tenants, with their quotas and consumption"),
		func(ctx context.Context, _ *struct{}) (*route.Out[httpwire.List[api.Tenant]], error) {
			all, err := h.svc.Tenants(ctx)
			slices.SortFunc(all, func(x, y api.Tenant) int { return strings.Compare(x.Name, y.Name) })
			return route.AnswerList(all, err)
		})
	route.Register(r, route.Operation(http.MethodGet, one, "get-tenant", tag, "Get the quotas and consumption of a tenant", route.StatusNotFound),
		func(ctx context.Context, in *TenantInput) (*route.Out[*api.Tenant], error) {
			t, err := h.svc.GetTenant(ctx, in.Tenant)
			return route.Answer(t, err)
		})
	route.Register(r, route.Operation(http.MethodPatch, one, "update-tenant", tag, "Change the quotas of a tenant", route.StatusNotFound, route.StatusTooLarge, route.StatusUnsupported),
		func(ctx context.Context, in *tenantUpdateInput) (*route.Out[*api.Tenant], error) {
			if in.Body == (api.TenantUpdate{}) {
				return nil, api.Invalid("quota", "neither quota, tree_quota nor network_max is to be changed")
			}
			t, err := h.svc.UpdateTenant(ctx, in.Tenant, in.Body)
			return route.Answer(t, err)
		})
	route.Register(r, route.WithStatus(route.Operation(http.MethodPost, one+"/images", "give-image", tag, "Let a tenant use an image", route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported), http.StatusCreated),
		func(ctx context.Context, in *giveInput) (*route.Out[*api.Image], error) {
			if err := api.ValidImageRef("image", in.Body.Image); err != nil {
				return nil, err
			}
			img, err := h.svc.GiveImage(ctx, in.Tenant, in.Body)
			if err != nil {
				return nil, err
			}
			return route.Answer(namedImage(img), nil)
		})
}
