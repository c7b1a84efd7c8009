package explore

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// world implements Sandboxes and Records in memory. Its functions take the place of what a test
// changes.
type world struct {
	exec    func(env map[string]string) (stdout string, exitCode int, ms float64)
	promote func(child string) error
	private func(ref string) float64
	merge   func() error

	mu       sync.Mutex
	made     int
	lines    map[string][]string
	labels   map[string]map[string]string
	contexts []api.Context
	codes    []string
	records  map[string][]byte
}

func newWorld() *world {
	return &world{lines: map[string][]string{"base": {"base"}}, labels: map[string]map[string]string{"base": {}}, records: map[string][]byte{}}
}

func (w *world) Source(_ context.Context, ref string) (api.Sandbox, string, []string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	line, ok := w.lines[ref]
	if !ok {
		return api.Sandbox{}, "", nil, api.NotFound("sandbox", ref)
	}
	return api.Sandbox{ID: ref}, access.DefaultTenant, line, nil
}

// fork makes a child.
func (w *world) fork(of string, labels map[string]string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made++
	id := fmt.Sprintf("box%d", w.made)
	w.lines[id] = append(slices.Clone(w.lines[of]), id)
	w.labels[id] = maps.Clone(w.labels[of])
	maps.Copy(w.labels[id], labels)
	return id
}

func (w *world) Fork(_ context.Context, ref string, req api.ForkRequest) (*api.ForkResult, error) {
	res := &api.ForkResult{}
	for range req.Count {
		id := w.fork(ref, req.Metadata)
		res.Children = append(res.Children, api.Child{Sandbox: &api.Sandbox{ID: id}})
	}
	return res, nil
}

func (w *world) Exec(_ context.Context, _ string, req api.ExecRequest, streams api.ExecIO) (*api.ExecResult, error) {
	out, code, ms := w.exec(req.Env)
	_, _ = io.WriteString(streams.Stdout, out)
	return &api.ExecResult{ExitCode: code, OK: code == 0, DurationMS: ms}, nil
}

func (w *world) RunCode(_ context.Context, _ string, req api.RunCodeRequest, _ api.RunIO) (*api.RunResult, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.codes = append(w.codes, req.Code)
	return &api.RunResult{ExecResult: api.ExecResult{OK: true}, Result: "1"}, nil
}

func (w *world) Contexts(context.Context, string) ([]api.Context, error) { return w.contexts, nil }

func (w *world) WriteFile(context.Context, string, api.WriteRequest, io.Reader) (*api.FileInfo, error) {
	return &api.FileInfo{}, nil
}

func (w *world) ReadFile(context.Context, string, string, int) ([]byte, error) { return nil, nil }

func (w *world) Diff(context.Context, string, string, api.DiffRequest) (*api.Diff, error) {
	return &api.Diff{}, nil
}

func (w *world) Merge(context.Context, string, api.MergeRequest) (*api.MergeResult, error) {
	if err := w.merge(); err != nil {
		return nil, err
	}
	return &api.MergeResult{}, nil
}

// Promote gives the place of the parent to the child, whose id is gone.
func (w *world) Promote(_ context.Context, child string) (*api.Sandbox, error) {
	if w.promote != nil {
		if err := w.promote(child); err != nil {
			return nil, err
		}
	}
	return &api.Sandbox{}, w.Destroy(child, "")
}

func (w *world) Update(context.Context, string, api.UpdateRequest) (*api.Sandbox, error) {
	return &api.Sandbox{}, nil
}

func (w *world) Destroy(id, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.lines[id]; !ok {
		return api.NotFound("sandbox", id)
	}
	delete(w.lines, id)
	return nil
}

func (w *world) Labelled(_, key, value string) map[string][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[string][]string{}
	for id, line := range w.lines {
		if w.labels[id][key] == value {
			found[id] = line
		}
	}
	return found
}

func (w *world) PrivateMiB(_ context.Context, ref string) (float64, error) {
	return w.private(ref), nil
}

func (w *world) Save(_ context.Context, id string, doc any) error {
	text, err := json.Marshal(doc)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.records[id] = text
	return err
}

func (w *world) Remove(_ context.Context, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.records, id)
	return nil
}

func (w *world) Each(_ context.Context, fn func(string, []byte) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, doc := range w.records {
		if err := fn(id, doc); err != nil {
			return err
		}
	}
	return nil
}

// left returns the sandboxes that there are.
func (w *world) left() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.lines))
}

func (w *world) open(t *testing.T) *Explorer {
	t.Helper()
	e, err := Open(t.Context(), Config{Sandboxes: w, Records: w, Audit: func(api.AuditEntry) {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// explore returns an exploration when it has ended.
func (w *world) explore(t *testing.T, plan api.ExplorePlan) *api.Exploration {
	t.Helper()
	e := w.open(t)
	ctx := access.With(t.Context(), access.Caller{Tenant: access.DefaultTenant, Scope: api.ScopeAdmin, Owner: true})
	x, err := e.Explore(ctx, "base", plan)
	if err == nil {
		x, err = e.GetExploration(ctx, x.ID, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

var command = api.ExploreRun{Argv: []string{"/bin/try"}}

// falling scores the attempts of the first round highest.
func falling(env map[string]string) (string, int, float64) {
	if env["RAMET_ROUND"] == "1" {
		return "10", 0, 1
	}
	return "1", 0, 1
}

// rising scores the attempts of the last round highest.
func rising(env map[string]string) (string, int, float64) { return env["RAMET_ROUND"], 0, 1 }

// TestLosersBelowTheWinnerAreDestroyed has the best attempt in the first round of a beam: the second
// round descends from it, and is destroyed. A fork that the winner made of itself stays, and an
// attempt goes whose label somebody removed.
func TestLosersBelowTheWinnerAreDestroyed(t *testing.T) {
	w := newWorld()
	own := ""
	w.exec = func(env map[string]string) (string, int, float64) {
		if env["RAMET_ROUND"] == "1" {
			own = w.fork("box1", nil)
		} else {
			w.mu.Lock()
			delete(w.labels["box3"], Label)
			w.mu.Unlock()
		}
		return falling(env)
	}
	x := w.explore(t, api.ExplorePlan{
		Width: 1, Run: command, Score: api.ExploreScore{By: api.ScoreNumber},
		Search: api.ExploreSearch{Strategy: api.SearchBeam, Rounds: 2, Branch: 2},
	})
	if x.State != api.ExplorationDone || x.Winner != "box1" || !x.Children[0].Kept {
		t.Errorf("%+v", x)
	}
	if got := w.left(); own != "box2" || !slices.Equal(got, []string{"base", "box1", "box2"}) {
		t.Errorf("left are %v", got)
	}
}

// TestHalfAPromotionKeepsTheWinner promotes a grandchild to its parent, which then cannot be promoted:
// the parent has the state of the winner, and is kept.
func TestHalfAPromotionKeepsTheWinner(t *testing.T) {
	w := newWorld()
	w.exec = rising
	w.promote = func(child string) error {
		if child == "box1" {
			return api.Errorf(api.CodeConflict, "the parent is gone")
		}
		return nil
	}
	x := w.explore(t, api.ExplorePlan{
		Width: 1, Run: command, Score: api.ExploreScore{By: api.ScoreNumber}, Then: api.ThenPromote,
		Search: api.ExploreSearch{Strategy: api.SearchBeam, Rounds: 2},
	})
	if x.State != api.ExplorationFailed || x.Winner != "box1" || !x.Children[0].Kept || x.Children[1].Kept || !strings.Contains(x.Error.Detail, "box1, which is kept") {
		t.Errorf("%+v: %v", x, x.Error)
	}
	if got := w.left(); !slices.Equal(got, []string{"base", "box1"}) {
		t.Errorf("left are %v", got)
	}
}

// TestMergesAreNotRepeated has a daemon killed after a merge, while it destroys the attempts.
func TestMergesAreNotRepeated(t *testing.T) {
	killed := newWorld()
	killed.merge = func() error { return nil }
	killed.exec = rising
	saved := ""
	seen := &recorder{world: killed, before: func(id string) { // at the first destruction
		if saved == "" {
			saved = string(killed.records[id])
		}
	}}
	e, err := Open(t.Context(), Config{Sandboxes: seen, Records: killed, Audit: func(api.AuditEntry) {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	ctx := access.With(t.Context(), access.Caller{Tenant: access.DefaultTenant, Scope: api.ScopeAdmin, Owner: true})
	x, err := e.Explore(ctx, "base", api.ExplorePlan{Width: 2, Run: command, Then: api.ThenMerge, Winners: 2})
	if err == nil {
		x, err = e.GetExploration(ctx, x.ID, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	next := newWorld()
	next.records[x.ID] = []byte(saved)
	next.merge = func() error { return api.NotFound("sandbox", "box1") }
	e = next.open(t)
	e.Resume()
	if x, err = e.GetExploration(ctx, x.ID, true); err != nil || x.State != api.ExplorationDone || x.Merge == nil {
		t.Errorf("%+v, %v", x, err)
	}
}

// recorder tells of destructions before they happen.
type recorder struct {
	*world
	before func(exploration string)
}

func (r *recorder) Destroy(id, reason string) error {
	r.mu.Lock()
	r.before(r.labels[id][Label])
	r.mu.Unlock()
	return r.world.Destroy(id, reason)
}

// TestDurationsAreThoseOfTheRun scores by duration, with a command that only checks.
func TestDurationsAreThoseOfTheRun(t *testing.T) {
	w := newWorld()
	w.exec = func(env map[string]string) (string, int, float64) {
		if env["CHECK"] != "" {
			return "", 0, 9000
		}
		return "", 0, 2000
	}
	x := w.explore(t, api.ExplorePlan{Run: command, Score: api.ExploreScore{
		By: api.ScoreDuration, Command: &api.ExploreRun{Argv: []string{"/bin/check"}, Env: map[string]string{"CHECK": "1"}},
	}})
	if a := &x.Children[0]; a.Score == nil || *a.Score != 2 {
		t.Errorf("%+v", a)
	}
}

// TestAScoringCommandThatFails fails the attempt, with a reason, whatever the score would come from.
// The command has the variables of the attempt, and its own before them.
func TestAScoringCommandThatFails(t *testing.T) {
	w := newWorld()
	w.exec = func(env map[string]string) (string, int, float64) {
		if env["CHECK"] == "" {
			return "", 0, 1
		}
		if env["KIND"] == "bad" {
			return "3", 7, 1
		}
		return env["WEIGHT"] + env["CHECK"], 0, 1
	}
	for by, want := range map[api.ExploreBy]float64{api.ScoreExitCode: 1, api.ScoreNumber: 42, api.ScoreDuration: 0.001} {
		x := w.explore(t, api.ExplorePlan{
			Run: api.ExploreRun{Argv: command.Argv, Env: map[string]string{"WEIGHT": "4", "CHECK": ""}}, Keep: api.KeepNone,
			Variants: []api.ExploreVariant{{Env: map[string]string{"KIND": "bad"}}, {Env: map[string]string{"KIND": "good"}}},
			Score:    api.ExploreScore{By: by, Failed: true, Command: &api.ExploreRun{Argv: []string{"/bin/check"}, Env: map[string]string{"CHECK": "2"}}},
		})
		bad, good := x.Children[0], x.Children[1]
		if bad.State != api.AttemptFailed || bad.Score != nil || bad.Error == nil || bad.Error.Detail != "score: the scoring command failed with exit code 7" {
			t.Errorf("%s: %+v", by, bad)
		}
		if good.State != api.AttemptSucceeded || good.Score == nil || *good.Score != want || !slices.Equal(x.Winners, []int{1}) {
			t.Errorf("%s: %+v", by, good)
		}
	}
}

// TestAnAttemptWithoutAScoreHasFailed says once that it is about the score.
func TestAnAttemptWithoutAScoreHasFailed(t *testing.T) {
	w := newWorld()
	w.exec = func(map[string]string) (string, int, float64) { return "no JSON", 0, 1 }
	x := w.explore(t, api.ExplorePlan{Run: command, Score: api.ExploreScore{By: api.ScoreJSON, Path: "a"}})
	if a := x.Children[0]; a.State != api.AttemptFailed || a.Error == nil || a.Error.Error() != "score: neither the text nor a line of it is JSON" || a.Error.Code != api.CodeInvalid {
		t.Errorf("%+v: %v", a, a.Error)
	}
}

// TestADefectEndsAnAttempt has the run of one attempt panic.
func TestADefectEndsAnAttempt(t *testing.T) {
	w := newWorld()
	w.exec = func(env map[string]string) (string, int, float64) {
		if env["RAMET_ATTEMPT"] == "0" {
			panic("a defect")
		}
		return "", 0, 1
	}
	x := w.explore(t, api.ExplorePlan{Width: 2, Run: command})
	if x.State != api.ExplorationDone || x.Children[0].State != api.AttemptFailed || api.CodeOf(x.Children[0].Error) != api.CodeInternal || !slices.Equal(x.Winners, []int{1}) {
		t.Errorf("%+v", x)
	}
}

// TestTheLanguageIsThatOfTheContext runs code in a context of a name of its own.
func TestTheLanguageIsThatOfTheContext(t *testing.T) {
	for of, c := range map[string]struct{ context, begin string }{
		"one that there is": {"work", "var ramet_attempt"},
		"a default one":     {"bash", "export "},
		"another":           {"other", "ramet_attempt ="},
	} {
		w := newWorld()
		w.contexts = []api.Context{{Name: "work", Language: "node"}}
		w.explore(t, api.ExplorePlan{Run: api.ExploreRun{Code: "1", Context: c.context}})
		if len(w.codes) != 2 || !strings.HasPrefix(w.codes[0], c.begin) {
			t.Errorf("%s: %q", of, w.codes)
		}
	}
}

// TestMemoryIsNotTakenFromASuccess has the attempt with the most memory succeed while that of the
// others is read.
func TestMemoryIsNotTakenFromASuccess(t *testing.T) {
	w := newWorld()
	e := w.open(t)
	r, err := newRun(e, api.Sandbox{ID: "base"}, access.DefaultTenant, []string{"base"}, api.ExplorePlan{Width: 2, Run: command, Limits: api.ExploreLimits{MemoryMiB: 10}}.Completed())
	if err != nil {
		t.Fatal(err)
	}
	r.addAttempts(1, nil, []string{w.fork("base", nil), w.fork("base", nil)})
	first := ""
	w.private = func(ref string) float64 {
		if first == "" {
			first = ref
			return 100
		}
		i := slices.IndexFunc(r.rec.Exploration.Children, func(a api.Attempt) bool { return a.Sandbox == first })
		for _, to := range []api.AttemptState{api.AttemptRunning, api.AttemptScoring, api.AttemptSucceeded} {
			r.change(i, to, nil)
		}
		return 1
	}
	watch := r.newWatch([]int{0, 1})
	for i := range 2 {
		watch.add(i, func(error) { t.Errorf("attempt %d is stopped", i) })
	}
	watch.enforce(t.Context(), 10)
	if got := w.left(); len(got) != 3 {
		t.Errorf("left are %v", got)
	}
}

// TestMemoryOfEarlierRoundsCounts has survivors of a beam that have more memory than the attempt that
// runs, which alone can be stopped.
func TestMemoryOfEarlierRoundsCounts(t *testing.T) {
	w := newWorld()
	e := w.open(t)
	r, err := newRun(e, api.Sandbox{ID: "base"}, access.DefaultTenant, []string{"base"}, api.ExplorePlan{
		Width: 2, Run: command, Limits: api.ExploreLimits{MemoryMiB: 10}, Search: api.ExploreSearch{Strategy: api.SearchBeam},
	}.Completed())
	if err != nil {
		t.Fatal(err)
	}
	parent, gone := 0, 1
	r.addAttempts(1, nil, []string{w.fork("base", nil), w.fork("base", nil)})
	r.addAttempts(2, &parent, []string{w.fork("box1", nil)})
	r.change(2, api.AttemptRunning, nil)
	r.dropped[gone] = true
	w.private = func(ref string) float64 { return map[string]float64{"box1": 8, "box2": 100, "box3": 1}[ref] }
	stopped := 0
	watch := r.newWatch([]int{2})
	watch.add(2, func(error) { stopped++ })
	watch.enforce(t.Context(), 10)
	if stopped > 0 {
		t.Error("it is stopped below the limit: what was destroyed counts")
	}
	watch.enforce(t.Context(), 8)
	if a := r.attempt(2); stopped != 1 || a.State != api.AttemptStopped || api.CodeOf(a.Error) != api.CodeLimit {
		t.Errorf("above the limit: stopped %d times, %+v", stopped, a)
	}
	if got := w.left(); slices.Contains(got, "box3") || !slices.Contains(got, "box1") {
		t.Errorf("left are %v", got)
	}
}

// TestTailsAreBounded bounds what all attempts that run at once can have the daemon keep.
func TestTailsAreBounded(t *testing.T) {
	for width, want := range map[int]int{1: maxTail, 100: allTails / 100, 5000: minTail} {
		r, err := newRun(newWorld().open(t), api.Sandbox{}, "", nil, api.ExplorePlan{Width: width, Run: command}.Completed())
		if err != nil || r.scored != want {
			t.Errorf("%d attempts: %d bytes, not %d, %v", width, r.scored, want, err)
		}
	}
	end := tail{max: 3}
	for range 100 {
		_, _ = io.WriteString(&end, "ab")
	}
	if end.String() != "bab" || len(end.buf) > 6 {
		t.Errorf("kept is %q of %d bytes", end.String(), len(end.buf))
	}
}

var _ Sandboxes = (*world)(nil)

// TestACallerThatIsGoneHasBegunIt begins an exploration for a caller that does not wait for the answer:
// the answer is kept for one that asks again with the same key.
func TestACallerThatIsGoneHasBegunIt(t *testing.T) {
	w := newWorld()
	w.exec = falling
	e := w.open(t)
	ctx := access.With(t.Context(), access.Caller{Tenant: access.DefaultTenant, Scope: api.ScopeAdmin, Owner: true})
	gone, leave := context.WithCancel(ctx)
	leave()
	x, err := e.Explore(gone, "base", api.ExplorePlan{Width: 2, Run: command})
	if err != nil {
		t.Fatal(err)
	}
	if x, err = e.GetExploration(ctx, x.ID, true); err != nil || x.State != api.ExplorationDone {
		t.Errorf("%+v: %v", x, err)
	}
}
