package control

import (
	"context"
	"net/http"

	"ramet.dev/ramet/internal/server/rest/route"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// volumes serves the volumes of tenants.
type volumes struct{ svc service.Volumes }

// VolumeInput is the input of operations on a volume.
type VolumeInput struct {
	Ref string `path:"ref" doc:"id or name of the volume"`
}

type createVolumeInput struct {
	Body api.VolumeRequest
}

func (h *volumes) routeVolumes(r *route.Router) {
	const tag, one = "volumes", "/v1/volumes/{ref}"
	route.Register(r, route.WithStatus(route.Operation(http.MethodPost, "/v1/volumes", "create-volume", tag, "Make a volume", route.StatusConflict, route.StatusTooMany), http.StatusCreated),
		func(ctx context.Context, in *createVolumeInput) (*route.Out[*api.Volume], error) {
			v, err := h.svc.CreateVolume(ctx, in.Body)
			return route.Answer(v, err)
		})
	route.Register(r, route.Operation(http.MethodGet, "/v1/volumes", "list-volumes", tag, "List volumes"),
		func(ctx context.Context, _ *struct{}) (*route.Out[httpwire.List[api.Volume]], error) {
			all, err := h.svc.Volumes(ctx)
			return route.AnswerList(all, err)
		})
	route.Register(r, route.Operation(http.MethodGet, one, "get-volume", tag, "Get a volume", route.StatusNotFound),
		func(ctx context.Context, in *VolumeInput) (*route.Out[*api.Volume], error) {
			v, err := h.svc.GetVolume(ctx, in.Ref)
			return route.Answer(v, err)
		})
	route.Register(r, route.Operation(http.MethodDelete, one, "remove-volume", tag, "Remove a volume with its files", route.StatusNotFound, route.StatusConflict),
		func(ctx context.Context, in *VolumeInput) (*struct{}, error) {
			return nil, h.svc.RemoveVolume(ctx, in.Ref)
		})
}
