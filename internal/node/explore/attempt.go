package explore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/background"
)

// maxListed is how many differences of an attempt the table has.
const maxListed = 1000

// trial is an attempt in a round.
type trial struct {
	*run
	round, index int
	sandbox      string
}

// try runs the attempt, and scores it. ctx ends with a cause if the attempt is to be stopped.
func (t *trial) try(ctx context.Context) {
	defer func() {
		if v := recover(); v != nil {
			t.failed(background.Recovered(t.explorer.cfg.Log, "attempt", v))
		}
	}()
	if ctx.Err() != nil {
		t.stopped(ctx)
		return
	}
	if !t.change(t.index, api.AttemptRunning, nil) {
		return
	}
	out, err := t.perform(ctx)
	switch {
	case ctx.Err() != nil:
		t.stopped(ctx)
		return
	case err != nil:
		t.failed(err)
		return
	case !out.ok && !t.plan.Score.Failed:
		t.compare(ctx)
		t.change(t.index, api.AttemptFailed, func(a *api.Attempt) { t.note(a, out) })
		return
	}
	t.change(t.index, api.AttemptScoring, func(a *api.Attempt) { t.note(a, out) })
	score, err := t.score(ctx, out)
	if err == nil {
		t.compare(ctx)
	}
	switch {
	case ctx.Err() != nil:
		t.stopped(ctx)
	case err != nil:
		t.failed(fmt.Errorf("score: %w", err))
	case t.scorer.good(score):
		t.change(t.index, api.AttemptSucceeded, func(a *api.Attempt) { a.Score = &score })
	default:
		t.change(t.index, api.AttemptFailed, func(a *api.Attempt) { a.Score = &score })
	}
}

// perform writes the files of the attempt, unless it ran before, and runs it.
func (t *trial) perform(ctx context.Context) (*outcome, error) {
	plan, _ := t.runOf(t.variants[t.index])
	if t.round == 1 || t.attempt(t.index).Parent != nil {
		if err := t.writeFiles(ctx, plan.Files); err != nil {
			return nil, err
		}
	}
	return t.execute(ctx, &plan)
}

// note writes down what a run left behind.
func (t *trial) note(a *api.Attempt, out *outcome) {
	code := out.exitCode
	a.ExitCode, a.TimedOut, a.DurationMS, a.Score = &code, out.timedOut, out.durationMS, nil
	var cut [3]bool
	a.Stdout, cut[0] = out.stdout.last(t.output)
	a.Stderr, cut[1] = out.stderr.last(t.output)
	value := tail{buf: []byte(out.value)}
	a.Value, cut[2] = value.last(t.output)
	a.Truncated = slices.Contains(cut[:], true)
}

func (t *trial) failed(err error) {
	t.change(t.index, api.AttemptFailed, func(a *api.Attempt) { a.Error = api.AsError(err) })
}

// stopped notes that the attempt was stopped, and why if that is about it alone.
func (t *trial) stopped(ctx context.Context) {
	cause := context.Cause(ctx)
	t.change(t.index, api.AttemptStopped, func(a *api.Attempt) {
		a.StoppedEarly = true
		if e := api.AsError(cause); e.Code == api.CodeLimit || e.Code == api.CodeTimeout {
			a.Error = e
		}
	})
}

// writeFiles writes the files of an attempt.
func (t *trial) writeFiles(ctx context.Context, files []api.ExploreFile) error {
	for i := range files {
		f := &files[i]
		mode, err := f.FileMode()
		if err != nil {
			return err
		}
		data := f.Data
		if f.Text != "" {
			data = []byte(f.Text)
		}
		req := api.WriteRequest{FileRef: api.FileRef{Path: f.Path}, Mode: mode, Parents: true}
		if _, err := t.explorer.cfg.Sandboxes.WriteFile(ctx, t.sandbox, req, bytes.NewReader(data)); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	return nil
}

// execute runs a command or code in the sandbox of the attempt.
func (t *trial) execute(ctx context.Context, run *api.ExploreRun) (*outcome, error) {
	round := budget(&t.plan.Search, t.round)
	env := map[string]string{
		"RAMET_ATTEMPT": strconv.Itoa(t.index), "RAMET_ROUND": strconv.Itoa(t.round), "RAMET_BUDGET": strconv.FormatFloat(round, 'g', -1, 64),
	}
	maps.Copy(env, run.Env)
	if run.Code != "" {
		args := run.Args
		if args == nil {
			args = []string{}
		}
		return t.runCode(ctx, run, attemptInfo{Index: t.index, Round: t.round, Budget: round, Args: args, Env: env})
	}
	out := t.outcome()
	argv := slices.Concat(run.Argv, run.Args)
	if run.Shell != "" {
		argv = append([]string{"/bin/sh", "-c", run.Shell, "sh"}, run.Args...)
	}
	streams := api.ExecIO{Stdout: &out.stdout, Stderr: &out.stderr}
	if run.Stdin != "" {
		streams.Stdin = strings.NewReader(run.Stdin)
	}
	res, err := t.explorer.cfg.Sandboxes.Exec(ctx, t.sandbox, api.ExecRequest{Argv: argv, Env: env, Cwd: run.Cwd, User: run.User, TimeoutMS: run.TimeoutMS}, streams)
	if err != nil {
		return nil, err
	}
	out.take(res)
	return out, nil
}

// runCode runs code in a context of the sandbox of an attempt.
func (t *trial) runCode(ctx context.Context, run *api.ExploreRun, about attemptInfo) (*outcome, error) {
	req := api.RunCodeRequest{Language: run.Language, Context: run.Context, TimeoutMS: run.TimeoutMS}
	first := req
	language, err := t.language(ctx, run)
	if err != nil {
		return nil, err
	}
	if first.Code, err = prelude(language, about); err != nil {
		return nil, err
	}
	res, err := t.explorer.cfg.Sandboxes.RunCode(ctx, t.sandbox, first, api.RunIO{})
	if err != nil {
		return nil, err
	}
	if res.Error != nil {
		return nil, api.Errorf(api.CodeSandboxDied, "the interpreter did not take the environment: %s: %s", res.Error.Name, res.Error.Value)
	}
	out := t.outcome()
	req.Code = run.Code
	res, err = t.explorer.cfg.Sandboxes.RunCode(ctx, t.sandbox, req, api.RunIO{
		Stdout: &out.stdout, Stderr: &out.stderr,
		Result: func(shown map[string]json.RawMessage) error {
			if v, ok := shown["application/json"]; ok {
				out.valueJSON = v
			}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	out.take(&res.ExecResult)
	out.value = res.Result
	if res.Error != nil {
		out.ok = false
		if len(out.stderr.buf) == 0 {
			fmt.Fprintf(&out.stderr, "%s: %s", res.Error.Name, res.Error.Value)
		}
	}
	return out, nil
}

// language returns the language of the code of run.
func (t *trial) language(ctx context.Context, run *api.ExploreRun) (string, error) {
	if run.Language != "" || run.Context == "" {
		return cmp.Or(run.Language, "python"), nil
	}
	list, err := t.explorer.cfg.Sandboxes.Contexts(ctx, t.sandbox)
	if err != nil {
		return "", err
	}
	for i := range list {
		if list[i].Name == run.Context {
			return list[i].Language, nil
		}
	}
	return run.Context, nil // the default context of a language, which the first code starts, has its name
}

// outcome returns that of a run that begins.
func (t *trial) outcome() *outcome {
	return &outcome{stdout: tail{max: t.scored}, stderr: tail{max: t.scored}}
}

// take takes the result of a command or code.
func (o *outcome) take(res *api.ExecResult) {
	o.exitCode, o.ok, o.timedOut, o.durationMS = res.ExitCode, res.OK, res.TimedOut, res.DurationMS
}

// failure says how a run of what has failed.
func (o *outcome) failure(what string) error {
	if o.timedOut {
		return api.Errorf(api.CodeTimeout, "%s was killed after its timeout", what)
	}
	text := fmt.Sprintf("%s failed with exit code %d", what, o.exitCode)
	if last := lastLine(o.stderr.String()); last != "" {
		text += ": " + last
	}
	return api.Errorf(api.CodeInvalid, "%s", text)
}

// score returns the score of the attempt, whose run has left an outcome.
func (t *trial) score(ctx context.Context, ran *outcome) (float64, error) {
	from := ran
	if c := t.plan.Score.Command; c != nil {
		if err := t.writeFiles(ctx, c.Files); err != nil {
			return 0, err
		}
		scoring, err := *c, error(nil)
		attempt, _ := t.runOf(t.variants[t.index])
		scoring.Env = attempt.Env
		maps.Copy(scoring.Env, c.Env)
		if from, err = t.execute(ctx, &scoring); err != nil {
			return 0, err
		}
		if !from.ok {
			return 0, from.failure("the scoring command")
		}
		if t.plan.Score.By == api.ScoreDuration {
			from = ran // the command judges only whether the run counts
		}
	}
	file := ""
	if t.scorer.readsFile() {
		text, err := t.explorer.cfg.Sandboxes.ReadFile(ctx, t.sandbox, t.plan.Score.File, maxTail)
		if err != nil {
			return 0, err
		}
		file = string(text)
	}
	score, err := t.scorer.score(from, file)
	if err != nil {
		return 0, api.Errorf(api.CodeInvalid, "%w", err)
	}
	return score, nil
}

// compare lists how the attempt differs from the explored sandbox, if the plan asks for that.
func (t *trial) compare(ctx context.Context) {
	if t.plan.Diff == nil || ctx.Err() != nil {
		return
	}
	select {
	case t.diffs <- struct{}{}:
		defer func() { <-t.diffs }()
	case <-ctx.Done():
		return
	}
	d, err := t.explorer.cfg.Sandboxes.Diff(ctx, t.rec.Exploration.Sandbox, t.sandbox, *t.plan.Diff)
	if ctx.Err() != nil {
		return
	}
	t.edit(func(x *api.Exploration) {
		a := &x.Children[t.index]
		if err != nil {
			a.Error = api.AsError(fmt.Errorf("compare: %w", err))
			return
		}
		a.Diff, a.DiffTotal = d.Changes, 0
		if len(a.Diff) > maxListed {
			a.Diff, a.DiffTotal = a.Diff[:maxListed], len(d.Changes)
		}
		a.Variables = d.Variables[:min(maxListed, len(d.Variables))]
	})
}
