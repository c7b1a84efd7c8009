package rest

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

type snapshotInput struct {
	IDInput
	Body *api.SnapshotRequest
}

type restoreInput struct {
	IDInput
	Body *api.RestoreRequest
}

type rollbackInput struct {
	IDInput
	Body httpwire.RollbackRequest
}

type deleteSnapshotInput struct {
	ThingInput
	Cascade bool `query:"cascade" doc:"delete the snapshots that depend on it, too"`
	Flatten bool `query:"flatten" doc:"write the snapshots that depend on it anew, so that they do not"`
}

type snapshotsInput struct {
	PageInput
	ReachInput
	State    string   `query:"state" enum:"creating,uploading,ready,failed,deleted" doc:"only snapshots in this state; deleted ones, of which others need part, are only listed so"`
	Image    string   `query:"image" doc:"only snapshots of sandboxes of this image, by id"`
	Name     string   `query:"name" doc:"only the snapshot of this name"`
	Sandbox  string   `query:"sandbox" doc:"only snapshots of this sandbox, by id"`
	Metadata []string `query:"metadata,explode" doc:"key=value; only snapshots with all of these"`
}

func (a *API) routeSnapshots() {
	const tag, one = "snapshots", "/v1/snapshots/{id}"
	register(a, withStatus(operation(http.MethodPost, "/v1/sandboxes/{id}/snapshots", "create-snapshot", tag, "Keep the present state of a running sandbox",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusTooMany, statusNoStorage), http.StatusCreated), a.snapshot)
	register(a, operation(http.MethodPost, "/v1/sandboxes/{id}/rollback", "rollback-sandbox", tag, "Return a sandbox to a snapshot of it, or to a step of its timeline; it keeps its id",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusNoStorage), a.rollback)
	register(a, operation(http.MethodGet, "/v1/snapshots", "list-snapshots", tag, "List snapshots"), a.listSnapshots)
	register(a, operation(http.MethodGet, one, "get-snapshot", tag, "Look at a snapshot", statusNotFound), a.getSnapshot)
	register(a, operation(http.MethodDelete, one, "delete-snapshot", tag, "Delete a snapshot", statusNotFound, statusConflict, statusUnsupported, statusNoStorage), a.deleteSnapshot)
	register(a, operation(http.MethodPost, one+"/verify", "verify-snapshot", tag, "Compare all of a snapshot on disk with its digests",
		statusNotFound, statusConflict, statusUnsupported), a.verifySnapshot)
	register(a, operation(http.MethodPost, one+"/restore", "restore-snapshot", tag, "Make new sandboxes from a snapshot",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusTooMany, statusNoStorage), a.restore)
}

func (a *API) snapshot(ctx context.Context, in *snapshotInput) (*out[*api.Snapshot], error) {
	req := present(in.Body)
	if err := cmp.Or(validSandbox(in.ID), validNames("name", req.Name), api.ValidMetadata("metadata", req.Metadata)); err != nil {
		return nil, err
	}
	snap, err := a.svc.Snapshot(ctx, in.ID, req)
	return &out[*api.Snapshot]{snap}, err
}

func (a *API) rollback(ctx context.Context, in *rollbackInput) (*out[*api.Sandbox], error) {
	if err := validSandbox(in.ID); err != nil {
		return nil, err
	}
	if (in.Body.Snapshot == "") == (in.Body.Step == nil) {
		return nil, api.Invalid("snapshot", "exactly one of snapshot and step must be given")
	}
	if in.Body.Step != nil {
		sb, err := a.svc.Rewind(ctx, in.ID, *in.Body.Step)
		return &out[*api.Sandbox]{sb}, err
	}
	if err := validSnapshot("snapshot", in.Body.Snapshot); err != nil {
		return nil, err
	}
	sb, err := a.svc.Rollback(ctx, in.ID, in.Body.Snapshot)
	return &out[*api.Sandbox]{sb}, err
}

func (a *API) listSnapshots(ctx context.Context, in *snapshotsInput) (*out[httpwire.List[api.Snapshot]], error) {
	metadata, err := parseMetadata(in.Metadata)
	if err != nil {
		return nil, err
	}
	if ctx, err = in.reach(ctx); err != nil {
		return nil, err
	}
	all, err := a.svc.Snapshots(ctx)
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
	return pageOf(all, in.PageInput, func(s *api.Snapshot) pageKey { return keyOf(s.CreatedAt, s.ID) }), nil
}

// differs reports whether a filter that is set does not match.
func differs(filter, value string) bool { return filter != "" && filter != value }

func (a *API) getSnapshot(ctx context.Context, in *ThingInput) (*out[*api.Snapshot], error) {
	if err := validSnapshot("id", in.ID); err != nil {
		return nil, err
	}
	ctx, err := in.reach(ctx)
	if err != nil {
		return nil, err
	}
	snap, err := a.svc.GetSnapshot(ctx, in.ID)
	return &out[*api.Snapshot]{snap}, err
}

func (a *API) deleteSnapshot(ctx context.Context, in *deleteSnapshotInput) (*struct{}, error) {
	if err := validSnapshot("id", in.ID); err != nil {
		return nil, err
	}
	if in.Cascade && in.Flatten {
		return nil, api.Invalid("flatten", "what depends on the snapshot is deleted or written anew, not both")
	}
	ctx, err := in.reach(ctx)
	if err != nil {
		return nil, err
	}
	return nil, a.svc.DeleteSnapshot(ctx, in.ID, api.SnapshotDeletion{Cascade: in.Cascade, Flatten: in.Flatten})
}

func (a *API) verifySnapshot(ctx context.Context, in *IDInput) (*out[*api.Snapshot], error) {
	if err := validSnapshot("id", in.ID); err != nil {
		return nil, err
	}
	snap, err := a.svc.VerifySnapshot(ctx, in.ID)
	return &out[*api.Snapshot]{snap}, err
}

func (a *API) restore(ctx context.Context, in *restoreInput) (*out[*api.ForkResult], error) {
	req := present(in.Body)
	req.Count = api.Children(req.Count, req.Names)
	err := cmp.Or(validSnapshot("id", in.ID), validChildren(req.Count, req.Names), validEnv(req.Env), api.ValidMetadata("metadata", req.Metadata), req.Lifecycle.Valid())
	if err != nil {
		return nil, err
	}
	res, err := a.svc.Restore(ctx, in.ID, req)
	return forkOut(res, err)
}
