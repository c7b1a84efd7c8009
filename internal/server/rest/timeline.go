package rest

import (
	"cmp"
	"context"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

type bisectInput struct {
	IDInput
	Body api.BisectRequest
}

func (a *API) routeTimeline() {
	const tag, one = "timeline", "/v1/sandboxes/{id}"
	register(a, operation(http.MethodGet, one+"/timeline", "get-timeline", tag, "The steps of a sandbox that is checkpointed by itself", statusNotFound), a.timeline)
	register(a, operation(http.MethodPost, one+"/bisect", "bisect-sandbox", tag, "Find the first step at which a command fails, in sandboxes that are restored from some of them",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusTooMany, statusNoStorage), a.bisect)
}

func (a *API) timeline(ctx context.Context, in *IDInput) (*out[httpwire.List[api.Step]], error) {
	if err := validSandbox(in.ID); err != nil {
		return nil, err
	}
	steps, err := a.svc.Timeline(ctx, in.ID)
	return &out[httpwire.List[api.Step]]{httpwire.List[api.Step]{Items: list(steps)}}, err
}

func (a *API) bisect(ctx context.Context, in *bisectInput) (*out[*api.BisectResult], error) {
	if err := cmp.Or(validSandbox(in.ID), validEnv(in.Body.Env)); err != nil {
		return nil, err
	}
	res, err := a.svc.Bisect(ctx, in.ID, in.Body)
	if err != nil {
		return nil, err
	}
	res.Tried = list(res.Tried)
	return &out[*api.BisectResult]{res}, nil
}
