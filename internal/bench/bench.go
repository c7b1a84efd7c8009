package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/bench/cost"
	"ramet.dev/ramet/internal/bench/first"
	"ramet.dev/ramet/internal/bench/machine"
	"ramet.dev/ramet/internal/bench/speed"
	"ramet.dev/ramet/internal/bench/transfer"
	"ramet.dev/ramet/internal/engine/idlepoll"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/workload"
)

// The default number of runs of each case.
const (
	defaultRuns = 5
	quickRuns   = 1
)

// Options are the choices of a user.
type Options struct {
	// Runs is the number of runs of each case; 0 is the default.
	Runs int
	// Quick leaves out cases without a target, and runs the others once.
	Quick bool
	// Only names the cases to run; empty for all.
	Only []string
	// Runsc is the path of the runsc to compare with; empty for none.
	Runsc string
	// JSON prints the Report as JSON.
	JSON bool
	// Fresh starts another daemon, if it is not nil.
	Fresh first.Start
}

// bench is one run.
type bench struct {
	c      *client.Client
	s      *workload.Session
	opts   Options
	log    io.Writer // progress
	daemon int       // its process
	pace   cost.Pace
	hold   func() (release func() error, err error) // makes idle processors poll
	speed  speed.Meter
	stream transfer.Transfer
	report Report
}

// Run measures against a daemon on this machine, and writes the report to out and progress to log.
// It takes minutes. It destroys all that it made, also when ctx is cancelled. A missed target is
// not an error.
func Run(ctx context.Context, c *client.Client, out, log io.Writer, opts Options) error {
	return run(ctx, c, out, log, opts, cost.Real)
}

func run(ctx context.Context, c *client.Client, out, log io.Writer, opts Options, p cost.Pace) (err error) {
	if opts.Runs < 0 {
		return api.Invalid("runs", "%d is not a number of runs", opts.Runs)
	}
	for _, name := range opts.Only {
		if !slices.Contains(cases, name) {
			return api.Invalid("only", "%q is none of %s", name, strings.Join(cases, ", "))
		}
	}
	if opts.Runs == 0 {
		opts.Runs = defaultRuns
		if opts.Quick {
			opts.Runs = quickRuns
		}
	}
	if opts.JSON {
		log = io.Discard
	}
	health, err := c.Health(ctx)
	if err != nil {
		return err
	}
	b := &bench{c: c, s: workload.Open(c, "bench"), opts: opts, log: log, daemon: health.PID, pace: p, hold: idlepoll.Hold, stream: transfer.Transfer{Client: c, Bytes: streamBytes}}
	b.report.Notes = []string{}
	if b.report.Machine, err = machine.This(health.Version); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.s.Close(ctx)) }()
	if err := b.measure(ctx); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	m := &b.report.Machine
	m.LoadAfter, m.Seconds = machine.Load(), time.Since(m.Started).Seconds()
	m.WorkBestMS, m.WorkMS = b.speed.Best()
	b.report.Targets = targets(b.report.Rows)
	if len(opts.Only) > 0 { // those of other cases say nothing
		b.report.Targets = slices.DeleteFunc(b.report.Targets, func(t Target) bool { return t.Verdict == notMeasured })
	}
	if !opts.JSON {
		return b.report.write(out)
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(b.report); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// measure runs all cases.
func (b *bench) measure(ctx context.Context) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	before, err := machine.Used(b.daemon)
	if err != nil {
		return err
	}
	if err := b.single(ctx); err != nil {
		return err
	}
	for _, p := range plans(b.opts.Quick) {
		if err := b.source(ctx, p); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		name string
		run  func(context.Context) error
	}{{caseInARow, b.inARow}, {caseCold, func(ctx context.Context) error { return coldFork(ctx, b) }}, {caseFiles, b.files}, {caseStreams, b.streams}, {caseAttach, b.attaches}, {caseNetwork, netBench{b}.network}, {caseWork, workBench{b}.work}, {caseThousand, programBench{b}.thousand}} {
		if !b.wants(c.name) {
			continue
		}
		if err := c.run(ctx); err != nil {
			return err
		}
	}
	if err := (programBench{b}).all(ctx); err != nil {
		return err
	}
	after, err := machine.Used(b.daemon)
	if err != nil {
		return err
	}
	b.report.Machine.OthersPercent = after.OthersSince(before)
	if !b.wants(caseRunsc) {
		return nil
	}
	return b.compare(ctx)
}

// wants reports whether a case is to be run.
func (b *bench) wants(name string) bool {
	return len(b.opts.Only) == 0 || slices.Contains(b.opts.Only, name)
}

// prepare makes the image, and checks the machine for what would disturb the measurements.
func (b *bench) prepare(ctx context.Context) error {
	phases := map[string]bool{}
	_, err := workload.Image(ctx, b.c, workload.PythonImage, func(p api.Progress) {
		if !phases[p.Phase] {
			phases[p.Phase] = true
			b.progress("build image: %s", p.Phase)
		}
	})
	if err != nil {
		return err
	}
	others, err := b.c.Sandboxes.List(ctx, api.ListFilter{State: api.StateRunning})
	if err != nil {
		return err
	}
	if len(others) > 0 {
		b.note("%d other sandboxes of this daemon were running: their processor time is in the metrics", len(others))
	}
	if procfs.Visible(b.daemon) {
		return nil
	}
	return api.Errorf(api.CodeUnsupported, "the daemon, process %d, is not on this machine or cannot be seen: its memory and processor time cannot be measured", b.daemon)
}

// add adds a row for the samples of a case.
func (b *bench) add(k kind, samples []sample) {
	b.report.Rows = append(b.report.Rows, newRow(k, samples))
}

// note adds a remark to the report.
func (b *bench) note(format string, args ...any) {
	b.report.Notes = append(b.report.Notes, fmt.Sprintf(format, args...))
}

// progress prints which case is measured.
func (b *bench) progress(format string, args ...any) { fmt.Fprintf(b.log, format+"\n", args...) }

// repeat runs a case as many times as the options say, and adds its row.
func (b *bench) repeat(ctx context.Context, k kind, run func(ctx context.Context) (sample, error)) error {
	b.progress("%s: source %d MiB, n %d, files %d", k.name, k.source, k.n, k.files)
	var samples []sample
	for range b.opts.Runs {
		s, err := run(ctx)
		if err != nil {
			return fmt.Errorf("%s of a source of %d MiB, n %d: %w", k.name, k.source, k.n, err)
		}
		samples = append(samples, s)
	}
	b.add(k, samples)
	return nil
}
