package control

import (
	"cmp"
	"context"
	"net/http"

	"ramet.dev/ramet/internal/server/rest/route"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// timeline serves the recorded steps of sandboxes.
type timeline struct{ svc service.Timeline }

type bisectInput struct {
	route.IDInput
	Body api.BisectRequest
}

func (h *timeline) routeTimeline(r *route.Router) {
	const tag, one = "timeline", "/v1/sandboxes/{id}"
	route.Register(r, route.Operation(http.MethodGet, one+"/timeline", "get-timeline", tag, "List the steps of a sandbox with automatic checkpoints", route.StatusNotFound), h.timeline)
	route.Register(r, route.Operation(http.MethodPost, one+"/bisect", "bisect-sandbox", tag, "Find the first step at which a command fails, in sandboxes that are restored from some of the steps",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany, route.StatusNoStorage), h.bisect)
}

func (h *timeline) timeline(ctx context.Context, in *route.IDInput) (*route.Out[httpwire.List[api.Step]], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	steps, err := h.svc.Timeline(ctx, in.ID)
	return route.AnswerList(steps, err)
}

func (h *timeline) bisect(ctx context.Context, in *bisectInput) (*route.Out[*api.BisectResult], error) {
	if err := cmp.Or(route.ValidSandbox(in.ID), in.Body.Valid()); err != nil {
		return nil, err
	}
	res, err := h.svc.Bisect(ctx, in.ID, in.Body)
	if err != nil {
		return nil, err
	}
	res.Tried = route.List(res.Tried)
	return route.Answer(res, nil)
}
