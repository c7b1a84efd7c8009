package rest

import (
	"cmp"
	"context"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/httpwire"
)

type forkInput struct {
	IDInput
	Body *api.ForkRequest
}

type diffInput struct {
	ID    string   `path:"id" doc:"id or name of a sandbox or snapshot"`
	To    string   `query:"to" required:"true" doc:"id or name of the sandbox or snapshot to compare with"`
	Path  []string `query:"path,explode" doc:"only this absolute path and what is below it; may be repeated"`
	Hunks bool     `query:"hunks" doc:"with unified diffs of text files"`
	Stat  bool     `query:"stat" doc:"with numbers of lines that differ"`
	Procs bool     `query:"processes" doc:"with the processes of two running sandboxes"`
	Vars  bool     `query:"variables" doc:"with the variables of Python and Node contexts, of two running sandboxes"`
}

// Resolve implements huma.Resolver. The framework takes paths of which the first is empty
// for none at all, and all files would be compared.
func (in *diffInput) Resolve(ctx huma.Context) []error {
	asked := ctx.URL()
	in.Path = asked.Query()["path"]
	return nil
}

type mergeInput struct {
	IDInput
	Body api.MergeRequest
}

type treeInput struct {
	ReachInput
	Sandbox string `query:"sandbox" doc:"only the lineage below this sandbox"`
}

func (a *API) routeForks() {
	const tag, one = "forks", "/v1/sandboxes/{id}"
	register(a, operation(http.MethodPost, one+"/fork", "fork-sandbox", tag, "Fork a running sandbox: files, memory and processes",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusTooMany, statusNoStorage), a.fork)
	register(a, operation(http.MethodPost, one+"/promote", "promote-sandbox", tag, "Give a child's state to its parent",
		statusNotFound, statusConflict), onSandbox(a.svc.Promote))
	register(a, operation(http.MethodGet, one+"/diff", "diff-sandboxes", tag, "Compare two sandboxes or snapshots of one tree or image", statusNotFound, statusConflict, statusTooMany), a.diff)
	register(a, operation(http.MethodPost, one+"/merge", "merge-sandboxes", tag, "Bring what others changed in their files since they parted to a running sandbox",
		statusNotFound, statusConflict, statusTooLarge, statusUnsupported, statusTooMany, statusNoStorage), a.merge)
	register(a, operation(http.MethodGet, "/v1/tree", "get-tree", tag, "The lineage of sandboxes and snapshots", statusNotFound), a.tree)
}

func (a *API) fork(ctx context.Context, in *forkInput) (*out[*api.ForkResult], error) {
	req := present(in.Body)
	req.Count = api.Children(req.Count, req.Names)
	err := cmp.Or(validSandbox(in.ID), validChildren(req.Count, req.Names), validEnv(req.Env), api.ValidMetadata("metadata", req.Metadata), req.Lifecycle.Valid())
	if err != nil {
		return nil, err
	}
	res, err := a.svc.Fork(ctx, in.ID, req)
	return forkOut(res, err)
}

// validChildren checks the names of count children.
func validChildren(count int, names []string) error {
	if len(names) != 0 && len(names) != count {
		return api.Invalid("names", "there are %d names for %d children", len(names), count)
	}
	for i, name := range names {
		if name != "" && slices.Contains(names[:i], name) {
			return api.Invalid("names", "%q is given twice", name)
		}
	}
	return validNames("names", names...)
}

func forkOut(res *api.ForkResult, err error) (*out[*api.ForkResult], error) {
	if err != nil {
		return nil, err
	}
	res.Children = list(res.Children)
	return &out[*api.ForkResult]{res}, nil
}

func (a *API) diff(ctx context.Context, in *diffInput) (*out[*api.Diff], error) {
	if err := cmp.Or(validSide("id", in.ID), validSide("to", in.To)); err != nil {
		return nil, err
	}
	if err := validPaths("path", in.Path); err != nil {
		return nil, err
	}
	d, err := a.svc.Diff(ctx, in.ID, in.To, api.DiffRequest{Paths: in.Path, Hunks: in.Hunks, Stat: in.Stat, Processes: in.Procs, Variables: in.Vars})
	if err != nil {
		return nil, err
	}
	d.Changes = list(d.Changes)
	return &out[*api.Diff]{d}, nil
}

func validPaths(field string, paths []string) error {
	for _, p := range paths {
		if !path.IsAbs(p) || p != path.Clean(p) || strings.Contains(p, "\x00") {
			return api.Invalid(field, "%q is not a clean absolute path", p)
		}
	}
	return nil
}

func (a *API) merge(ctx context.Context, in *mergeInput) (*out[*api.MergeResult], error) {
	if err := cmp.Or(validSandbox(in.ID), validPaths("paths", in.Body.Paths)); err != nil {
		return nil, err
	}
	for _, ref := range in.Body.From {
		if err := validSide("from", ref); err != nil {
			return nil, err
		}
	}
	res, err := a.svc.Merge(ctx, in.ID, in.Body)
	if err != nil {
		return nil, err
	}
	res.Sides, res.Applied, res.Conflicts = list(res.Sides), list(res.Applied), list(res.Conflicts)
	return &out[*api.MergeResult]{res}, nil
}

func (a *API) tree(ctx context.Context, in *treeInput) (*out[httpwire.List[*api.TreeNode]], error) {
	if in.Sandbox != "" {
		if err := api.ValidRef(api.KindSandbox, "sandbox", in.Sandbox); err != nil {
			return nil, err
		}
	}
	ctx, err := in.reach(ctx)
	if err != nil {
		return nil, err
	}
	roots, err := a.svc.Tree(ctx, in.Sandbox)
	return &out[httpwire.List[*api.TreeNode]]{httpwire.List[*api.TreeNode]{Items: list(roots)}}, err
}
