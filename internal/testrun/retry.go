package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// mostRetries is the number of failed tests that run once more. More have a common cause.
const mostRetries = 20

// retry runs each failed test once more, alone, and marks it as flaky if it passes.
func retry(ctx context.Context, w *workspace, outcomes []*outcome, r *report) {
	tried := 0
	for _, o := range outcomes {
		for _, t := range o.failed() {
			if tried++; tried > mostRetries || ctx.Err() != nil || !o.job.canRetry(t, o) {
				continue
			}
			var only []string
			if t.name != "" {
				only = []string{t.name}
			}
			r.note("again   %s (%s)", t.label(), o.job.name)
			again := o.job.start(ctx, w, only)
			if again.err == nil && len(again.failed()) == 0 {
				t.flaky = again
			}
		}
	}
}

func (j *job) canRetry(t *testResult, o *outcome) bool {
	if j.again == nil || !j.again(t.name) {
		return false
	}
	return !slices.ContainsFunc(o.loose, func(line string) bool {
		return strings.Contains(line, "[build failed]") || strings.Contains(line, "[setup failed]")
	})
}

// repeat runs the tests that -run names o.count times beside busy processes, until one fails.
func repeat(ctx context.Context, w *workspace, p *plan, o options, r *report) (bool, error) {
	busy, stop := context.WithCancel(ctx)
	defer stop()
	var loads []*exec.Cmd
	defer func() {
		stop()
		for _, c := range loads {
			_ = c.Wait() // it was killed
		}
	}()
	var jobs []*job
	for _, k := range p.packages {
		if !slices.ContainsFunc(k.tests, o.run.MatchString) {
			continue
		}
		if k.suite {
			once := &plan{packages: []*pkg{k}}
			once.suites(w, o, times{})
			jobs = append(jobs, once.jobs...)
		} else {
			o.record = true // never from the cache
			jobs = append(jobs, p.packageJob(k.dir, []*pkg{k}, o, 0))
		}
	}
	if len(jobs) == 0 {
		return false, fmt.Errorf("no test matches -run %v", o.run)
	}
	if err := buildSuites(ctx, w, jobs); err != nil {
		return false, err
	}
	for range o.load {
		c := exec.CommandContext(busy, "sh", "-c", "while :; do :; done")
		if err := c.Start(); err != nil {
			return false, errors.Join(err, ctx.Err())
		}
		loads = append(loads, c)
	}
	for i := range o.count {
		for _, j := range jobs {
			result := j.start(ctx, w, nil)
			if ctx.Err() != nil {
				return false, ctx.Err()
			}
			r.note("%3d/%d %s %s %s", i+1, o.count, result.verdict(), j.name, round(result.took))
			if result.err != nil || len(result.failed()) > 0 {
				r.failure(result)
				return false, nil
			}
		}
	}
	return true, nil
}

func round(d time.Duration) time.Duration {
	return time.Duration(math.Round(d.Seconds()*10)) * time.Second / 10
}

// machine describes what the run had.
func machine() string { return fmt.Sprintf("%d processors", runtime.NumCPU()) }
