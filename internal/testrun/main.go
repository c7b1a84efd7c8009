package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"
)

// options are what the caller chose.
type options struct {
	jobs   int            // that run at the same time
	part   *regexp.Regexp // names of jobs, or nil
	run    *regexp.Regexp // names of tests, or nil
	lint   bool           // with gofmt and staticcheck
	record bool           // write times.txt after a run that passed
	count  int            // repetitions of one test; 0 for a whole run
	load   int            // busy processes beside the repetitions
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "supervise" {
		os.Exit(supervise(os.Args[2:]))
	}
	o, err := parse(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
		os.Exit(2)
	}
	// The first signal ends the jobs, and a second one this process.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	passed, err := runAll(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testrun:", err)
	}
	if err != nil || !passed {
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	o := options{}
	f := flag.NewFlagSet("testrun", flag.ContinueOnError)
	f.IntVar(&o.jobs, "jobs", runtime.NumCPU()+1, "`number` of jobs that run at the same time")
	f.BoolVar(&o.lint, "lint", false, "run gofmt and staticcheck too")
	f.BoolVar(&o.record, "record", false, "record the times of tests after a run that passed")
	f.IntVar(&o.count, "count", 0, "run the test named by -run this `number` of times, and nothing else")
	f.IntVar(&o.load, "load", 2*runtime.NumCPU(), "`number` of busy processes beside the test of -count")
	part := f.String("part", "", "`regexp` of jobs to run, as test/fork or sdk/python")
	run := f.String("run", "", "`regexp` of tests to run")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	var err error
	if *part != "" {
		if o.part, err = regexp.Compile(*part); err != nil {
			return o, fmt.Errorf("-part: %w", err)
		}
	}
	if *run != "" {
		if o.run, err = regexp.Compile(*run); err != nil {
			return o, fmt.Errorf("-run: %w", err)
		}
	}
	return o, cmp.Or(checkNumbers(o), checkRest(f.Args()))
}

func checkNumbers(o options) error {
	if o.jobs < 1 {
		return fmt.Errorf("-jobs is %d: use 1 or more", o.jobs)
	}
	if o.count < 0 || o.load < 0 {
		return errors.New("-count and -load cannot be negative")
	}
	if o.count > 0 && o.run == nil {
		return errors.New("-count needs -run: name the test to repeat")
	}
	return nil
}

func checkRest(rest []string) error {
	if len(rest) > 0 {
		return fmt.Errorf("unexpected argument %q", rest[0])
	}
	return nil
}

// runAll plans and runs the jobs, and reports whether all tests passed.
func runAll(ctx context.Context, o options, out io.Writer) (passed bool, err error) {
	w, err := openWorkspace()
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r := newReport(out, w.log)
	times, err := readTimes(w.timesFile())
	if err != nil {
		return false, err
	}
	p, err := makePlan(ctx, w, o, times)
	if err != nil {
		return false, err
	}
	if o.count > 0 {
		return repeat(ctx, w, p, o, r)
	}
	for _, reason := range p.skips {
		r.skip(reason)
	}
	s := scheduler{workspace: w, report: r, slots: o.jobs}
	outcomes := s.run(ctx, p.jobs)
	if ctx.Err() == nil {
		retry(ctx, w, outcomes, r)
	}
	passed = r.close(ctx, outcomes, time.Since(w.began))
	if passed && o.record && o.part == nil && o.run == nil {
		err = times.record(w.timesFile(), outcomes)
	}
	return passed, err
}
