package control

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"ramet.dev/ramet/internal/server/rest/route"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// snapshots serves snapshots, restores and rollbacks.
type snapshots struct{ svc snapshotService }

type snapshotService interface {
	service.Snapshots
	service.Timeline
}

type snapshotInput struct {
	route.IDInput
	Body *api.SnapshotRequest
}

type restoreInput struct {
	route.IDInput
	Body *api.RestoreRequest
}

type rollbackInput struct {
	route.IDInput
	Body httpwire.RollbackRequest
}

type deleteSnapshotInput struct {
	route.ThingInput
	Cascade bool `query:"cascade" doc:"delete the snapshots that depend on it, too"`
	Flatten bool `query:"flatten" doc:"rewrite the snapshots that depend on it, so that they do not any more"`
}

type snapshotsInput struct {
	route.PageInput
	route.ReachInput
	State    string   `query:"state" enum:"creating,uploading,ready,failed,deleted" doc:"only snapshots in this state; deleted snapshots that others depend on are listed only with state deleted"`
	Image    string   `query:"image" doc:"only snapshots of sandboxes of this image, by id"`
	Name     string   `query:"name" doc:"only the snapshot of this name"`
	Sandbox  string   `query:"sandbox" doc:"only snapshots of this sandbox, by id"`
	Metadata []string `query:"metadata,explode" doc:"key=value; only snapshots with all of these"`
}

func (h *snapshots) routeSnapshots(r *route.Router) {
	const tag, one = "snapshots", "/v1/snapshots/{id}"
	route.Register(r, route.WithStatus(route.Operation(http.MethodPost, "/v1/sandboxes/{id}/snapshots", "create-snapshot", tag, "Make a snapshot of a running sandbox",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany, route.StatusNoStorage), http.StatusCreated), h.snapshot)
	route.Register(r, route.Operation(http.MethodPost, "/v1/sandboxes/{id}/rollback", "rollback-sandbox", tag, "Return a sandbox to a snapshot of it, or to a step of its timeline; it keeps its id",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusNoStorage), h.rollback)
	route.Register(r, route.Operation(http.MethodGet, "/v1/snapshots", "list-snapshots", tag, "List snapshots"), h.listSnapshots)
	route.Register(r, route.Operation(http.MethodGet, one, "get-snapshot", tag, "Get a snapshot", route.StatusNotFound), h.getSnapshot)
	route.Register(r, route.Operation(http.MethodDelete, one, "delete-snapshot", tag, "Delete a snapshot", route.StatusNotFound, route.StatusConflict, route.StatusUnsupported, route.StatusNoStorage), h.deleteSnapshot)
	route.Register(r, route.Operation(http.MethodPost, one+"/verify", "verify-snapshot", tag, "Compare a snapshot on disk with its digests",
		route.StatusNotFound, route.StatusConflict, route.StatusUnsupported), h.verifySnapshot)
	route.Register(r, route.Operation(http.MethodPost, one+"/restore", "restore-snapshot", tag, "Make new sandboxes from a snapshot",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany, route.StatusNoStorage), h.restore)
}

func (h *snapshots) snapshot(ctx context.Context, in *snapshotInput) (*route.Out[*api.Snapshot], error) {
	req := route.Present(in.Body)
	if err := cmp.Or(route.ValidSandbox(in.ID), api.ValidOptionalName("name", req.Name), api.ValidMetadata("metadata", req.Metadata)); err != nil {
		return nil, err
	}
	snap, err := h.svc.Snapshot(ctx, in.ID, req)
	return route.Answer(snap, err)
}

func (h *snapshots) rollback(ctx context.Context, in *rollbackInput) (*route.Out[*api.Sandbox], error) {
	if err := route.ValidSandbox(in.ID); err != nil {
		return nil, err
	}
	if (in.Body.Snapshot == "") == (in.Body.Step == nil) {
		return nil, api.Invalid("snapshot", "exactly one of snapshot and step must be given")
	}
	if in.Body.Step != nil {
		sb, err := h.svc.Rewind(ctx, in.ID, *in.Body.Step)
		return route.Answer(sb, err)
	}
	if err := route.ValidSnapshot("snapshot", in.Body.Snapshot); err != nil {
		return nil, err
	}
	sb, err := h.svc.Rollback(ctx, in.ID, in.Body.Snapshot)
	return route.Answer(sb, err)
}

func (h *snapshots) listSnapshots(ctx context.Context, in *snapshotsInput) (*route.Out[httpwire.List[api.Snapshot]], error) {
	metadata, err := parseMetadata(in.Metadata)
	if err != nil {
		return nil, err
	}
	if ctx, err = in.Reach(ctx); err != nil {
		return nil, err
	}
	all, err := h.svc.Snapshots(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s api.Snapshot) bool {
		for k, v := range metadata {
			if got, ok := s.Metadata[k]; !ok || got != v {
				return true
			}
		}
		if in.State == "" && s.State == api.SnapshotDeleted {
			return true
		}
		return differs(in.State, string(s.State)) || differs(in.Image, s.Image) || differs(in.Name, s.Name) || differs(in.Sandbox, s.Sandbox)
	})
	return route.PageOf(all, in.PageInput, func(s *api.Snapshot) route.PageKey { return route.KeyOf(s.CreatedAt, s.ID) }), nil
}

// differs reports whether a filter that is set does not match.
func differs(filter, value string) bool { return filter != "" && filter != value }

func (h *snapshots) getSnapshot(ctx context.Context, in *route.ThingInput) (*route.Out[*api.Snapshot], error) {
	if err := route.ValidSnapshot("id", in.ID); err != nil {
		return nil, err
	}
	ctx, err := in.Reach(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := h.svc.GetSnapshot(ctx, in.ID)
	return route.Answer(snap, err)
}

func (h *snapshots) deleteSnapshot(ctx context.Context, in *deleteSnapshotInput) (*struct{}, error) {
	if err := route.ValidSnapshot("id", in.ID); err != nil {
		return nil, err
	}
	if in.Cascade && in.Flatten {
		return nil, api.Invalid("flatten", "what depends on the snapshot is deleted or written anew, not both")
	}
	ctx, err := in.Reach(ctx)
	if err != nil {
		return nil, err
	}
	return nil, h.svc.DeleteSnapshot(ctx, in.ID, api.SnapshotDeletion{Cascade: in.Cascade, Flatten: in.Flatten})
}

func (h *snapshots) verifySnapshot(ctx context.Context, in *route.IDInput) (*route.Out[*api.Snapshot], error) {
	if err := route.ValidSnapshot("id", in.ID); err != nil {
		return nil, err
	}
	snap, err := h.svc.VerifySnapshot(ctx, in.ID)
	return route.Answer(snap, err)
}

func (h *snapshots) restore(ctx context.Context, in *restoreInput) (*route.Out[*api.ForkResult], error) {
	req := route.Present(in.Body)
	req.Count = api.Children(req.Count, req.Names)
	err := cmp.Or(route.ValidSnapshot("id", in.ID), api.ValidChildNames(req.Count, req.Names), api.DistinctNames("names", req.Names), api.ValidEnv("env", req.Env), api.ValidMetadata("metadata", req.Metadata), req.Lifecycle.Valid(), req.Network.Valid())
	if err != nil {
		return nil, err
	}
	res, err := h.svc.Restore(ctx, in.ID, req)
	return forkOut(res, err)
}
