package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/service/audit"
)

// errEnough is the cause of the end of a round that needs no more of its attempts.
type errEnough struct{ why string }

// Error implements error.
func (e errEnough) Error() string { return e.why }

// explore leads the exploration to its end.
func (r *run) explore(ctx context.Context) {
	defer r.refuse(nil) // whatever happened, nobody waits for the first attempts any more
	defer close(r.over)
	searching := ctx
	if ms := r.plan.Limits.TimeoutMS; ms > 0 {
		var cancel context.CancelFunc
		searching, cancel = context.WithTimeoutCause(ctx, time.Duration(ms)*time.Millisecond, errTimeLimit)
		defer cancel()
	}
	why, err := r.searchAll(searching)
	if errors.Is(context.Cause(searching), errTimeLimit) && ctx.Err() == nil {
		why, err = errTimeLimit.Detail, nil // the attempts that have ended decide
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if len(r.view().Children) == 0 && err != nil && !isEnd(err) {
		r.destroyAll(nil)
		r.explorer.forget(ctx, r)
		r.refuse(err)
		return
	}
	r.finish(ctx, why, err)
}

// isEnd reports whether err is that somebody ended the exploration.
func isEnd(err error) bool { return errors.Is(err, errCanceled) || errors.Is(err, errDaemon) }

// refuse tells those who wait for the first attempts that there are none, or with nil that there
// are.
func (r *run) refuse(err error) {
	select {
	case <-r.begun:
	default:
		r.refused = err
		close(r.begun)
	}
}

// searchAll has rounds run, and returns why none follows. A defect is an error like others.
func (r *run) searchAll(ctx context.Context) (why string, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = background.Recovered(r.explorer.cfg.Log, "explore", v)
		}
	}()
	var survivors []int
	for number := 1; ; number++ {
		members, err := r.populate(ctx, number, survivors)
		if err != nil {
			return "", err
		}
		if len(members) == 0 {
			return "the limit of attempts is reached", nil
		}
		r.refuse(nil)
		ended := r.runRound(ctx, number, members)
		r.keep(ctx)
		if ended != "" || ctx.Err() != nil {
			return ended, context.Cause(ctx)
		}
		d := decide(&r.plan.Search, &r.plan.Limits, number, len(members), r.ranked(members))
		if d.over != "" {
			r.endRound(number, nil)
			return d.over, nil
		}
		survivors = d.survivors
		r.endRound(number, survivors)
		r.drop(members, survivors)
	}
}

// ranked returns those of some attempts that have succeeded, the best one first.
func (r *run) ranked(of []int) []candidate {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []candidate
	for _, i := range of {
		a := &r.rec.Exploration.Children[i]
		if a.State != api.AttemptSucceeded || a.Score == nil {
			continue
		}
		c := candidate{index: i, score: *a.Score}
		if r.plan.Search.Strategy == api.SearchFirst {
			c.order = r.order[i]
		}
		list = append(list, c)
	}
	return r.scorer.rank(list)
}

// populate returns the attempts of a round: new ones, or with halving the survivors.
func (r *run) populate(ctx context.Context, number int, survivors []int) ([]int, error) {
	round := api.ExploreRound{Round: number, Budget: budget(&r.plan.Search, number), Survivors: []int{}}
	began := time.Now()
	members := survivors
	if number > 1 && r.plan.Search.Strategy == api.SearchHalving {
		for _, i := range survivors {
			r.change(i, api.AttemptWaiting, func(a *api.Attempt) { a.Round = number })
		}
	} else {
		var asked int
		var err error
		if members, asked, err = r.forkAll(ctx, number, survivors); err != nil {
			return nil, err
		}
		if asked > len(members) {
			round.Asked = asked
		}
		round.ForkMS = float64(time.Since(began)) / float64(time.Millisecond)
	}
	if len(members) == 0 {
		return nil, nil
	}
	members = slices.Sorted(slices.Values(members))
	round.Attempts = members
	r.mu.Lock()
	r.rec.Exploration.Rounds = append(r.rec.Exploration.Rounds, round)
	r.event(api.ExplorationEvent{Kind: api.RoundChanged, Round: &round})
	r.mu.Unlock()
	r.keep(ctx)
	return members, nil
}

// forkAll forks the explored sandbox, or each of the survivors of the round before, and returns the
// new attempts and how many there should have been.
func (r *run) forkAll(ctx context.Context, number int, survivors []int) (members []int, asked int, err error) {
	type parent struct {
		index *int
		ref   string
		count int
	}
	parents := []parent{{nil, r.rec.Exploration.Sandbox, r.plan.Width}}
	if number > 1 {
		parents = parents[:0]
		for _, i := range survivors {
			parents = append(parents, parent{&i, r.attempt(i).Sandbox, r.plan.Search.Branch})
		}
	}
	for _, p := range parents {
		left := r.plan.Limits.Attempts - len(r.view().Children)
		if p.count = min(p.count, left); p.count <= 0 {
			break
		}
		asked += p.count
		least := 0
		if r.plan.Limits.MinWidth > 0 {
			least = max(1, r.plan.Limits.MinWidth-len(members)-(len(parents)-1))
		}
		made, err := r.fork(ctx, number, p.ref, p.count, min(least, p.count))
		if err != nil {
			if r.plan.Limits.MinWidth > 0 && len(members) >= r.plan.Limits.MinWidth && ctx.Err() == nil {
				break // there are as many as there have to be
			}
			return nil, 0, fmt.Errorf("fork round %d: %w", number, err)
		}
		members = append(members, r.addAttempts(number, p.index, made)...)
	}
	if least := r.plan.Limits.MinWidth; least > 0 && len(members) < min(least, asked) {
		return nil, 0, api.Errorf(api.CodeLimit, "round %d has %d attempts, fewer than limits.min_width, %d", number, len(members), least)
	}
	return members, asked, nil
}

// fork makes count children, or as few as least if more are refused and least is not 0.
func (r *run) fork(ctx context.Context, number int, ref string, count, least int) ([]string, error) {
	none := int64(0)
	for {
		req := api.ForkRequest{
			Count: count, Metadata: r.metadata(), SecretEnv: r.plan.SecretEnv, Network: r.plan.Network, Hold: r.plan.Hold, Record: r.plan.Record,
		}
		if r.rec.Idle > 0 {
			req.Lifecycle = &api.LifecycleRequest{IdleTimeoutMS: &none}
		}
		res, err := r.audited(ctx, number > 1, "explore-fork", func(ctx context.Context) (*api.ForkResult, error) {
			return r.explorer.cfg.Sandboxes.Fork(ctx, ref, req)
		})
		if err != nil {
			if count = shrunk(count, least, err); count == 0 || ctx.Err() != nil {
				return nil, err
			}
			continue
		}
		var made []string
		var failed error
		for _, c := range res.Children {
			if c.Error != nil {
				failed = c.Error
				continue
			}
			made = append(made, c.Sandbox.ID)
		}
		if failed != nil && (least == 0 || len(made) < least) {
			r.destroy(made)
			return nil, failed
		}
		return made, nil
	}
}

// audited calls do with a note of the audit of its own, unless that of the request that began the
// exploration is still being made.
func (r *run) audited(ctx context.Context, own bool, action string, do func(context.Context) (*api.ForkResult, error)) (*api.ForkResult, error) {
	if !own {
		return do(ctx)
	}
	ctx, note := audit.Begin(ctx, action, "")
	note.Object(r.id())
	res, err := do(ctx)
	if err != nil {
		note.Failed(api.CodeOf(err))
	}
	r.explorer.cfg.Audit(note.Entry())
	return res, err
}

// addAttempts adds attempts with sandboxes that were made, and returns their indexes.
func (r *run) addAttempts(number int, parent *int, made []string) (added []int) {
	for place, id := range made {
		r.mu.Lock()
		i := len(r.rec.Exploration.Children)
		variant := i
		if number > 1 {
			variant = place
		}
		_, v := r.runOf(variant)
		a := api.Attempt{
			Index: i, Round: number, Parent: parent, Sandbox: id, Name: v.Name, Args: v.Args, Env: v.Env, State: api.AttemptWaiting,
		}
		r.variants = append(r.variants, variant)
		r.rec.Exploration.Children = append(slices.Clip(r.rec.Exploration.Children), a)
		about := a
		r.event(api.ExplorationEvent{Kind: api.AttemptChanged, Attempt: &about})
		r.mu.Unlock()
		added = append(added, i)
	}
	return added
}

// runRound runs the attempts of a round, and waits for them. It returns why the exploration ends
// with it, or "".
func (r *run) runRound(ctx context.Context, number int, members []int) (ended string) {
	round, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	width := len(members)
	if p := r.plan.Limits.Parallel; p > 0 {
		width = min(width, p)
	}
	watch := r.newWatch(members)
	turns := make(chan struct{}, width)
	var work sync.WaitGroup
	var mu sync.Mutex
	successes := 0
	for _, i := range members {
		own, stop := context.WithCancelCause(round)
		watch.add(i, stop)
		work.Go(func() {
			defer stop(nil)
			select {
			case turns <- struct{}{}:
				defer func() { <-turns }()
			case <-own.Done():
			}
			(&trial{run: r, round: number, index: i, sandbox: r.attempt(i).Sandbox}).try(own)
			a := r.attempt(i)
			if a.State != api.AttemptSucceeded {
				return
			}
			mu.Lock()
			successes++
			n := successes
			mu.Unlock()
			switch t := r.plan.Search.Target; {
			case t != nil && !r.scorer.better(*t, *a.Score):
				cancel(errEnough{"the target is reached"})
			case r.plan.Search.Strategy == api.SearchFirst && n >= r.plan.Search.Successes:
				cancel(errEnough{fmt.Sprintf("%d of %d successes", n, r.plan.Search.Successes)})
			}
		})
	}
	watch.run(round)
	work.Wait()
	watch.end()
	var enough errEnough
	if errors.As(context.Cause(round), &enough) {
		return enough.why
	}
	return ""
}

// drop destroys attempts of a round that nobody needs any more.
func (r *run) drop(members, survivors []int) {
	needed := map[int]bool{}
	for _, i := range survivors {
		needed[i] = true
	}
	if r.plan.Search.Strategy == api.SearchBeam { // an earlier attempt may be the best in the end
		for _, c := range r.ranked(r.everyone()) {
			if len(needed) >= len(survivors)+r.plan.Winners {
				break
			}
			needed[c.index] = true
		}
	}
	// Ancestors of survivors are needed: the state of the winner goes through them to the sandbox.
	for i := range needed {
		for p := r.attempt(i).Parent; p != nil; p = r.attempt(*p).Parent {
			needed[*p] = true
		}
	}
	var ids []string
	for i := range r.everyone() {
		a := r.attempt(i)
		if needed[i] || r.dropped[i] {
			continue
		}
		r.dropped[i] = true
		if slices.Contains(members, i) && a.State == api.AttemptSucceeded {
			r.edit(func(x *api.Exploration) {
				x.Children[i].StoppedEarly = true
				about := brief(&x.Children[i])
				r.event(api.ExplorationEvent{Kind: api.AttemptChanged, Attempt: &about})
			})
		}
		ids = append(ids, a.Sandbox)
	}
	if r.rec.Keep != api.KeepAll {
		r.destroy(ids)
	}
}
