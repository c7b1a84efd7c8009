package node

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
// its command: one that a daemon left which was killed ends by itself.
const bisectGrace = time.Hour

// Bisect finds the first step of a sandbox at which a command fails, provided that it
// fails at all later ones: it runs it in sandboxes that are restored from some of
// them, and destroyed then.
func (m *Node) Bisect(ctx context.Context, ref string, req api.BisectRequest) (*api.BisectResult, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	if _, err := api.CommandArgv(req.Argv, req.Shell); err != nil {
		return nil, err
	}
	if err := access.From(ctx).MayMake("sandboxes"); err != nil {
		return nil, err
	}
	bi := &bisection{m: m, b: b, req: req, outcomes: map[int]*outcome{}, res: &api.BisectResult{Tried: []api.Try{}}}
	for _, s := range m.steps(b) {
		if s.State == api.SnapshotReady || s.State == api.SnapshotUploading {
			bi.steps = append(bi.steps, s)
		}
		if s.Current {
			break
		}
	}
	if len(bi.steps) == 0 {
		return nil, api.Errorf(api.CodeWrongState, "sandbox %s has no steps that were kept: create it with auto_checkpoint", b.id)
	}
	if err := bi.search(ctx); err != nil {
		return nil, fmt.Errorf("bisect: %w", err)
	}
	return bi.res, nil
}

// bisection is one that is under way.
type bisection struct {
	m        *Node
	b        *instance
	req      api.BisectRequest
	steps    []api.Step
	outcomes map[int]*outcome // by index of steps
	res      *api.BisectResult
}

type outcome struct {
	api.ExecResult
	stdout, stderr tailBuffer
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
	bi.res.ExitCode, bi.res.Stdout, bi.res.Stderr = o.ExitCode, o.stdout.String(), o.stderr.String()
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

func (bi *bisection) try(ctx context.Context, s *api.Step) (_ *outcome, err error) {
	snap := bi.m.snapshots.Get(s.Snapshot)
	if snap == nil {
		return nil, api.Errorf(api.CodeConflict, "its state was dropped meanwhile")
	}
	ttl := bi.req.TimeoutMS + bisectGrace.Milliseconds()
	if bi.req.TimeoutMS == 0 {
		ttl = 24 * bisectGrace.Milliseconds()
	}
	none := int64(0)
	r, err := bi.m.restore(ctx, snap, api.RestoreRequest{Count: 1, Lifecycle: &api.LifecycleRequest{TTLMS: &ttl, IdleTimeoutMS: &none}}, time.Now(), true)
	if err != nil {
		return nil, err
	}
	if e := r.Children[0].Error; e != nil {
		return nil, e
	}
	child := r.Children[0].Sandbox.ID
	defer func() {
		bi.m.mu.Lock()
		x := bi.m.instances[child]
		bi.m.mu.Unlock()
		if x == nil {
			return
		}
		if derr := bi.m.destroy(x, "its bisection is over"); derr != nil && api.CodeOf(derr) != api.CodeNotFound && err == nil {
			err = derr
		}
	}()
	o := &outcome{stdout: tailBuffer{max: bisectOutput}, stderr: tailBuffer{max: bisectOutput}}
	req := api.ExecRequest{Argv: slices.Clone(bi.req.Argv), Shell: bi.req.Shell, Env: bi.req.Env, Cwd: bi.req.Cwd, User: bi.req.User, TimeoutMS: bi.req.TimeoutMS}
	res, err := bi.m.Exec(ctx, child, req, api.ExecIO{Stdout: &o.stdout, Stderr: &o.stderr})
	if err != nil {
		return nil, err
	}
	o.ExecResult = *res
	return o, nil
}
