package main

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// parser turns the output of a job into results.
type parser struct {
	outcome *outcome
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

var (
	pytestFailed  = regexp.MustCompile(`^(?:FAILED|ERROR) (tests/\S+?\.py(?:::.+?)?)(?: - .*)?$`)
	nodeFailed    = regexp.MustCompile(`^test at (build/[^ ]+\.test)\.js:`)
	plainFailed   = regexp.MustCompile(`^--- FAIL: (.+)$`)
	pytestCounted = regexp.MustCompile(`^(?:=+ )?(?:\d+ failed, )?(\d+) passed\b`)
	nodeCounted   = regexp.MustCompile(`^ℹ pass (\d+)$`)
	location      = regexp.MustCompile(`^\s*[^\s]+\.go:\d+: `)
)

func (p *parser) line(line string) {
	o := p.outcome
	if name, ok := strings.CutPrefix(line, leftBehind); ok {
		o.left = append(o.left, name)
		return
	}
	if o.job.output == events && strings.HasPrefix(line, "{") {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil {
			p.event(e)
			return
		}
	}
	o.loose = keep(o.loose, line)
	if o.job.output == lines {
		p.plain(line)
	}
}

func (p *parser) event(e event) {
	o := p.outcome
	text := strings.TrimSuffix(e.Output, "\n")
	if e.Test == "" {
		if e.Output != "" {
			o.loose = keep(o.loose, text)
		}
		if e.Action == "pass" || e.Action == "fail" {
			o.packages[strings.TrimPrefix(e.Package, module)] = asDuration(e.Elapsed)
		}
		return
	}
	top, inner, _ := strings.Cut(e.Test, "/")
	key := top
	if o.job.tests == nil { // a job of several packages
		key = strings.TrimPrefix(e.Package, module) + "." + top
	}
	t := o.tests[key]
	if t == nil {
		t = &testResult{name: key, status: running}
		o.tests[key] = t
	}
	switch e.Action {
	case "output":
		t.output = keep(t.output, text)
	case "skip":
		if inner != "" {
			t.inner = append(t.inner, skip{e.Test, t.reason()})
		}
	}
	switch status := testStatus(e.Action); {
	case inner != "":
	case status == passed, status == failed, status == skipped:
		t.status, t.took = status, asDuration(e.Elapsed)
	}
}

func asDuration(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// plain reads a line of a script that prints as go test does.
func (p *parser) plain(line string) {
	o := p.outcome
	line = strings.TrimSpace(line)
	if reason, ok := strings.CutPrefix(line, "skip: "); ok {
		o.tests["skip "+line] = &testResult{name: o.job.name, status: skipped, output: []string{reason}}
		return
	}
	for _, failure := range []*regexp.Regexp{pytestFailed, nodeFailed, plainFailed} {
		if m := failure.FindStringSubmatch(line); m != nil {
			o.tests[m[1]] = &testResult{name: m[1], status: failed}
			return
		}
	}
	for _, counted := range []*regexp.Regexp{pytestCounted, nodeCounted} {
		if m := counted.FindStringSubmatch(line); m != nil {
			count, _ := strconv.Atoi(m[1]) // digits
			o.tests["passed"] = &testResult{name: o.job.name, status: passed, count: count}
		}
	}
}

// reason is the last line that a test printed before it was skipped, without its place.
func (t *testResult) reason() string {
	for i := len(t.output) - 1; i >= 0; i-- {
		line := strings.TrimSpace(t.output[i])
		if !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "===") && line != "" {
			return strings.TrimSpace(location.ReplaceAllString(t.output[i], ""))
		}
	}
	return "no reason"
}
