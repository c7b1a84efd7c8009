package cli_test

import (
	"context"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/server/rest/apitest"
)

// slowExploration is one whose second round, a child of attempt 1, runs until the exploration is
// canceled, or may end. entered is closed when it runs.
func slowExploration(entered chan struct{}) (svc *apitest.Service, end, canceled chan struct{}) {
	end, canceled = make(chan struct{}), make(chan struct{})
	score, first := 0.5, 1
	x := &api.Exploration{
		ID: "xpl_aaaaaaaaaaaaaaaa", Sandbox: baseID, State: api.ExplorationRunning, Command: "try.sh", Winners: []int{}, Rounds: []api.ExploreRound{},
		Children: []api.Attempt{{Index: 0, Round: 1, State: api.AttemptWaiting}, {Index: 1, Round: 1, State: api.AttemptWaiting, Env: map[string]string{"LR": "0.1"}}},
	}
	svc = fakeService()
	svc.ExploreFunc = func(context.Context, string, api.ExplorePlan) (*api.Exploration, error) { return x, nil }
	svc.ExplorationEventsFunc = func(ctx context.Context, _ string, _ int64, _ bool, began func(), each func(api.ExplorationEvent) error) error {
		began()
		for i, a := range []api.Attempt{
			{Index: 0, Round: 1, State: api.AttemptFailed},
			{Index: 1, Round: 1, State: api.AttemptSucceeded, Score: &score, Env: x.Children[1].Env},
			{Index: 2, Round: 2, Parent: &first, State: api.AttemptRunning},
		} {
			if err := each(api.ExplorationEvent{Seq: int64(i + 1), State: api.ExplorationRunning, Attempt: &a}); err != nil {
				return err
			}
		}
		close(entered)
		select {
		case <-end:
			a := api.Attempt{Index: 2, Round: 2, Parent: &first, State: api.AttemptSucceeded, Won: true, Score: &score}
			if err := each(api.ExplorationEvent{Seq: 4, State: api.ExplorationFinishing, Attempt: &a}); err != nil {
				return err
			}
			return each(api.ExplorationEvent{Seq: 5, State: api.ExplorationDone})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	svc.GetExplorationFunc = func(context.Context, string, bool) (*api.Exploration, error) {
		done := *x
		done.State, done.Ended, done.Winners, done.Winner = api.ExplorationDone, "the last round has ended", []int{1}, kidID
		return &done, nil
	}
	svc.CancelExplorationFunc = func(context.Context, string) (*api.Exploration, error) {
		close(canceled)
		return x, nil
	}
	return svc, end, canceled
}

// The attempts are drawn as a tree, which ends with the exploration.
func TestExploreOnATerminal(t *testing.T) {
	entered := make(chan struct{})
	svc, end, _ := slowExploration(entered)
	x := startOnTerminal(t, apitest.Serve(t, svc), terminalOptions{cols: 100, rows: 20}, "explore", "base", "--", "try.sh")
	x.sees(`^sbx_a+ +running +try.sh$`)
	x.sees(`^├── 0 +failed$`)
	x.sees(`^└── 1 LR=0\.1 +succeeded +0\.5$`)
	x.sees(`^    └── 2 +running$`)
	close(end)
	lines := x.ends(0)
	if want := "xpl_aaaaaaaaaaaaaaaa  done: the last round has ended; the winner is attempt 1"; lines[len(lines)-1] != want || len(lines) != 4 {
		t.Errorf("it shows\n%s", strings.Join(lines, "\n"))
	}
}

// An interrupt cancels the exploration.
func TestInterruptOfAnExploration(t *testing.T) {
	entered := make(chan struct{})
	svc, _, canceled := slowExploration(entered)
	code, said := interrupted(t, svc, entered, strings.NewReader(""), "explore", "base", "--", "try.sh")
	if code != 130 {
		t.Errorf("exit code %d: %s", code, said)
	}
	select {
	case <-canceled:
	default:
		t.Error("it goes on")
	}
}
