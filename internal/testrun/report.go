package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// report prints the progress and the results of a run. Its log has the whole output.
type report struct {
	mu    sync.Mutex
	out   io.Writer
	log   io.Writer
	began time.Time
	skips []string
}

func newReport(out, log io.Writer) *report {
	return &report{out: out, log: log, began: time.Now()}
}

// note prints a line with the time since the beginning.
func (r *report) note(format string, args ...any) {
	since := time.Since(r.began)
	r.print(fmt.Sprintf("[%02d:%02d] ", int(since.Minutes()), int(since.Seconds())%60) + fmt.Sprintf(format, args...))
}

func (r *report) print(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(r.out, line)
	fmt.Fprintln(r.log, line)
}

func (r *report) started(j *job) { r.note("start   %s", j.name) }

func (r *report) skip(s skip) {
	r.skips = append(r.skips, fmt.Sprintf("skip: %s: %s", s.name, s.reason))
}

func (o *outcome) verdict() string {
	if o.err != nil || len(o.failed()) > 0 {
		return "FAIL"
	}
	return "ok  "
}

// ended prints the end of a job, with what failed in it.
func (r *report) ended(o *outcome) {
	r.note("%s    %s\t%s, %s of a processor", o.verdict(), o.job.name, round(o.took), round(o.cpu))
	for _, name := range sortedTests(o) {
		t := o.tests[name]
		for _, s := range t.inner {
			r.skip(s)
		}
		if t.status == skipped {
			r.skip(skip{t.label(), t.reason()})
		}
	}
	if o.verdict() == "FAIL" {
		r.failure(o)
	}
}

// failure prints the failed tests of a job, each with its last lines.
func (r *report) failure(o *outcome) {
	for _, line := range o.left {
		r.print("    " + leftBehind + line)
	}
	own := 0
	for _, t := range o.failed() {
		r.print(fmt.Sprintf("--- FAIL: %s (%s)", t.label(), o.job.name))
		own += len(t.output)
		r.tail(t.output)
	}
	if own == 0 || slices.ContainsFunc(o.loose, isPanic) {
		r.tail(o.loose)
	}
}

func isPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "WARNING: DATA RACE")
}

// shown is the number of lines that are printed of a failed test.
const shown = 100

// tail prints the end of an output, and its begin: what failed is often told first.
func (r *report) tail(output []string) {
	const first = 20
	if left := len(output) - shown; left > first {
		for _, line := range output[:first] {
			r.print("    " + line)
		}
		r.print(fmt.Sprintf("    … %d lines", left-first))
		output = output[left:]
	}
	for _, line := range output {
		r.print("    " + line)
	}
}

// close prints the end of the run and reports whether it passed.
func (r *report) close(ctx context.Context, outcomes []*outcome, took time.Duration) bool {
	var slow []*testResult
	var flaky, lost []string
	times := map[string]int{} // that a name was flaky
	counts := map[testStatus]int{}
	outputs := func() {}
	for _, o := range outcomes {
		for _, name := range sortedTests(o) {
			t := o.tests[name]
			slow = append(slow, t)
			switch {
			case t.status != failed:
				counts[t.status] += max(1, t.count)
			case t.flaky == nil:
				lost = append(lost, fmt.Sprintf("FAIL %s (%s)", t.label(), o.job.name))
			default:
				times[t.label()]++
				flaky = append(flaky, fmt.Sprintf("FLAKY %s (%s)", t.label(), o.job.name))
				if times[t.label()] > 1 {
					lost = append(lost, fmt.Sprintf("FAIL %s was flaky twice", t.label()))
				}
				before := outputs
				outputs = func() { before(); r.both(t, o) }
			}
		}
	}
	r.section("skipped", r.skips)
	r.section("the slowest tests", slowest(slow))
	outputs()
	r.section("results", append(flaky, lost...))
	if ctx.Err() != nil {
		r.print("the run was ended")
	}
	r.print(fmt.Sprintf("%d s on %s", int(took.Seconds()), machine()))
	r.print(fmt.Sprintf("%d passed, %d failed, %d skipped", counts[passed]+len(flaky), len(lost), counts[skipped]))
	return len(lost) == 0 && ctx.Err() == nil
}

// both prints the two outputs of a flaky test.
func (r *report) both(t *testResult, o *outcome) {
	r.print("\n== flaky: " + t.label() + " (" + o.job.name + "): the run that failed")
	r.tail(append(slices.Clone(t.output), o.left...))
	r.print("== flaky: " + t.label() + ": the run that passed")
	for _, name := range sortedTests(t.flaky) {
		r.tail(t.flaky.tests[name].output)
	}
	r.tail(t.flaky.loose)
}

func (r *report) section(title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	r.print("\n== " + title)
	for _, line := range lines {
		r.print(line)
	}
}

// slowest lists the twenty tests that took longest.
func slowest(tests []*testResult) []string {
	slices.SortStableFunc(tests, func(a, b *testResult) int { return int(b.took - a.took) })
	var list []string
	for _, t := range tests[:min(20, len(tests))] {
		list = append(list, fmt.Sprintf("%8s  %s", round(t.took), t.label()))
	}
	return list
}

func (t *testResult) label() string {
	if t.name == "" {
		return "all tests"
	}
	return t.name
}

func sortedTests(o *outcome) []string {
	names := make([]string, 0, len(o.tests))
	for name := range o.tests {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
