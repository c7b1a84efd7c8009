package cli_test

import (
	"context"
	"encoding/json"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// fakeExplorations keeps explorations, which end at once. Of each attempt, the score is its index,
// and the first one fails. Their command is the JSON of their plan.
func fakeExplorations() apitest.ExploreFuncs {
	var mu sync.Mutex
	var all []*api.Exploration
	get := func(_ context.Context, id string, _ bool) (*api.Exploration, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, x := range all {
			if x.ID == id {
				return x, nil
			}
		}
		return nil, api.NotFound("exploration", id)
	}
	return apitest.ExploreFuncs{
		ExploreFunc: func(ctx context.Context, ref string, plan api.ExplorePlan) (*api.Exploration, error) {
			sb, err := find(ctx, ref)
			if err != nil {
				return nil, err
			}
			if plan.Run.Shell == "too many" {
				return nil, &api.Error{Code: api.CodeLimit, Detail: "the quota of sandboxes is reached"}
			}
			x := fakeExploration(sb.ID, plan.Completed())
			text, err := json.Marshal(plan)
			x.Command = string(text)
			mu.Lock()
			defer mu.Unlock()
			x.ID = "xpl_aaaaaaaaaaaaaaa" + string(rune('a'+len(all)))
			all = append(all, x)
			return x, err
		},
		ExplorationsFunc: func(_ context.Context, f api.ExplorationFilter) ([]api.Exploration, error) {
			mu.Lock()
			defer mu.Unlock()
			list := []api.Exploration{}
			for _, x := range all {
				if f.State == "" || f.State == x.State {
					list = append(list, *x)
				}
			}
			return list, nil
		},
		GetExplorationFunc: get,
		ExplorationEventsFunc: func(ctx context.Context, id string, since int64, _ bool, began func(), each func(api.ExplorationEvent) error) error {
			x, err := get(ctx, id, true)
			if err != nil {
				return err
			}
			began()
			events := []api.ExplorationEvent{{State: api.ExplorationRunning, Round: &api.ExploreRound{Round: 1, Attempts: []int{0, 1, 2}, Asked: 4}}}
			for i := range x.Children {
				events = append(events, api.ExplorationEvent{State: api.ExplorationRunning, Attempt: &x.Children[i]})
			}
			events = append(events, api.ExplorationEvent{State: api.ExplorationRunning, Round: &api.ExploreRound{Round: 1, Survivors: []int{2, 1}}},
				api.ExplorationEvent{State: x.State})
			for i, ev := range events {
				if ev.Seq = int64(i + 1); ev.Seq > since {
					if err := each(ev); err != nil {
						return err
					}
				}
			}
			return nil
		},
		CancelExplorationFunc: func(ctx context.Context, id string) (*api.Exploration, error) { return get(ctx, id, true) },
		RemoveExplorationFunc: func(ctx context.Context, id string) error {
			x, err := get(ctx, id, true)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range all {
				if all[i] == x {
					all = append(all[:i:i], all[i+1:]...)
					break
				}
			}
			return nil
		},
	}
}

func fakeExploration(sandbox string, plan api.ExplorePlan) *api.Exploration {
	one, zero := 1, 0
	x := &api.Exploration{
		Sandbox: sandbox, State: api.ExplorationDone, Ended: "all attempts have ended", Strategy: plan.Search.Strategy, Goal: plan.Score.Goal, Then: plan.Then,
		Winners: []int{}, CreatedAt: created, Rounds: []api.ExploreRound{}, Children: []api.Attempt{},
	}
	for i := range plan.Width {
		a := api.Attempt{Index: i, Round: 1, Sandbox: kidID, State: api.AttemptSucceeded, ExitCode: &zero, DurationMS: 12}
		score := float64(i)
		a.Score = &score
		if i == 0 {
			a.State, a.ExitCode, a.Score, a.Stderr = api.AttemptFailed, &one, nil, "first\nno such \x1b[1mmodule\n"
		}
		if len(plan.Variants) > 0 {
			v := plan.Variants[i%len(plan.Variants)]
			a.Name, a.Env, a.Args = v.Name, v.Env, v.Args
		}
		if plan.Diff != nil && i > 0 {
			a.Diff = []api.Change{{Path: "/tmp/out", Kind: api.Added}}
		}
		x.Children = append(x.Children, a)
	}
	if plan.Width > 1 {
		last := &x.Children[plan.Width-1]
		last.Won, last.Kept = true, plan.Then == api.ThenNone
		x.Winners, x.Winner, x.Promoted = []int{plan.Width - 1}, kidID, plan.Then == api.ThenPromote
	}
	return x
}
