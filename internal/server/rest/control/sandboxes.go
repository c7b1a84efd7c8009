package control

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"ramet.dev/ramet/internal/server/rest/route"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// sandboxes serves the life of sandboxes.
type sandboxes struct{ svc service.Sandboxes }

type createInput struct{ Body api.CreateRequest }

type updateInput struct {
	route.IDInput
	Body api.UpdateRequest
}

type listInput struct {
	route.PageInput
	route.ReachInput
	State    string   `query:"state" enum:"creating,running,paused,hibernated,failed" doc:"only sandboxes in this state"`
	Image    string   `query:"image" doc:"only sandboxes of this image, by id or name"`
	Name     string   `query:"name" doc:"only the sandbox of this name"`
	Metadata []string `query:"metadata,explode" doc:"key=value; only sandboxes with all of these"`
	Parent   string   `query:"parent" doc:"only sandboxes that were forked from this sandbox or restored from a snapshot of it, or that were restored from this snapshot; by id or name, a sandbox takes precedence; an id may be of a sandbox or snapshot that is gone"`
	Ancestor string   `query:"ancestor" doc:"only sandboxes that descend from this sandbox or snapshot, over any number of generations; named as for parent"`
}

func (h *sandboxes) routeSandboxes(r *route.Router) {
	const tag, one = "sandboxes", "/v1/sandboxes/{id}"
	route.Register(r, route.WithStatus(route.Operation(http.MethodPost, "/v1/sandboxes", "create-sandbox", tag, "Create a sandbox from an image or a snapshot",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany, route.StatusNoStorage), http.StatusCreated), h.create)
	route.Register(r, route.Operation(http.MethodGet, "/v1/sandboxes", "list-sandboxes", tag, "List sandboxes", route.StatusNotFound), h.listSandboxes)
	route.Register(r, route.Operation(http.MethodGet, one, "get-sandbox", tag, "Get a sandbox", route.StatusNotFound), h.get)
	route.Register(r, route.Operation(http.MethodPatch, one, "update-sandbox", tag, "Change a sandbox's name, metadata and lifecycle",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported), h.update)
	route.Register(r, route.Operation(http.MethodDelete, one, "destroy-sandbox", tag, "Destroy a sandbox", route.StatusNotFound, route.StatusConflict), h.destroy)
	route.Register(r, route.Operation(http.MethodPost, one+"/pause", "pause-sandbox", tag, "Stop all processes of a sandbox; its memory stays",
		route.StatusNotFound, route.StatusConflict), onSandbox(h.svc.Pause))
	route.Register(r, route.Operation(http.MethodPost, one+"/resume", "resume-sandbox", tag, "Let the processes of a paused sandbox go on",
		route.StatusNotFound, route.StatusConflict), onSandbox(h.svc.Resume))
	route.Register(r, route.Operation(http.MethodPost, one+"/hibernate", "hibernate-sandbox", tag, "Write a sandbox to disk: files, memory and processes; no process of it stays on the host",
		route.StatusNotFound, route.StatusConflict, route.StatusTooMany, route.StatusNoStorage), onSandbox(h.svc.Hibernate))
	route.Register(r, route.Operation(http.MethodPost, one+"/wake", "wake-sandbox", tag, "Let a hibernated sandbox run again",
		route.StatusNotFound, route.StatusConflict, route.StatusUnsupported, route.StatusNoStorage), onSandbox(h.svc.Wake))
	route.Register(r, route.Operation(http.MethodGet, one+"/trace", "get-trace", tag, "Get what the kernel of a sandbox does", route.StatusNotFound, route.StatusConflict), h.trace)
	route.Register(r, route.Operation(http.MethodGet, one+"/stats", "get-stats", tag, "Get the resources that a sandbox uses now", route.StatusNotFound, route.StatusConflict), h.stats)
}

// onSandbox returns the handler of a route without a body that changes a sandbox.
func onSandbox(do func(context.Context, string) (*api.Sandbox, error)) func(context.Context, *route.IDInput) (*route.Out[*api.Sandbox], error) {
	return func(ctx context.Context, in *route.IDInput) (*route.Out[*api.Sandbox], error) {
		if err := route.ValidSandbox(in.ID); err != nil {
			return nil, err
		}
		sb, err := do(ctx, in.ID)
		return route.Answer(sb, err)
	}
}

func (h *sandboxes) create(ctx context.Context, in *createInput) (*route.Out[*api.Sandbox], error) {
	req := in.Body
	err := cmp.Or(api.ValidImageRef("image", req.Image), req.Pull.Valid("pull"), api.ValidOptionalName("name", req.Name), api.ValidEnv("env", req.Env), api.ValidMetadata("metadata", req.Metadata), req.Lifecycle.Valid(), req.AutoCheckpoint.Valid(), req.Network.Valid())
	if err != nil {
		return nil, err
	}
	sb, err := h.svc.Create(ctx, req)
	return route.Answer(sb, err)
}

func (h *sandboxes) get(ctx context.Context, in *route.ThingInput) (*route.Out[*api.Sandbox], error) {
	ctx, err := in.Reach(ctx)
	if err != nil {
		return nil, err
	}
	return onSandbox(h.svc.Get)(ctx, &in.IDInput)
}

func (h *sandboxes) listSandboxes(ctx context.Context, in *listInput) (*route.Out[httpwire.List[api.Sandbox]], error) {
	metadata, err := parseMetadata(in.Metadata)
	if err != nil {
		return nil, err
	}
	if in.Image != "" {
		err = api.ValidImageRef("image", in.Image)
	}
	if err := cmp.Or(err, api.ValidOptionalName("name", in.Name), route.ValidFilter("parent", in.Parent), route.ValidFilter("ancestor", in.Ancestor)); err != nil {
		return nil, err
	}
	if ctx, err = in.Reach(ctx); err != nil {
		return nil, err
	}
	all, err := h.svc.List(ctx, api.ListFilter{State: api.State(in.State), Image: in.Image, Name: in.Name, Metadata: metadata, Parent: in.Parent, Ancestor: in.Ancestor})
	if err != nil {
		return nil, err
	}
	return route.PageOf(all, in.PageInput, func(s *api.Sandbox) route.PageKey { return route.KeyOf(s.CreatedAt, s.ID) }), nil
}

func (h *sandboxes) update(ctx context.Context, in *updateInput) (*route.Out[*api.Sandbox], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	if in.Body.Name == nil && len(in.Body.Metadata) == 0 && in.Body.Lifecycle == nil {
		return nil, api.Invalid("name", "neither name, metadata nor lifecycle is to be changed")
	}
	if err := in.Body.Lifecycle.Valid(); err != nil {
		return nil, err
	}
	sb, err := h.svc.Update(ctx, in.ID, in.Body)
	return route.Answer(sb, err)
}

func (h *sandboxes) destroy(ctx context.Context, in *route.ThingInput) (*struct{}, error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	ctx, err := in.Reach(ctx)
	if err != nil {
		return nil, err
	}
	return nil, h.svc.Destroy(ctx, in.ID)
}

func (h *sandboxes) stats(ctx context.Context, in *route.IDInput) (*route.Out[*api.Stats], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	st, err := h.svc.Stats(ctx, in.ID)
	return route.Answer(st, err)
}

func (h *sandboxes) trace(ctx context.Context, in *route.IDInput) (*route.Out[*api.Trace], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	t, err := h.svc.Trace(ctx, in.ID)
	return route.Answer(t, err)
}

// parseMetadata reads the k=v pairs of a filter.
func parseMetadata(pairs []string) (map[string]string, error) {
	var m map[string]string
	for _, pair := range pairs {
		k, v, ok := strings.Cut(pair, "=")
		if !ok || k == "" {
			return nil, api.Invalid("metadata", "%q is not key=value", pair)
		}
		if m == nil {
			m = map[string]string{}
		}
		m[k] = v
	}
	return m, nil
}
