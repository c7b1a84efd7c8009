package explore

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/audit"
)

// finish ends an exploration whose attempts do not run any more. failure is nil unless it has no
// result.
func (r *run) finish(ctx context.Context, why string, failure error) {
	r.mu.Lock()
	if r.stopped == nil { // a cancellation that comes later changes nothing
		r.stopped = errors.New("it is finishing")
	}
	r.mu.Unlock()
	winners := indexes(r.ranked(r.candidates()), r.plan.Winners)
	r.edit(func(x *api.Exploration) {
		x.Ended = why
		if failure != nil {
			e := api.AsError(failure)
			x.Error, x.Ended = e, e.Detail
			r.rec.Failure = e
			return
		}
		for _, i := range winners {
			x.Children[i].Won, x.Children[i].StoppedEarly = true, false
		}
		if x.Winners = winners; len(winners) > 0 {
			x.Winner = x.Children[winners[0]].Sandbox
		}
	})
	if err := r.become(api.ExplorationFinishing); err != nil {
		r.explorer.cfg.Log.Error("finish an exploration", "id", r.id(), "error", err)
		return
	}
	r.keep(ctx)
	r.conclude(ctx, failure)
}

// candidates returns the attempts that may win.
func (r *run) candidates() []int {
	x := r.view()
	if x.Strategy == api.SearchHalving && len(x.Rounds) > 0 {
		// Scores of different budgets say nothing of each other.
		return x.Rounds[len(x.Rounds)-1].Attempts
	}
	return r.everyone()
}

// conclude does what is to become of the winners, destroys the losers, and ends the exploration.
// It may be repeated: what was done before is not done again.
func (r *run) conclude(ctx context.Context, failure error) {
	failed := failure
	if failure == nil && len(r.view().Winners) > 0 {
		// The result is there: neither a client nor a cancellation is to tear it.
		err := r.bring(context.WithoutCancel(ctx))
		if err != nil {
			failed = err
			r.edit(func(x *api.Exploration) { x.Error = api.AsError(err) })
		}
	}
	r.settle(context.WithoutCancel(ctx), failure == nil, failed != nil || conflicts(r.view()) > 0)
	to := api.ExplorationDone
	switch {
	case errors.Is(failure, errCanceled):
		to = api.ExplorationCanceled
	case errors.Is(failure, errDaemon):
		to = api.ExplorationInterrupted
	case failed != nil:
		to = api.ExplorationFailed
	}
	if err := r.become(to); err != nil {
		r.explorer.cfg.Log.Error("end an exploration", "id", r.id(), "error", err)
	}
	r.keep(ctx)
	_, note := audit.Begin(ctx, "explore-end", "")
	note.Object(r.id())
	if failed != nil {
		note.Failed(api.CodeOf(failed))
	}
	r.explorer.cfg.Audit(note.Entry())
}

// bring promotes or merges the winners.
func (r *run) bring(ctx context.Context) error {
	x := r.view()
	if x.Promoted || x.Merge != nil { // by an earlier daemon, which destroyed losers
		return nil
	}
	switch x.Then {
	case api.ThenPromote:
		if err := r.promote(ctx, x.Winners[0]); err != nil {
			winner := r.attempt(r.holder(ctx, x.Winners[0])).Sandbox
			r.edit(func(x *api.Exploration) { x.Winner = winner })
			return fmt.Errorf("promote the winner, %s, which is kept: %w", winner, err)
		}
		r.edit(func(x *api.Exploration) { x.Promoted = true })
	case api.ThenMerge:
		req := api.MergeRequest{}
		for _, i := range x.Winners {
			req.From = append(req.From, x.Children[i].Sandbox)
		}
		if m := r.rec.Merge; m != nil {
			req.Paths, req.Exclude, req.Strategy = m.Paths, m.Exclude, m.Strategy
		}
		var res *api.MergeResult
		_, err := r.audited(ctx, true, "explore-merge", func(ctx context.Context) (_ *api.ForkResult, err error) {
			res, err = r.explorer.cfg.Sandboxes.Merge(ctx, x.Sandbox, req)
			return nil, err
		})
		if err != nil {
			return fmt.Errorf("merge the winners, which are kept: %w", err)
		}
		r.edit(func(x *api.Exploration) {
			x.Merge = res
			if n := conflicts(x); n > 0 {
				text := fmt.Sprintf("the merge left %d conflicts, and the winners are kept", n)
				if n == 1 {
					text = "the merge left 1 conflict, and the winners are kept"
				}
				if x.Ended != "" {
					text = x.Ended + "; " + text
				}
				x.Ended = text
			}
		})
	}
	r.keep(ctx) // before the winners are destroyed, with which it cannot be repeated
	return nil
}

// conflicts returns how many conflicts the merge of an exploration left.
func conflicts(x *api.Exploration) int {
	if x.Merge == nil {
		return 0
	}
	return x.Merge.Unresolved()
}

// holder returns the attempt whose sandbox has the state of attempt i: itself, or the ancestor that
// it was promoted to.
func (r *run) holder(ctx context.Context, i int) int {
	for at := &i; at != nil; at = r.attempt(*at).Parent {
		if _, _, _, err := r.explorer.cfg.Sandboxes.Source(ctx, r.attempt(*at).Sandbox); err == nil {
			return *at
		}
	}
	return i
}

// promote gives the state of attempt i to the explored sandbox, through the attempts that it
// descends from. Those that are gone have handed on their state before.
func (r *run) promote(ctx context.Context, i int) error {
	for at := &i; at != nil; at = r.attempt(*at).Parent {
		id := r.attempt(*at).Sandbox
		if _, _, _, err := r.explorer.cfg.Sandboxes.Source(ctx, id); api.CodeOf(err) == api.CodeNotFound {
			if _, _, _, err := r.explorer.cfg.Sandboxes.Source(ctx, r.rec.Exploration.Sandbox); err != nil {
				return err
			}
			if *at == i && !r.restarted {
				return api.Errorf(api.CodeConflict, "sandbox %s is gone", id)
			}
			continue
		}
		_, err := r.audited(ctx, true, "explore-promote", func(ctx context.Context) (*api.ForkResult, error) {
			_, err := r.explorer.cfg.Sandboxes.Promote(ctx, id)
			return nil, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// settle destroys the attempts that are not kept, and marks those that are. An exploration without a
// result keeps none. Winners are kept if they, or parts of them, could not be brought to the explored
// sandbox.
func (r *run) settle(ctx context.Context, result, rescue bool) {
	x := r.view()
	keep := map[string]bool{}
	for i := range x.Children {
		if a := &x.Children[i]; !result {
			break
		} else if r.rec.Keep == api.KeepAll || a.Won && r.rec.Keep == api.KeepWinners {
			keep[a.Sandbox] = true
		}
	}
	if result && rescue {
		for _, i := range x.Winners {
			keep[x.Children[r.holder(ctx, i)].Sandbox] = true
		}
	}
	r.destroyAll(keep)
	for i := range x.Children {
		id := x.Children[i].Sandbox
		if !keep[id] {
			continue
		}
		if _, _, _, err := r.explorer.cfg.Sandboxes.Source(ctx, id); err != nil {
			continue // it was promoted, or somebody destroyed it
		}
		if idle := r.rec.Idle; idle > 0 {
			if _, err := r.explorer.cfg.Sandboxes.Update(ctx, id, api.UpdateRequest{Lifecycle: &api.LifecycleRequest{IdleTimeoutMS: &idle}}); err != nil {
				r.explorer.cfg.Log.Warn("give a kept attempt its idle timeout", "id", id, "error", err)
			}
		}
		r.edit(func(x *api.Exploration) { x.Children[i].Kept = true })
	}
}

// destroyAll destroys all sandboxes of the exploration except those in keep and the forks that
// those made of themselves.
func (r *run) destroyAll(keep map[string]bool) { r.destroy(r.losers(keep)) }

// destroyAtOnce is how many sandboxes are destroyed at a time.
const destroyAtOnce = 16

// destroy ends sandboxes. One that is gone already is no failure.
func (r *run) destroy(ids []string) {
	turns := make(chan struct{}, destroyAtOnce)
	var work sync.WaitGroup
	for _, id := range ids {
		turns <- struct{}{}
		work.Go(func() {
			defer func() { <-turns }()
			if err := r.explorer.cfg.Sandboxes.Destroy(id, "its exploration does not need it any more"); err != nil && api.CodeOf(err) != api.CodeNotFound {
				r.explorer.cfg.Log.Warn("destroy an attempt", "id", id, "exploration", r.id(), "error", err)
			}
		})
	}
	work.Wait()
}

// resume ends an exploration that an earlier daemon led.
func (r *run) resume(ctx context.Context) {
	defer close(r.over)
	ctx = r.asCaller(ctx)
	if r.view().State == api.ExplorationFinishing {
		var failure error
		switch f := r.rec.Failure; {
		case f == nil:
		case f.Code == api.CodeCanceled:
			failure = errCanceled
		case f.Code == api.CodeUnavailable:
			failure = errDaemon
		default:
			failure = f
		}
		r.conclude(ctx, failure)
		return
	}
	for _, i := range r.everyone() {
		r.change(i, api.AttemptStopped, func(a *api.Attempt) { a.StoppedEarly = true })
	}
	r.settle(ctx, false, false)
	r.edit(func(x *api.Exploration) {
		x.Error = api.Errorf(api.CodeUnavailable, "the daemon was killed while attempts ran")
		x.Ended = x.Error.Detail
	})
	if err := r.become(api.ExplorationInterrupted); err != nil {
		r.explorer.cfg.Log.Error("end an exploration", "id", r.id(), "error", err)
	}
	r.keep(ctx)
}
