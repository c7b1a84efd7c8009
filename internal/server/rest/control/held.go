package control

import (
	"context"
	"net/http"

	"ramet.dev/ramet/internal/server/rest/route"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// held serves the requests of sandboxes that wait for a decision.
type held struct{ svc service.Held }

type releaseInput struct {
	route.IDInput
	Body *api.HeldRelease
}

type dropInput struct {
	route.IDInput
	Body *api.HeldDrop
}

type heldOut = route.Out[httpwire.List[api.HeldRequest]]

func (h *held) routeHeld(r *route.Router) {
	const tag, all = "held", "/v1/sandboxes/{id}/held"
	route.Register(r, route.Operation(http.MethodGet, all, "list-held", tag, "List the held requests of a sandbox", route.StatusNotFound),
		func(ctx context.Context, in *route.IDInput) (*heldOut, error) {
			if err := route.ValidSandbox(in.ID); err != nil {
				return nil, err
			}
			list, err := h.svc.HeldRequests(ctx, in.ID)
			return route.AnswerList(list, err)
		})
	route.Register(r, route.Operation(http.MethodPost, all+"/release", "release-held", tag, "Send held requests",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported),
		func(ctx context.Context, in *releaseInput) (*heldOut, error) {
			if err := route.ValidSandbox(in.ID); err != nil {
				return nil, err
			}
			req := route.Present(in.Body)
			if err := req.Valid(); err != nil {
				return nil, err
			}
			list, err := h.svc.ReleaseHeld(ctx, in.ID, req)
			return route.AnswerList(list, err)
		})
	route.Register(r, route.Operation(http.MethodPost, all+"/drop", "drop-held", tag, "Drop held requests, which are never sent",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported),
		func(ctx context.Context, in *dropInput) (*heldOut, error) {
			if err := route.ValidSandbox(in.ID); err != nil {
				return nil, err
			}
			list, err := h.svc.DropHeld(ctx, in.ID, route.Present(in.Body).ID)
			return route.AnswerList(list, err)
		})
}
