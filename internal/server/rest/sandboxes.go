package rest

import (
	"cmp"
	"context"
	"net/http"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

type createInput struct{ Body api.CreateRequest }

type updateInput struct {
	IDInput
	Body api.UpdateRequest
}

type listInput struct {
	PageInput
	ReachInput
	State    string   `query:"state" enum:"creating,running,paused,hibernated,failed" doc:"only sandboxes in this state"`
	Image    string   `query:"image" doc:"only sandboxes of this image, by id or name"`
	Name     string   `query:"name" doc:"only the sandbox of this name"`
	Metadata []string `query:"metadata,explode" doc:"key=value; only sandboxes with all of these"`
	Parent   string   `query:"parent" doc:"only sandboxes that were forked from this one or restored from a snapshot of it, or that were restored from this snapshot; each by id or name, of the same name the sandbox; an id may be of one that is gone"`
	Ancestor string   `query:"ancestor" doc:"only sandboxes that descend from this one or from this snapshot, over any number of generations; as parent"`
}

func (a *API) routeSandboxes() {
	const tag, one = "sandboxes", "/v1/sandboxes/{id}"
	register(a, withStatus(operation(http.MethodPost, "/v1/sandboxes", "create-sandbox", tag, "Create a sandbox from an image or a snapshot",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusTooMany, statusNoStorage), http.StatusCreated), a.create)
	register(a, operation(http.MethodGet, "/v1/sandboxes", "list-sandboxes", tag, "List sandboxes", statusNotFound), a.listSandboxes)
	register(a, operation(http.MethodGet, one, "get-sandbox", tag, "Look at a sandbox", statusNotFound), a.get)
	register(a, operation(http.MethodPatch, one, "update-sandbox", tag, "Change a sandbox's name, metadata and lifecycle",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported), a.update)
	register(a, operation(http.MethodDelete, one, "destroy-sandbox", tag, "End a sandbox", statusNotFound, statusConflict), a.destroy)
	register(a, operation(http.MethodPost, one+"/pause", "pause-sandbox", tag, "Stop all processes of a sandbox; its memory stays",
		statusNotFound, statusConflict), onSandbox(a.svc.Pause))
	register(a, operation(http.MethodPost, one+"/resume", "resume-sandbox", tag, "Let the processes of a paused sandbox go on",
		statusNotFound, statusConflict), onSandbox(a.svc.Resume))
	register(a, operation(http.MethodPost, one+"/hibernate", "hibernate-sandbox", tag, "Put a sandbox on disk: files, memory and processes; nothing of it runs on the host",
		statusNotFound, statusConflict, statusTooMany, statusNoStorage), onSandbox(a.svc.Hibernate))
	register(a, operation(http.MethodPost, one+"/wake", "wake-sandbox", tag, "Let a hibernated sandbox run again",
		statusNotFound, statusConflict, statusUnsupported, statusNoStorage), onSandbox(a.svc.Wake))
	register(a, operation(http.MethodGet, one+"/stats", "get-stats", tag, "What a sandbox uses now", statusNotFound, statusConflict), a.stats)
}

// onSandbox is the handler of a route that does one thing to one sandbox.
func onSandbox(do func(context.Context, string) (*api.Sandbox, error)) func(context.Context, *IDInput) (*out[*api.Sandbox], error) {
	return func(ctx context.Context, in *IDInput) (*out[*api.Sandbox], error) {
		if err := validSandbox(in.ID); err != nil {
			return nil, err
		}
		sb, err := do(ctx, in.ID)
		return &out[*api.Sandbox]{sb}, err
	}
}

func (a *API) create(ctx context.Context, in *createInput) (*out[*api.Sandbox], error) {
	req := in.Body
	err := cmp.Or(validImageRef("image", req.Image), validNames("name", req.Name), validEnv(req.Env), api.ValidMetadata("metadata", req.Metadata), req.Lifecycle.Valid(), req.AutoCheckpoint.Valid())
	if err != nil {
		return nil, err
	}
	sb, err := a.svc.Create(ctx, req)
	return &out[*api.Sandbox]{sb}, err
}

func (a *API) get(ctx context.Context, in *ThingInput) (*out[*api.Sandbox], error) {
	ctx, err := in.reach(ctx)
	if err != nil {
		return nil, err
	}
	return onSandbox(a.svc.Get)(ctx, &in.IDInput)
}

func (a *API) listSandboxes(ctx context.Context, in *listInput) (*out[httpwire.List[api.Sandbox]], error) {
	metadata, err := parseMetadata(in.Metadata)
	if err != nil {
		return nil, err
	}
	if in.Image != "" {
		err = validImageRef("image", in.Image)
	}
	if err := cmp.Or(err, validNames("name", in.Name), validOptionalSide("parent", in.Parent), validOptionalSide("ancestor", in.Ancestor)); err != nil {
		return nil, err
	}
	if ctx, err = in.reach(ctx); err != nil {
		return nil, err
	}
	all, err := a.svc.List(ctx, api.ListFilter{State: api.State(in.State), Image: in.Image, Name: in.Name, Metadata: metadata, Parent: in.Parent, Ancestor: in.Ancestor})
	if err != nil {
		return nil, err
	}
	return pageOf(all, in.PageInput, func(s *api.Sandbox) pageKey { return keyOf(s.CreatedAt, s.ID) }), nil
}

func (a *API) update(ctx context.Context, in *updateInput) (*out[*api.Sandbox], error) {
	if err := validSandbox(in.ID); err != nil {
		return nil, err
	}
	if in.Body.Name == nil && len(in.Body.Metadata) == 0 && in.Body.Lifecycle == nil {
		return nil, api.Invalid("name", "neither name, metadata nor lifecycle is to be changed")
	}
	if err := in.Body.Lifecycle.Valid(); err != nil {
		return nil, err
	}
	sb, err := a.svc.Update(ctx, in.ID, in.Body)
	return &out[*api.Sandbox]{sb}, err
}

func (a *API) destroy(ctx context.Context, in *ThingInput) (*struct{}, error) {
	if err := validSandbox(in.ID); err != nil {
		return nil, err
	}
	ctx, err := in.reach(ctx)
	if err != nil {
		return nil, err
	}
	return nil, a.svc.Destroy(ctx, in.ID)
}

func (a *API) stats(ctx context.Context, in *IDInput) (*out[*api.Stats], error) {
	if err := validSandbox(in.ID); err != nil {
		return nil, err
	}
	st, err := a.svc.Stats(ctx, in.ID)
	return &out[*api.Stats]{st}, err
}
