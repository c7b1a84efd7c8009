package timeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// bisectOutput is how much of a command's output a bisection keeps, in bytes.
const bisectOutput = 64 << 10

// bisectGrace is how long a sandbox of a bisection lives at most, besides the time of
// its command. It ends the sandboxes that a killed daemon left.
const bisectGrace = time.Hour

// Bisect finds the first step of a sandbox at which a command fails, provided that the
// command fails at all later steps. It runs the command in sandboxes that are restored
// from some of the steps and destroyed afterwards.
func (t *Timelines) Bisect(ctx context.Context, ref string, req api.BisectRequest) (*api.BisectResult, error) {
	b, err := t.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := req.Valid(); err != nil {
		return nil, err
	}
	if err := access.From(ctx).MayMake("sandboxes"); err != nil {
		return nil, err
	}
	t.catchUp(ctx, b)
	bi := &bisection{sandboxes: t.cfg.Sandboxes, req: req, outcomes: map[int]*api.ExecResult{}, res: &api.BisectResult{Tried: []api.Try{}}}
	for _, s := range t.steps(b) {
		if s.State == api.SnapshotReady || s.State == api.SnapshotUploading {
			bi.steps = append(bi.steps, s)
		}
		if s.Current {
			break
		}
	}
	if len(bi.steps) == 0 {
		return nil, api.Errorf(api.CodeWrongState, "sandbox %s has no steps that were kept: create it with auto_checkpoint", b.ID())
	}
	if err := bi.search(ctx); err != nil {
		return nil, fmt.Errorf("bisect: %w", err)
	}
	return bi.res, nil
}

// bisection is one that is under way.
type bisection struct {
	sandboxes Sandboxes
	req       api.BisectRequest
	steps     []api.Step
	outcomes  map[int]*api.ExecResult // by index of steps
	res       *api.BisectResult
}

// search finds the first step at which the command fails.
func (bi *bisection) search(ctx context.Context) error {
	last := len(bi.steps) - 1
	found := last
	fails, err := bi.fails(ctx, last)
	if err != nil {
		return err
	}
	if fails {
		low, high := 0, last // the first failure is in [low, high]
		for low < high {
			mid := (low + high) / 2
			if fails, err = bi.fails(ctx, mid); err != nil {
				return err
			}
			if fails {
				high = mid
			} else {
				low = mid + 1
			}
		}
		found = low
		first := bi.steps[found]
		bi.res.First = &first
	}
	o := bi.outcomes[found]
	bi.res.ExitCode, bi.res.Stdout, bi.res.Stderr = o.ExitCode, o.Stdout, o.Stderr
	return nil
}

// fails runs the command at a step.
func (bi *bisection) fails(ctx context.Context, i int) (bool, error) {
	if o := bi.outcomes[i]; o != nil {
		return !o.OK, nil
	}
	o, err := bi.try(ctx, &bi.steps[i])
	if err != nil {
		return false, fmt.Errorf("step %d: %w", bi.steps[i].Step, err)
	}
	bi.outcomes[i] = o
	bi.res.Tried = append(bi.res.Tried, api.Try{Step: bi.steps[i].Step, ExitCode: o.ExitCode, TimedOut: o.TimedOut})
	return !o.OK, nil
}

// try runs the command in a sandbox that is restored from a step.
func (bi *bisection) try(ctx context.Context, s *api.Step) (_ *api.ExecResult, err error) {
	if _, ok := bi.sandboxes.Snapshot(s.Snapshot); !ok {
		return nil, api.Errorf(api.CodeConflict, "its state was dropped meanwhile")
	}
	ttl := bi.req.TimeoutMS + bisectGrace.Milliseconds()
	if bi.req.TimeoutMS == 0 {
		ttl = 24 * bisectGrace.Milliseconds()
	}
	none := int64(0)
	r, err := bi.sandboxes.RestoreStep(ctx, s.Snapshot, api.RestoreRequest{Count: 1, Lifecycle: &api.LifecycleRequest{TTLMS: &ttl, IdleTimeoutMS: &none}})
	if err != nil {
		return nil, err
	}
	if e := r.Children[0].Error; e != nil {
		return nil, e
	}
	child := r.Children[0].Sandbox.ID
	defer func() {
		if derr := bi.sandboxes.Destroy(child, "its bisection is over"); derr != nil && api.CodeOf(derr) != api.CodeNotFound && err == nil {
			err = derr
		}
	}()
	req := api.ExecRequest{Argv: slices.Clone(bi.req.Argv), Shell: bi.req.Shell, Env: bi.req.Env, Cwd: bi.req.Cwd, User: bi.req.User, TimeoutMS: bi.req.TimeoutMS}
	return bi.sandboxes.Run(ctx, child, req, bisectOutput)
}
