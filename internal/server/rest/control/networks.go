package control

import (
	"cmp"
	"context"
	"net/http"

	"ramet.dev/ramet/internal/server/rest/route"
	"ramet.dev/ramet/internal/server/rest/stream"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// networks serves the networks of sandboxes.
type networks struct {
	*stream.Streams
	svc service.Networks
}

type setNetworkInput struct {
	route.IDInput
	Body api.NetworkRequest
}

type testNetworkInput struct {
	route.IDInput
	Body api.NetworkTest
}

// NetworkLogInput is the input of reading decisions.
type NetworkLogInput struct {
	route.IDInput
	Follow bool `query:"follow" doc:"go on with new decisions until the client goes away or the sandbox is destroyed; else only those that are kept"`
}

func (h *networks) routeNetworks(r *route.Router) {
	const tag, one = "network", "/v1/sandboxes/{id}/network"
	route.Register(r, route.Operation(http.MethodGet, one, "get-network", tag, "Get the network of a sandbox", route.StatusNotFound), h.network)
	route.Register(r, route.Operation(http.MethodPut, one, "set-network", tag, "Replace the network of a sandbox",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported), h.setNetwork)
	route.Register(r, route.Operation(http.MethodPost, one+"/test", "test-network", tag, "Ask whether a sandbox may connect",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported), h.testNetwork)
	content := route.EventContent(r, "Events `event` (NetworkLogEntry), at last `end` or `error` (Problem).",
		route.EventData{httpwire.EventEvent: api.NetworkLogEntry{}, httpwire.EventError: httpwire.Problem{}})
	route.RegisterStream(r, route.Operation(http.MethodGet, one+"/log", "read-network-log", tag, "Read and follow the decisions about connections of a sandbox", route.StatusNotFound, route.StatusConflict),
		map[string]*huma.Response{"200": {Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{httpwire.EventType: content}}},
		func(in *NetworkLogInput) error { return route.ValidSandbox(in.ID) }, h.log)
	route.Register(r, route.Operation(http.MethodGet, "/v1/network/profiles", "list-network-profiles", tag, "List the profiles that networks may name"), h.profiles)
}

func (h *networks) network(ctx context.Context, in *route.IDInput) (*route.Out[*api.SandboxNetwork], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	n, err := h.svc.Network(ctx, in.ID)
	return route.Answer(n, err)
}

func (h *networks) setNetwork(ctx context.Context, in *setNetworkInput) (*route.Out[*api.SandboxNetwork], error) {
	if err := cmp.Or(route.ValidSandbox(in.ID), in.Body.Valid()); err != nil {
		return nil, err
	}
	n, err := h.svc.SetNetwork(ctx, in.ID, in.Body)
	return route.Answer(n, err)
}

func (h *networks) testNetwork(ctx context.Context, in *testNetworkInput) (*route.Out[*api.NetworkTestResult], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	res, err := h.svc.TestNetwork(ctx, in.ID, in.Body)
	return route.Answer(res, err)
}

func (h *networks) log(w http.ResponseWriter, r *http.Request, in *NetworkLogInput) {
	events, ctx := h.Follow(w, r, in.Follow)
	defer events.Close()
	each := func(e api.NetworkLogEntry) error { return events.Send(httpwire.EventEvent, e) }
	if err := h.svc.NetworkLog(ctx, in.ID, in.Follow, events.Begin, each); err != nil {
		h.EndFollowing(ctx, events, r, err)
		return
	}
	_ = events.Send(httpwire.EventEnd, struct{}{}) // fails only if the client is gone
}

func (h *networks) profiles(ctx context.Context, _ *struct{}) (*route.Out[httpwire.List[api.NetworkProfile]], error) {
	all, err := h.svc.NetworkProfiles(ctx)
	return route.AnswerList(all, err)
}
