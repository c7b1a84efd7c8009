package control

import (
	"cmp"
	"context"
	"net/http"

	"ramet.dev/ramet/internal/server/rest/route"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
	"ramet.dev/ramet/internal/service"
)

// forks serves copies of sandboxes, their differences and merges.
type forks struct{ svc forkService }

type forkService interface {
	service.Sandboxes
	service.Compare
}

type forkInput struct {
	route.IDInput
	Body *api.ForkRequest
}

type diffInput struct {
	ID    string   `path:"id" doc:"id or name of a sandbox or snapshot"`
	To    string   `query:"to" required:"true" doc:"id or name of the sandbox or snapshot to compare with"`
	Path  []string `query:"path,explode" doc:"only this absolute path and the files below it; may be repeated"`
	Hunks bool     `query:"hunks" doc:"include unified diffs of text files"`
	Stat  bool     `query:"stat" doc:"include numbers of lines that differ"`
	Procs bool     `query:"processes" doc:"include the processes of two running sandboxes"`
	Vars  bool     `query:"variables" doc:"include the variables of Python and Node contexts, of two running sandboxes"`
}

// Resolve implements huma.Resolver. The framework takes paths of which the first is empty
// for no paths, and all files would be compared.
func (in *diffInput) Resolve(ctx huma.Context) []error {
	asked := ctx.URL()
	in.Path = asked.Query()["path"]
	return nil
}

type mergeInput struct {
	route.IDInput
	Body api.MergeRequest
}

type treeInput struct {
	route.ReachInput
	Sandbox string `query:"sandbox" doc:"only the lineage below this sandbox"`
}

func (h *forks) routeForks(r *route.Router) {
	const tag, one = "forks", "/v1/sandboxes/{id}"
	route.Register(r, route.Operation(http.MethodPost, one+"/fork", "fork-sandbox", tag, "Fork a running sandbox: files, memory and processes",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany, route.StatusNoStorage), h.fork)
	route.Register(r, route.Operation(http.MethodPost, one+"/promote", "promote-sandbox", tag, "Give a child's state to its parent",
		route.StatusNotFound, route.StatusConflict), onSandbox(h.svc.Promote))
	route.Register(r, route.Operation(http.MethodGet, one+"/diff", "diff-sandboxes", tag, "Compare two sandboxes or snapshots of one tree or image", route.StatusNotFound, route.StatusConflict, route.StatusTooMany), h.diff)
	route.Register(r, route.Operation(http.MethodPost, one+"/merge", "merge-sandboxes", tag, "Merge file changes of other sandboxes since their fork points into a running sandbox",
		route.StatusNotFound, route.StatusConflict, route.StatusTooLarge, route.StatusUnsupported, route.StatusTooMany, route.StatusNoStorage), h.merge)
	route.Register(r, route.Operation(http.MethodGet, "/v1/tree", "get-tree", tag, "The lineage of sandboxes and snapshots", route.StatusNotFound), h.tree)
}

func (h *forks) fork(ctx context.Context, in *forkInput) (*route.Out[*api.ForkResult], error) {
	req := route.Present(in.Body)
	req.Count = api.Children(req.Count, req.Names)
	err := cmp.Or(route.ValidSandbox(in.ID), api.ValidChildNames(req.Count, req.Names), api.DistinctNames("names", req.Names), api.ValidEnv("env", req.Env), api.ValidMetadata("metadata", req.Metadata), req.Lifecycle.Valid(), req.Network.Valid())
	if err != nil {
		return nil, err
	}
	res, err := h.svc.Fork(ctx, in.ID, req)
	return forkOut(res, err)
}

func forkOut(res *api.ForkResult, err error) (*route.Out[*api.ForkResult], error) {
	if err != nil {
		return nil, err
	}
	res.Children = route.List(res.Children)
	return route.Answer(res, nil)
}

func (h *forks) diff(ctx context.Context, in *diffInput) (*route.Out[*api.Diff], error) {
	if err := cmp.Or(api.ValidSource("id", in.ID), api.ValidSource("to", in.To)); err != nil {
		return nil, err
	}
	if err := api.ValidTreePaths("path", in.Path); err != nil {
		return nil, err
	}
	d, err := h.svc.Diff(ctx, in.ID, in.To, api.DiffRequest{Paths: in.Path, Hunks: in.Hunks, Stat: in.Stat, Processes: in.Procs, Variables: in.Vars})
	if err != nil {
		return nil, err
	}
	d.Changes = route.List(d.Changes)
	return route.Answer(d, nil)
}

func (h *forks) merge(ctx context.Context, in *mergeInput) (*route.Out[*api.MergeResult], error) {
	if err := cmp.Or(route.ValidSandbox(in.ID), api.ValidTreePaths("paths", in.Body.Paths)); err != nil {
		return nil, err
	}
	for _, ref := range in.Body.From {
		if err := api.ValidSource("from", ref); err != nil {
			return nil, err
		}
	}
	res, err := h.svc.Merge(ctx, in.ID, in.Body)
	if err != nil {
		return nil, err
	}
	res.Sides, res.Applied, res.Conflicts = route.List(res.Sides), route.List(res.Applied), route.List(res.Conflicts)
	return route.Answer(res, nil)
}

func (h *forks) tree(ctx context.Context, in *treeInput) (*route.Out[httpwire.List[*api.TreeNode]], error) {
	if in.Sandbox != "" {
		if err := api.ValidRef(api.KindSandbox, "sandbox", in.Sandbox); err != nil {
			return nil, err
		}
	}
	ctx, err := in.Reach(ctx)
	if err != nil {
		return nil, err
	}
	roots, err := h.svc.Tree(ctx, in.Sandbox)
	return route.AnswerList(roots, err)
}
