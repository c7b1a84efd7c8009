package fork

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/machine"
	"ramet.dev/ramet/internal/polltest"
	"ramet.dev/ramet/test/harness"
)

// explore explores a sandbox, and returns the exploration when it has ended in a state.
func explore(n *harness.Node, ref string, plan api.ExplorePlan, want api.ExplorationState) *api.Exploration {
	n.T.Helper()
	x, err := n.Machine.Explore(harness.AsOwner, ref, plan)
	if err == nil {
		x, err = n.Machine.GetExploration(harness.AsOwner, x.ID, true)
	}
	if err != nil {
		n.T.Fatal(err)
	}
	if x.State != want {
		n.T.Fatalf("the exploration is %s: %v\n%s", x.State, x.Error, tableOf(x))
	}
	return x
}

// tableOf returns one line for each attempt.
func tableOf(x *api.Exploration) string {
	var b strings.Builder
	for i := range x.Children {
		a := &x.Children[i]
		score, code := "-", "-"
		if a.Score != nil {
			score = fmt.Sprint(*a.Score)
		}
		if a.ExitCode != nil {
			code = fmt.Sprint(*a.ExitCode)
		}
		fmt.Fprintf(&b, "%d round %d %s score %s exit %s won %t early %t kept %t %v\n", a.Index, a.Round, a.State, score, code, a.Won, a.StoppedEarly, a.Kept, a.Error)
	}
	return b.String()
}

// onlyLeft checks which sandboxes there are.
func onlyLeft(n *harness.Node, want ...string) {
	n.T.Helper()
	list, err := n.Machine.List(harness.AsOwner, api.ListFilter{})
	if err != nil {
		n.T.Fatal(err)
	}
	var got []string
	for _, s := range list {
		got = append(got, s.ID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		n.T.Errorf("the sandboxes are %v, not %v", got, want)
	}
}

func saying(words ...string) (list []api.ExploreVariant) {
	for _, w := range words {
		list = append(list, api.ExploreVariant{Args: strings.Fields(w)})
	}
	return list
}

// TestExplorePromotes promotes the attempt with the best score: the sandbox goes on with its
// files and processes.
func TestExplorePromotes(t *testing.T) {
	n := harness.NewNode(t)
	base := n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,files,child,pipe")
	x := explore(n, "base", api.ExplorePlan{
		Run: api.ExploreRun{
			Argv: []string{"/bin/guest", "say"}, Env: map[string]string{"LR": "0.1"},
			Files: []api.ExploreFile{{Path: "/srv/new/input", Text: "text"}},
		},
		Variants: []api.ExploreVariant{
			{Name: "one", Args: []string{"acc=0.25", "env:LR", "env:RAMET_ATTEMPT"}},
			{Name: "two", Args: []string{"acc=0.5", "acc=0.75", "env:LR"}, Env: map[string]string{"LR": "0.2"}, Files: []api.ExploreFile{{Path: "/srv/text", Data: []byte{0xff}, Mode: "600"}}},
			{Name: "fails", Args: []string{"acc=0.99", "exit:3"}},
			{Name: "has none", Args: []string{"nothing"}},
		},
		Score: api.ExploreScore{By: api.ScoreRegexp, Pattern: `acc=([0-9.]+)`},
		Then:  api.ThenPromote, Diff: &api.DiffRequest{},
	}, api.ExplorationDone)
	best := x.Children[1]
	if len(x.Children) != 4 || !x.Promoted || !slices.Equal(x.Winners, []int{1}) || x.Winner != best.Sandbox || *best.Score != 0.75 || best.Stdout != "acc=0.5\nacc=0.75\n0.2\n" {
		t.Errorf("winner %q of\n%s\n%+v", x.Winner, tableOf(x), best)
	}
	if one := x.Children[0]; *one.Score != 0.25 || one.Stdout != "acc=0.25\n0.1\n0\n" || one.Name != "one" {
		t.Errorf("%+v", one)
	}
	if failed := x.Children[2]; failed.State != api.AttemptFailed || *failed.ExitCode != 3 || failed.Score != nil {
		t.Errorf("%+v", failed)
	}
	if none := x.Children[3]; none.State != api.AttemptFailed || none.Error == nil || !strings.Contains(none.Error.Detail, "matches") {
		t.Errorf("%+v", none)
	}
	changed := func(a api.Attempt) (paths []string) {
		for _, c := range a.Diff {
			paths = append(paths, c.Path)
		}
		return paths
	}
	if got := changed(best); !slices.Contains(got, "/srv/new/input") || !slices.Contains(got, "/srv/text") {
		t.Errorf("it differs in %v", got)
	}
	onlyLeft(n, base.ID)
	n.MustHold("base", "zero")
	n.MustRead("base", "/srv/new/input", "text")
	n.MustRead("base", "/srv/text", "\xff")
}

// TestExploreStopsAtTheFirstSuccess has attempts that would take long.
func TestExploreStopsAtTheFirstSuccess(t *testing.T) {
	n := harness.NewNode(t)
	base := n.Create("base")
	began := time.Now()
	x := explore(n, "base", api.ExplorePlan{
		Run:      api.ExploreRun{Argv: []string{"/bin/guest", "say"}},
		Variants: saying("sleep:10m", "exit:1", "yes", "sleep:10m"),
		Search:   api.ExploreSearch{Strategy: api.SearchFirst},
	}, api.ExplorationDone)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
	states := []api.AttemptState{api.AttemptStopped, api.AttemptFailed, api.AttemptSucceeded, api.AttemptStopped}
	for i, want := range states {
		a := &x.Children[i]
		if want == api.AttemptFailed && a.State == api.AttemptStopped {
			want = a.State // it had not ended when the third one had
		}
		if a.State != want || a.StoppedEarly != (want == api.AttemptStopped) {
			t.Errorf("attempt %d is %s", i, a.State)
		}
	}
	if !x.Children[2].Kept {
		t.Error("the winner is not kept")
	}
	onlyLeft(n, base.ID, x.Winner)
}

// TestExploreHalves runs eight attempts with a growing budget: half of them go on each time, in the
// same sandbox.
func TestExploreHalves(t *testing.T) {
	n := harness.NewNode(t)
	base := n.Create("base")
	var variants []api.ExploreVariant
	for i := range 8 {
		variants = append(variants, api.ExploreVariant{Env: map[string]string{"SCORE": fmt.Sprint((i * 3) % 8)}})
	}
	x := explore(n, "base", api.ExplorePlan{
		Run: api.ExploreRun{Argv: []string{"/bin/guest", "trail", "RAMET_ATTEMPT", "RAMET_ROUND", "RAMET_BUDGET"}}, Variants: variants,
		Score:  api.ExploreScore{By: api.ScoreNumber, Goal: api.GoalMin},
		Search: api.ExploreSearch{Strategy: api.SearchHalving, Budget: 10}, Then: api.ThenPromote, Limits: api.ExploreLimits{Parallel: 3},
	}, api.ExplorationDone)
	var widths []int
	for _, r := range x.Rounds {
		widths = append(widths, len(r.Attempts))
	}
	if !slices.Equal(widths, []int{8, 4, 2}) || !slices.Equal(x.Winners, []int{0}) || !slices.Equal(x.Rounds[0].Survivors, []int{0, 3, 6, 1}) {
		t.Errorf("rounds of %v, winners %v, survivors %v\n%s", widths, x.Winners, x.Rounds[0].Survivors, tableOf(x))
	}
	n.MustRead("base", "/srv/trail", "0 1 10 0 2 20 0 3 40 ")
	onlyLeft(n, base.ID)
}

// TestExploreBeam forks the best attempts of each round, and promotes one through the attempts that
// it descends from.
func TestExploreBeam(t *testing.T) {
	n := harness.NewNode(t)
	base := n.Create("base")
	var variants []api.ExploreVariant
	for i := range 3 {
		variants = append(variants, api.ExploreVariant{Env: map[string]string{"SCORE": fmt.Sprint(i)}})
	}
	x := explore(n, "base", api.ExplorePlan{
		Run: api.ExploreRun{Argv: []string{"/bin/guest", "trail", "RAMET_ATTEMPT"}}, Variants: variants,
		Score:  api.ExploreScore{By: api.ScoreNumber},
		Search: api.ExploreSearch{Strategy: api.SearchBeam, Rounds: 3, Survivors: 2, Branch: 3}, Then: api.ThenPromote,
	}, api.ExplorationDone)
	// Round 1 has the attempts 0 to 2, of which 2 and 1 go on; 3 to 5 are of 2 and 6 to 8 of 1.
	if len(x.Children) != 15 || !slices.Equal(x.Rounds[0].Survivors, []int{2, 1}) || *x.Children[3].Parent != 2 || *x.Children[6].Parent != 1 {
		t.Errorf("%+v\n%s", x.Rounds, tableOf(x))
	}
	if !slices.Equal(x.Winners, []int{2}) { // the first of those with the same score
		t.Errorf("winners %v", x.Winners)
	}
	n.MustRead("base", "/srv/trail", "2 ")

	x = explore(n, "base", api.ExplorePlan{
		Run: api.ExploreRun{Argv: []string{"/bin/guest", "trail", "RAMET_ATTEMPT"}, Env: map[string]string{"SCORE": "1"}}, Width: 2,
		Score:  api.ExploreScore{By: api.ScoreRegexp, Pattern: `(\d+) $`, File: "/srv/trail"},
		Search: api.ExploreSearch{Strategy: api.SearchBeam, Rounds: 3, Branch: 2}, Then: api.ThenPromote, Keep: api.KeepAll,
	}, api.ExplorationDone)
	if !slices.Equal(x.Winners, []int{5}) {
		t.Errorf("winners %v\n%s", x.Winners, tableOf(x))
	}
	n.MustRead("base", "/srv/trail", "2 1 3 5 ")
	var left []string
	for i := range x.Children {
		if a := &x.Children[i]; a.Kept {
			left = append(left, a.Sandbox)
		}
	}
	if len(left) != 3 { // 1, 3 and 5 gave away their sandboxes
		t.Errorf("kept are %v", left)
	}
	onlyLeft(n, append(left, base.ID)...)
}

// TestExploreMerges brings the files of two winners to the sandbox.
func TestExploreMerges(t *testing.T) {
	n := harness.NewNode(t)
	base := n.Create("base")
	x := explore(n, "base", api.ExplorePlan{
		Run:      api.ExploreRun{Argv: []string{"/bin/guest", "write"}},
		Variants: saying("/srv/a 1", "/srv/b 2", "/srv"),
		Winners:  2, Then: api.ThenMerge,
	}, api.ExplorationDone)
	if !slices.Equal(x.Winners, []int{0, 1}) || x.Merge == nil || len(x.Merge.Applied) != 2 {
		t.Errorf("winners %v, %+v", x.Winners, x.Merge)
	}
	n.MustRead("base", "/srv/a", "1")
	n.MustRead("base", "/srv/b", "2")
	onlyLeft(n, base.ID)
	// Both write the same file: what cannot be merged is not lost.
	x = explore(n, "base", api.ExplorePlan{
		Run:      api.ExploreRun{Argv: []string{"/bin/guest", "write"}},
		Variants: saying("/srv/c 1", "/srv/c 2"),
		Winners:  2, Then: api.ThenMerge,
	}, api.ExplorationDone)
	if x.Merge.Unresolved() != 1 || !strings.HasSuffix(x.Ended, "; the merge left 1 conflict, and the winners are kept") || !x.Children[0].Kept || !x.Children[1].Kept {
		t.Errorf("%+v\n%s", x, tableOf(x))
	}
	n.MustRead(x.Children[1].Sandbox, "/srv/c", "2")
	onlyLeft(n, base.ID, x.Children[0].Sandbox, x.Children[1].Sandbox)
}

// TestExploreScores takes scores from files, other commands and durations.
func TestExploreScores(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	half := 0.5
	for name, c := range map[string]struct {
		args  string
		score api.ExploreScore
		want  float64
		state api.AttemptState
	}{
		"exit code":             {"x", api.ExploreScore{}, 1, api.AttemptSucceeded},
		"json":                  {`log {"m":{"loss":[3,0.125]}}`, api.ExploreScore{By: api.ScoreJSON, Path: "m.loss[-1]", Goal: api.GoalMin}, 0.125, api.AttemptSucceeded},
		"stderr":                {"err:7 8", api.ExploreScore{By: api.ScoreNumber, Stderr: true}, 7, api.AttemptSucceeded},
		"command":               {"x", api.ExploreScore{By: api.ScoreNumber, Command: &api.ExploreRun{Argv: []string{"/bin/guest", "say"}, Args: []string{"42%"}}}, 0.42, api.AttemptSucceeded},
		"failed":                {"4 exit:1", api.ExploreScore{By: api.ScoreNumber, Failed: true}, 4, api.AttemptSucceeded},
		"too low":               {"0.25", api.ExploreScore{By: api.ScoreNumber, AtLeast: &half}, 0.25, api.AttemptFailed},
		"a command that judges": {"x", api.ExploreScore{Command: &api.ExploreRun{Argv: []string{"/bin/guest", "exit", "0"}}}, 1, api.AttemptSucceeded},
	} {
		x := explore(n, "base", api.ExplorePlan{
			Run: api.ExploreRun{Argv: []string{"/bin/guest", "say"}}, Variants: saying(c.args), Score: c.score, Keep: api.KeepNone,
		}, api.ExplorationDone)
		if a := x.Children[0]; a.State != c.state || a.Score == nil || *a.Score != c.want {
			t.Errorf("%s: %s\n%+v", name, tableOf(x), a)
		}
	}
}

// TestExplorationsAreCanceled cancels, removes, and lets a time limit pass.
func TestExplorationsAreCanceled(t *testing.T) {
	n := harness.NewNode(t)
	base := n.Create("base")
	long := api.ExplorePlan{
		Run: api.ExploreRun{Argv: []string{"/bin/guest", "say"}}, Variants: saying("fast", "sleep:10m", "sleep:10m"), Then: api.ThenPromote,
		Keep: api.KeepAll, // of an exploration that is canceled, nothing is kept
	}
	begin := func() string {
		// The client of this one goes away.
		ctx, cancel := context.WithCancel(harness.AsOwner)
		x, err := n.Machine.Explore(ctx, "base", long)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		return x.ID
	}
	x, err := n.Machine.CancelExploration(harness.AsOwner, begin())
	if err != nil || x.State != api.ExplorationCanceled || x.Winner != "" || x.Error == nil {
		t.Errorf("%+v, %v", x, err)
	}
	onlyLeft(n, base.ID)
	removed := begin()
	if err := n.Machine.RemoveExploration(harness.AsOwner, removed); err != nil {
		t.Error(err)
	}
	if _, err := n.Machine.GetExploration(harness.AsOwner, removed, false); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("a removed exploration: %v", err)
	}
	onlyLeft(n, base.ID)
	long.Limits.TimeoutMS, long.Keep = 10_000, api.KeepNone // the first attempt is to have ended
	x = explore(n, "base", long, api.ExplorationDone)
	if !x.Promoted || !slices.Equal(x.Winners, []int{0}) || !strings.Contains(x.Ended, "time limit") {
		t.Errorf("%+v\n%s", x, tableOf(x))
	}
	onlyLeft(n, base.ID)
	// An exploration ends with its sandbox.
	explored := n.Fork("base", 1)[0].ID
	long.Limits.TimeoutMS = 0
	ofIt, err := n.Machine.Explore(harness.AsOwner, explored, long)
	if err == nil {
		n.Destroy(explored)
		ofIt, err = n.Machine.GetExploration(harness.AsOwner, ofIt.ID, true)
	}
	if err != nil || ofIt.State != api.ExplorationFailed || !strings.Contains(ofIt.Ended, explored+" is gone") {
		t.Errorf("the exploration of a sandbox that is gone: %+v, %v", ofIt, err)
	}
	onlyLeft(n, base.ID)
	// What ended can be told apart from what did not, in its events too.
	var states []api.ExplorationState
	stop := errors.New("enough")
	err = n.Machine.ExplorationEvents(harness.AsOwner, x.ID, 0, true, func() {}, func(e api.ExplorationEvent) error {
		if e.Kind == api.ExplorationChanged {
			states = append(states, e.State)
		}
		if e.Seq <= 0 || e.Restarted {
			return stop
		}
		return nil
	})
	if want := []api.ExplorationState{api.ExplorationRunning, api.ExplorationFinishing, api.ExplorationDone}; err != nil || !slices.Equal(states, want) {
		t.Errorf("the states were %v, %v", states, err)
	}
}

// TestExploreMeetsQuotas asks for more attempts than a tenant may have.
func TestExploreMeetsQuotas(t *testing.T) {
	n := harness.NewNode(t)
	as := harness.AsTenant("a")
	n.GiveImage("a")
	base := n.CreateAs(as, "base")
	if _, err := n.Machine.UpdateTenant(harness.AsOwner, "a", api.TenantUpdate{Quota: &api.Quota{Sandboxes: 4}}); err != nil {
		t.Fatal(err)
	}
	plan := api.ExplorePlan{Width: 8, Run: api.ExploreRun{Argv: []string{"/bin/guest", "true"}}, Keep: api.KeepNone}
	_, err := n.Machine.Explore(as, "base", plan)
	if e := api.AsError(err); err == nil || e.Code != api.CodeLimit || e.Exceeded == nil || e.Exceeded.Limit != "sandboxes" {
		t.Errorf("without min_width: %v", err)
	}
	if list, err := n.Machine.Explorations(as, api.ExplorationFilter{}); err != nil || len(list) != 0 {
		t.Errorf("what was refused is listed: %+v, %v", list, err)
	}
	plan.Limits.MinWidth = 4
	if _, err := n.Machine.Explore(as, "base", plan); api.CodeOf(err) != api.CodeLimit {
		t.Errorf("with a min_width that is too large: %v", err)
	}
	plan.Limits.MinWidth = 2
	x, err := n.Machine.Explore(as, "base", plan)
	if err == nil {
		x, err = n.Machine.GetExploration(as, x.ID, true)
	}
	if err != nil || len(x.Children) != 3 || x.Rounds[0].Asked != 8 || x.State != api.ExplorationDone {
		t.Errorf("%+v, %v", x, err)
	}
	if _, err := n.Machine.GetExploration(harness.AsTenant("b"), x.ID, false); api.CodeOf(err) != api.CodeNotFound {
		t.Errorf("another tenant: %v", err)
	}
	if list, err := n.Machine.List(as, api.ListFilter{}); err != nil || len(list) != 1 || list[0].ID != base.ID {
		t.Errorf("left are %+v, %v", list, err)
	}
	// A round that is refused leaves a table.
	plan.Width, plan.Limits.MinWidth = 2, 0
	plan.Search = api.ExploreSearch{Strategy: api.SearchBeam, Branch: 3}
	x, err = n.Machine.Explore(as, "base", plan)
	if err == nil {
		x, err = n.Machine.GetExploration(as, x.ID, true)
	}
	if err != nil || x.State != api.ExplorationFailed || x.Error == nil || x.Error.Code != api.CodeLimit || len(x.Children) != 2 || x.Children[0].State != api.AttemptSucceeded {
		t.Errorf("%+v, %v", x, err)
	}
	if list, err := n.Machine.List(as, api.ListFilter{}); err != nil || len(list) != 1 {
		t.Errorf("left are %+v, %v", list, err)
	}
	if err := n.Machine.Destroy(as, base.ID); err != nil {
		t.Error(err)
	}
}

// TestExploreHoldsMemoryToItsLimit has an attempt that takes too much.
func TestExploreHoldsMemoryToItsLimit(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("base")
	x := explore(n, "base", api.ExplorePlan{
		Variants: []api.ExploreVariant{{Argv: []string{"/bin/guest", "eat", "300", "10m"}}, {Argv: []string{"/bin/guest", "say", "sleep:1500ms"}}},
		Limits:   api.ExploreLimits{MemoryMiB: 250}, Keep: api.KeepNone,
	}, api.ExplorationDone)
	if a, b := &x.Children[0], &x.Children[1]; a.State != api.AttemptStopped || api.CodeOf(a.Error) != api.CodeLimit || b.State != api.AttemptSucceeded {
		t.Errorf("%s", tableOf(x))
	}
}

// TestExplorationsEndWithTheDaemon leaves an exploration running, and opens the node again.
func TestExplorationsEndWithTheDaemon(t *testing.T) {
	n := harness.NewNode(t)
	base := n.Create("base")
	x, err := n.Machine.Explore(harness.AsOwner, "base", api.ExplorePlan{
		Run: api.ExploreRun{Argv: []string{"/bin/guest", "say"}}, Variants: saying("fast", "sleep:10m"), Then: api.ThenPromote, Keep: api.KeepAll,
	})
	if err != nil {
		t.Fatal(err)
	}
	polltest.Eventually(t, time.Minute, "the first attempt succeeds", func() bool {
		now, err := n.Machine.GetExploration(harness.AsOwner, x.ID, false)
		return err == nil && now.Children[0].State == api.AttemptSucceeded
	})
	n.Reopen()
	after, err := n.Machine.GetExploration(harness.AsOwner, x.ID, true)
	if err != nil || after.State != api.ExplorationInterrupted || after.Children[0].Stdout != "fast\n" || after.Children[1].State != api.AttemptStopped {
		t.Errorf("%+v, %v", after, err)
	}
	onlyLeft(n, base.ID)
	var got []api.ExplorationEvent
	err = n.Machine.ExplorationEvents(harness.AsOwner, x.ID, 0, true, func() {}, func(e api.ExplorationEvent) error { got = append(got, e); return nil })
	if err != nil || len(got) != 2 || !got[0].Restarted || got[1].State != api.ExplorationInterrupted {
		t.Errorf("events %+v, %v", got, err)
	}
}

// exploreOnce explores "base" in three rounds of which all attempts are kept, and then destroys those.
// The attempt that was made last has the best score, so that it is promoted through two others.
func exploreOnce(ctx context.Context, m *machine.Machine, rng *rand.Rand) error {
	x, err := m.Explore(ctx, "base", api.ExplorePlan{
		Width: 2, Run: api.ExploreRun{Argv: []string{"/bin/guest", "trail", "RAMET_ATTEMPT"}}, Then: api.ThenPromote, Keep: api.KeepAll,
		Score:  api.ExploreScore{By: api.ScoreRegexp, Pattern: `([0-9]+) $`, File: "/srv/trail"},
		Search: api.ExploreSearch{Strategy: api.SearchBeam, Rounds: 3, Survivors: 1 + rng.IntN(2), Branch: 2},
	})
	if err != nil {
		return err
	}
	err = m.ExplorationEvents(ctx, x.ID, 0, true, func() {}, func(e api.ExplorationEvent) error {
		if e.Kind != api.AttemptChanged {
			fmt.Println(e.State, e.Kind)
		}
		return nil
	})
	if err == nil {
		x, err = m.GetExploration(ctx, x.ID, true)
	}
	if err != nil {
		return err
	}
	for _, a := range x.Children {
		if a.Kept {
			if err := m.Destroy(ctx, a.Sandbox); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestDaemonDiesWhileItExplores kills a daemon at random moments of explorations. The next one ends
// each: it is done, and the sandbox has the state of its winner, or it is interrupted, and nothing is
// left of it.
func TestDaemonDiesWhileItExplores(t *testing.T) {
	rng := harness.Seeded(t)
	n := harness.NewNode(t)
	base := n.Create("base")
	n.Hold("base", "-value", "zero", "-only", "heap,files,child")
	n.Put("base", api.WriteRequest{FileRef: api.FileRef{Path: "/srv/trail"}}, "")
	n.Close()
	ended := map[api.ExplorationState]int{}
	for range harness.Kills(t, 5, 2) {
		p := harness.StartVictim(t, harness.Victim{Runtime: n.Paths.RuntimeDir(), Data: n.Paths.DataDir(), Engine: n.Build, Seed: rng.Uint64(), Work: "explore"})
		for range 4 + rng.IntN(7) {
			p.Next()
		}
		harness.RandomPause(rng, 40*time.Millisecond)
		p.Kill()
		n.Open()
		list, err := n.Machine.Explorations(harness.AsOwner, api.ExplorationFilter{})
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(list, func(a, b api.Exploration) int { return a.CreatedAt.Compare(b.CreatedAt) })
		may, trail := map[string]bool{base.ID: true}, ""
		for _, x := range list {
			x, err := n.Machine.GetExploration(harness.AsOwner, x.ID, true)
			if err != nil {
				t.Fatal(err)
			}
			ended[x.State]++
			switch x.State {
			case api.ExplorationDone:
				own := ""
				for at := &x.Winners[0]; at != nil; at = x.Children[*at].Parent {
					own = fmt.Sprint(*at, " ") + own
				}
				trail += own
				if !x.Promoted || len(own) < len("0 0 0 ") {
					t.Errorf("promoted %t by %q\n%s", x.Promoted, own, tableOf(x))
				}
				for _, a := range x.Children {
					may[a.Sandbox] = a.Kept
				}
			case api.ExplorationInterrupted:
			default:
				t.Errorf("an exploration is %s: %v\n%s", x.State, x.Error, tableOf(x))
			}
		}
		left, err := n.Machine.List(harness.AsOwner, api.ListFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range left {
			if !may[s.ID] {
				t.Errorf("sandbox %s is left, of %s", s.ID, s.Metadata[explorationLabel])
			}
		}
		n.CheckWhole("base", "zero")
		n.MustRead("base", "/srv/trail", trail)
		n.CheckOwned()
		n.DestroyAllBut("base")
		n.Close()
	}
	t.Logf("explorations, counted after each kill: %v", ended)
	n.Open()
}

const explorationLabel = "ramet/exploration"
