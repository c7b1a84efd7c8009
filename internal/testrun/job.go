package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// patience is how long a job may take. Tests have shorter limits of their own.
const patience = 30 * time.Minute

// job is one part of a run.
type job struct {
	name    string   // as it is reported
	dir     string   // where it runs, relative to the repository
	command []string // without the names of tests
	env     []string // besides the environment of the run
	tests   []string // that it runs, or nil for all that the command finds
	choose  chooser
	again   func(test string) bool // whether a failed test can run alone; "" is the whole job
	output  form
	alone   string        // jobs with the same key never run at the same time
	user    bool          // it runs as an ordinary user
	cost    time.Duration // expected
}

// chooser adds the choice of tests to a command and its environment.
type chooser func(command, env, tests []string) ([]string, []string)

// form is the form of a job's output.
type form int

const (
	events form = iota // of go test -json
	lines              // as go test without -json
)

// outcome is what became of a job.
type outcome struct {
	job      *job
	took     time.Duration
	cpu      time.Duration // of the processes that have ended
	err      error         // of the process
	tests    map[string]*testResult
	packages map[string]time.Duration // their times, in a job of several packages
	loose    []string                 // output that belongs to no test
	left     []string                 // what the job left behind
}

type testStatus string

const (
	running testStatus = "run"
	passed  testStatus = "pass"
	failed  testStatus = "fail"
	skipped testStatus = "skip"
)

// testResult is the result of one test, with the output of its subtests.
type testResult struct {
	name   string // with the package where the job has several
	status testStatus
	took   time.Duration
	output []string
	inner  []skip   // skipped subtests
	count  int      // tests that this result stands for, if it is not one
	flaky  *outcome // of the second run, if the test failed first and passed then
}

type skip struct{ name, reason string }

// most is the number of lines that are kept of a test or a job.
const most = 400

func keep(kept []string, line string) []string {
	if len(kept) >= 2*most {
		kept = slices.Clone(kept[len(kept)-most:])
	}
	return append(kept, line)
}

// start runs the job until it has ended, with only the given tests, or with all of its own.
func (j *job) start(ctx context.Context, w *workspace, only []string) *outcome {
	o := &outcome{job: j, tests: map[string]*testResult{}, packages: map[string]time.Duration{}}
	began := time.Now()
	defer func() { o.took = time.Since(began) }()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	scratch, err := w.scratch()
	if err != nil {
		o.err = err
		return o
	}
	defer os.RemoveAll(scratch)
	if only == nil {
		only = j.tests
	}
	command, env := j.command, append(os.Environ(), j.env...)
	if only != nil {
		command, env = j.choose(slices.Clone(command), env, only)
	}
	self, err := os.Executable()
	if err != nil {
		o.err = err
		return o
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"supervise", scratch}, command...)...)
	cmd.Dir = filepath.Join(w.top, j.dir)
	cmd.Env = append(env, "TMPDIR="+scratch, "RAMET_TEST_BUILD="+build())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM} // Ctrl-C reaches this process alone
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	reader, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = writer, writer
	read := make(chan struct{})
	go func() {
		defer close(read)
		o.read(reader)
	}()
	o.err = cmd.Run()
	if cmd.ProcessState != nil {
		o.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if ctx.Err() != nil {
		o.err = fmt.Errorf("ended after %s: %w", time.Since(began).Round(time.Second), context.Cause(ctx))
	}
	_ = writer.Close() // a pipe's Close does not fail
	<-read
	o.settle(only)
	return o
}

// build says which images tests may make: RAMET_TEST_BUILD, or those that take little time.
func build() string {
	if b := os.Getenv("RAMET_TEST_BUILD"); b != "" {
		return b
	}
	return "1"
}

func (o *outcome) read(from io.Reader) {
	in := bufio.NewReader(from)
	parser := &parser{outcome: o}
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			parser.line(strings.TrimSuffix(line, "\n"))
		}
		if err != nil {
			return
		}
	}
}

// settle decides about tests whose end was not reported, and about a process that failed
// although all of its tests passed.
func (o *outcome) settle(only []string) {
	for _, t := range o.tests {
		if t.status == running {
			t.status = failed
			t.output = append(t.output, "the process ended during this test")
		}
	}
	if outer := o.tests[asUser]; outer != nil && o.job.user { // its failure is that of the tests in it
		delete(o.tests, asUser)
		if outer.status != passed && len(o.failed()) == 0 {
			o.tests[asUser] = outer
		}
	}
	if o.err == nil && len(o.left) > 0 {
		o.err = errors.New("the job left something behind")
	}
	if o.err != nil && len(o.failed()) == 0 {
		o.tests[""] = &testResult{status: failed, output: append(slices.Clone(o.loose), o.err.Error())}
	}
	if o.err == nil || o.job.output != events {
		return
	}
	for _, name := range only { // a test before it ended the process
		if o.tests[name] == nil {
			o.tests[name] = &testResult{name: name, status: failed, output: []string{"the process ended before this test"}}
		}
	}
}

func (o *outcome) failed() []*testResult {
	var all []*testResult
	for _, t := range o.tests {
		if t.status == failed {
			all = append(all, t)
		}
	}
	slices.SortFunc(all, func(a, b *testResult) int { return strings.Compare(a.name, b.name) })
	return all
}

// pattern matches exactly the named tests.
func pattern(tests []string) string {
	quoted := make([]string, len(tests))
	for i, t := range tests {
		quoted[i] = regexp.QuoteMeta(t)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}
