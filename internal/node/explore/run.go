package explore

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/service/access"
)

// run is an exploration.
type run struct {
	table
	plan   api.ExplorePlan // complete; empty after a restart
	scorer *scorer
	output int // bytes of each stream that the table keeps
	scored int // bytes of each stream that a score is taken from

	begun   chan struct{} // closed when the first attempts are there, or were refused
	refused error         // why they were
	over    chan struct{} // closed when it has ended
	dropped map[int]bool  // attempts that are destroyed, or would be if not all were kept
	diffs   chan struct{} // has a value for each comparison that is under way

	cancel   context.CancelCauseFunc // nil unless attempts may run; guarded by table.mu, as the next one
	stopped  error                   // why it is to end
	variants []int                   // of attempts; only the goroutine that leads adds to it
}

// maxCommand bounds what is kept of a command, in bytes.
const maxCommand = 1 << 10

// The bounds of outputs in a table, in bytes.
const (
	minOutput = 1 << 10
	maxOutput = 64 << 10
	allOutput = 8 << 20
)

// diffsAtOnce is how many attempts of an exploration are compared at a time.
const diffsAtOnce = 2

// newRun returns an exploration with a plan that is complete and valid.
func newRun(e *Explorer, source api.Sandbox, tenant string, line []string, plan api.ExplorePlan) (*run, error) {
	s, err := newScorer(plan.Score)
	if err != nil {
		return nil, err
	}
	r := &run{
		table: table{explorer: e, order: map[int]int{}, changed: make(chan struct{}), base: time.Now().UnixMicro()}, plan: plan, scorer: s, output: max(minOutput, min(maxOutput, allOutput/plan.Width)),
		scored: max(minTail, min(maxTail, allTails/min(plan.Width, cmp.Or(plan.Limits.Parallel, plan.Width)))),
		begun:  make(chan struct{}), over: make(chan struct{}), diffs: make(chan struct{}, diffsAtOnce),
		dropped: map[int]bool{},
	}
	r.rec = record{
		Tenant: tenant, Line: line, Keep: plan.Keep, Merge: plan.Merge, Idle: source.Lifecycle.IdleTimeout().Milliseconds(),
		Exploration: api.Exploration{
			ID: api.NewID(api.KindExploration), Sandbox: source.ID, Strategy: plan.Search.Strategy, Goal: plan.Score.Goal, Then: plan.Then,
			Command: short(commandOf(&plan)), Winners: []int{}, Children: []api.Attempt{}, Rounds: []api.ExploreRound{},
			CreatedAt: time.Now().UTC(), Seq: r.base,
		},
	}
	return r, r.become(api.ExplorationRunning)
}

func commandOf(p *api.ExplorePlan) string {
	if p.Run.Code != "" {
		return p.Run.Code
	}
	if len(p.Run.Argv) == 0 && p.Run.Shell == "" {
		return ""
	}
	return api.CommandText(p.Run.Argv, p.Run.Shell)
}

func short(text string) string {
	if len(text) <= maxCommand {
		return text
	}
	return strings.ToValidUTF8(text[:maxCommand], "\uFFFD") + "…"
}

func (r *run) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// lead calls do, which brings the exploration to its end, and tells those who wait. A defect ends
// the exploration and not the daemon.
func (r *run) lead(ctx context.Context, do func(context.Context)) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r.mu.Lock()
	r.cancel = cancel
	if r.stopped != nil { // before it began
		cancel(r.stopped)
	}
	r.mu.Unlock()
	defer func() {
		if v := recover(); v != nil {
			_ = background.Recovered(r.explorer.cfg.Log, "explore", v) // the next daemon ends what is left
		}
	}()
	do(ctx)
}

// stop has the attempts stopped, for a reason, if they still run.
func (r *run) stop(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped == nil && r.rec.Exploration.State == api.ExplorationRunning {
		if r.stopped = reason; r.cancel != nil {
			r.cancel(reason)
		}
	}
}

// asCaller returns a context of the daemon's own in which the exploration has the rights of its
// tenant on what descends from the explored sandbox.
func (r *run) asCaller(ctx context.Context) context.Context {
	return access.With(ctx, access.Caller{Tenant: r.rec.Tenant, Scope: api.ScopeAdmin, Tree: r.rec.Exploration.Sandbox})
}

// runOf returns what attempt i runs, and its variant.
func (r *run) runOf(variant int) (api.ExploreRun, *api.ExploreVariant) {
	if len(r.plan.Variants) == 0 {
		return r.plan.Run.Varied(&api.ExploreVariant{}), &api.ExploreVariant{}
	}
	v := &r.plan.Variants[variant%len(r.plan.Variants)]
	return r.plan.Run.Varied(v), v
}

// losers returns the sandboxes of the attempts except those in keep. A fork that an attempt made
// of itself goes with the nearest attempt that it descends from. An attempt whose label somebody
// removed is one all the same.
func (r *run) losers(keep map[string]bool) []string {
	attempts := map[string]bool{}
	for _, a := range r.view().Children {
		attempts[a.Sandbox] = true
	}
	var list []string
	for id := range attempts {
		if !keep[id] {
			list = append(list, id)
		}
	}
	for id, line := range r.explorer.cfg.Sandboxes.Labelled(r.rec.Tenant, Label, r.id()) {
		if attempts[id] || id == r.rec.Exploration.Sandbox {
			continue
		}
		of := ""
		for _, ancestor := range line {
			if attempts[ancestor] {
				of = ancestor
			}
		}
		if !keep[of] {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

// metadata returns the labels of attempts.
func (r *run) metadata() map[string]string {
	m := maps.Clone(r.plan.Metadata)
	if m == nil {
		m = map[string]string{}
	}
	m[Label] = r.id()
	return m
}
