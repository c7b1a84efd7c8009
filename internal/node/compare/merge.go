package compare

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/fsview"
	"ramet.dev/ramet/internal/storage/cowfs"
	"ramet.dev/ramet/internal/storage/merge"
	"ramet.dev/ramet/internal/storage/treediff"
)

const (
	// maxSides bounds how many are merged at once.
	maxSides = 100
	// maxPlans is how often a merge is planned anew because the sandbox changed
	// what it is about.
	maxPlans = 5
)

var strategies = map[api.MergeStrategy]merge.Strategy{
	api.MergeLeave: merge.Leave, api.MergeFail: merge.Leave, api.MergeOurs: merge.Ours, api.MergeTheirs: merge.Theirs,
}

// Merge brings what the files of others changed since they parted to a running
// sandbox: all that is not in conflict, or nothing if it fails. It takes time in
// proportion to what changed. The sandbox stands still for the part in which names
// change; others go on.
func (c *Comparer) Merge(ctx context.Context, ref string, req api.MergeRequest) (_ *api.MergeResult, err error) {
	ctx, ended := c.cfg.Observe(ctx, "merge")
	defer ended(&err)
	if req.Strategy == "" {
		req.Strategy = api.MergeLeave
	}
	if _, ok := strategies[req.Strategy]; !ok {
		return nil, api.Invalid("strategy", "%q is not leave, ours, theirs or fail", req.Strategy)
	}
	if len(req.From) < 1 || len(req.From) > maxSides {
		return nil, api.Invalid("from", "%d is not from 1 to %d", len(req.From), maxSides)
	}
	filter, err := mergeFilter(req.Paths)
	if err != nil {
		return nil, err
	}
	for _, pattern := range req.Exclude {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" || strings.Contains(pattern, "/") {
			return nil, api.Invalid("exclude", "%q is not a pattern of names, such as *.o", pattern)
		}
	}
	target, err := c.cfg.Target(ctx, ref)
	if err != nil {
		return nil, err
	}
	turn, err := c.cfg.Turn(ctx)
	if err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	defer turn()
	release, err := target.Hold(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	g := &merging{cfg: &c.cfg, target: target, req: &req, filter: filter}
	defer g.close()
	if err := g.open(ctx); err != nil {
		return nil, err
	}
	for range maxPlans {
		done, err := g.try(ctx)
		if err != nil {
			return nil, fmt.Errorf("merge: %w", filesError(err))
		}
		if done {
			if n := len(g.result.Applied); n > 0 && !req.DryRun {
				target.Merged(req.From, n)
			}
			noteMerge(ctx, g.from, &req, g.result)
			return g.result, nil
		}
	}
	return nil, api.Errorf(api.CodeConflict, "merge: sandbox %s goes on changing %s: pause it, or merge other paths", target.ID(), g.stale)
}

// mergeFilter selects what is at and below paths, or all that is usually merged.
func mergeFilter(paths []string) (treediff.Filter, error) {
	f, err := newFilter(paths)
	f.Except = fsview.OwnPaths()
	if len(paths) == 0 {
		f.Except = fsview.SkippedPaths()
	}
	return f, err
}

// merging is a merge under way.
type merging struct {
	cfg    *Config
	target Target
	req    *api.MergeRequest
	filter treediff.Filter
	from   []*fsview.View
	result *api.MergeResult
	stale  string // what the sandbox changed meanwhile
}

func (g *merging) close() {
	for _, view := range g.from {
		view.Close()
	}
}

// selects says whether a path may be merged.
func (g *merging) selects(at string) bool {
	if !g.filter.Selects(at) {
		return false
	}
	for name := range strings.SplitSeq(at[1:], "/") {
		if slices.ContainsFunc(g.req.Exclude, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }) {
			return false
		}
	}
	return true
}

// open opens the views that are merged.
func (g *merging) open(ctx context.Context) error {
	for _, ref := range g.req.From {
		view, err := g.cfg.View(ctx, ref)
		if err != nil {
			return fmt.Errorf("merge: %w", err)
		}
		g.from = append(g.from, view)
		if view.ID == g.target.ID() {
			return api.Invalid("from", "%q is the sandbox that is merged into", ref)
		}
		if slices.ContainsFunc(g.from[:len(g.from)-1], func(x *fsview.View) bool { return x.ID == view.ID }) {
			return api.Invalid("from", "%q is there twice", ref)
		}
	}
	return nil
}

// try plans the merge and carries it out. done is false if the sandbox changed
// what the plan is about.
func (g *merging) try(ctx context.Context) (done bool, err error) {
	into, err := g.target.View(ctx)
	if err != nil {
		return false, err
	}
	defer into.Close()
	left := newMergeBudget()
	ours := newMergeTree(into.Files, left)
	plan := merge.New(ours, strategies[g.req.Strategy], g.selects)
	g.result = &api.MergeResult{Into: into.ID, DryRun: g.req.DryRun, Strategy: g.req.Strategy, Applied: []api.MergeChange{}}
	sides := append([]*fsview.View{into}, g.from...)
	for _, from := range g.from {
		base, err := g.cfg.MergeBase(ctx, into, from)
		if err != nil {
			return false, err
		}
		defer base.Close() // the plan refers to it
		sides = append(sides, base)
		if err := g.plan(ctx, plan, base, into, from, left); err != nil {
			return false, err
		}
	}
	if err := g.known(sides); err != nil {
		return false, err
	}
	if g.result.Conflicts, err = describeConflicts(ctx, plan.Conflicts(), g.req.Strategy); err != nil {
		return false, err
	}
	if g.req.Strategy == api.MergeFail && g.result.Unresolved() > 0 {
		return true, nil
	}
	applied, err := plan.Applied(ctx)
	if err != nil {
		return false, err
	}
	for i := range applied {
		g.result.Applied = append(g.result.Applied, describeApplied(&applied[i]))
	}
	if g.req.DryRun {
		return true, nil
	}
	ops, err := plan.Ops(ctx)
	if err != nil || len(ops) == 0 {
		return err == nil, err
	}
	return g.carryOut(ctx, into, ops)
}

// known refuses a path that was asked for and is at no side, nor was when they parted:
// it is a mistake that "nothing to merge" would hide.
func (g *merging) known(sides []*fsview.View) error {
	for _, at := range g.filter.Only {
		missing := 0
		for _, side := range sides {
			switch _, err := side.Files.Find(at); {
			case errors.Is(err, cowfs.ErrNotExist):
				missing++
			case err != nil:
				return err
			}
		}
		if missing == len(sides) {
			e := api.Errorf(api.CodeNotFound, "no side has %q, and none had it when they parted", at)
			e.Field = "paths"
			return e
		}
	}
	return nil
}

// plan adds one side to the plan.
func (g *merging) plan(ctx context.Context, plan *merge.Plan, base, into, from *fsview.View, left *mergeBudget) (err error) {
	g.result.Sides = append(g.result.Sides, api.MergeSide{From: from.ID, Base: base.ID})
	side := merge.Side{Name: from.ID, Base: newMergeTree(base.Files, left), Tree: newMergeTree(from.Files, left)}
	if side.Ours, err = g.changes(ctx, base, into); err != nil {
		return err
	}
	if side.Theirs, err = g.changes(ctx, base, from); err != nil {
		return err
	}
	return plan.Merge(ctx, side)
}

func (g *merging) changes(ctx context.Context, from, to *fsview.View) ([]merge.Change, error) {
	changes, err := treediff.Changes(ctx, from.Files, to.Files, g.filter)
	out := make([]merge.Change, len(changes))
	for i, c := range changes {
		out[i] = merge.Change{Path: c.Path, From: c.From, Renamed: c.Kind == treediff.Renamed}
	}
	return out, err
}

// carryOut has the sentry do what is planned. It looks first whether the files are
// still those of the plan.
func (g *merging) carryOut(ctx context.Context, into *fsview.View, ops []merge.Op) (done bool, err error) {
	file, err := g.cfg.NewFile()
	if err != nil {
		return false, err
	}
	defer file.Close()
	patch, err := writePatch(ctx, file, ops)
	if err != nil {
		return false, err
	}
	patch.body.View, patch.body.Root = into.Pin, into.Root
	patched, err := g.target.Patch(ctx, &patch.body, file)
	if err != nil {
		return false, err
	}
	g.stale, g.result.PauseMS = string(patched.Stale), patched.PauseMS
	g.cfg.MergePaused(patched.PauseMS)
	return g.stale == "", nil
}
