package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/workload"
)

// The size of the demonstration.
const (
	arrayMiB     = 256
	manyChildren = 100
)

// Options are the choices of a user.
type Options struct {
	// Image must have bash, python3 and numpy. If it is workload.PythonImage
	// and missing, it is built.
	Image string
	// Keep leaves the source and its first children running.
	Keep bool
	// JSON prints the Report and nothing else.
	JSON bool
}

// demo is one run.
type demo struct {
	c       *client.Client
	s       *workload.Session
	opts    Options
	out     io.Writer // the narration; discarded with JSON
	began   time.Time
	report  Report
	source  string  // id
	pid     int     // of the warm process
	first   float64 // data[0] in the source, before any plan
	forked  *workload.Forked
	best    Outcome
	hundred *workload.Forked
}

// step is a part of the demonstration. Errors begin with its title.
type step struct {
	title string
	do    func(ctx context.Context) error
}

func (d *demo) steps() []step {
	return []step{
		{"Image", d.image},
		{"Create", d.create},
		{"Warm up", d.warm},
		{"Install", d.install},
		{"Fork", d.fork},
		{"Diverge", d.diverge},
		{"Nobody else noticed", d.isolated},
		{"Compare", d.compare},
		{"Promote", d.promote},
		{fmt.Sprintf("Fork %d", manyChildren), d.forkMany},
		{"Clean up", d.cleanUp},
	}
}

// Run runs the demonstration against a daemon and writes the narration to out. If a step fails, the
// error names it. All sandboxes are destroyed in the end, also when ctx is cancelled.
func Run(ctx context.Context, c *client.Client, out io.Writer, opts Options) (err error) {
	d := &demo{c: c, s: workload.Open(c, "demo"), opts: opts, out: out, began: time.Now()}
	if opts.JSON {
		d.out = io.Discard
	}
	done := false
	defer func() {
		if !done { // the last step cleans up
			err = errors.Join(err, d.s.Close(ctx))
		}
	}()
	d.say("Ramet forks live sandboxes. This is done on this machine, now; every number below was just measured.")
	for i, s := range d.steps() {
		d.say("\n%d. %s", i+1, s.title)
		began := time.Now()
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("demo: %s: %w", s.title, err)
		}
		d.report.Steps = append(d.report.Steps, Step{Name: s.title, MS: millis(time.Since(began))})
	}
	done = true
	return d.finish(out)
}

// finish writes the end of the narration.
func (d *demo) finish(out io.Writer) error {
	d.report.TotalMS = millis(time.Since(d.began))
	if d.opts.JSON {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(d.report); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
		return nil
	}
	d.say("")
	if err := writeForks(d.out, d.report.Forks); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	d.say("\nTimes are counted from the call; ready means that a command was answered. Done in %.1f s.", time.Since(d.began).Seconds())
	return nil
}

// say writes a paragraph. finish reports errors of out.
func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// ask runs a program in the warm process of a sandbox and decodes its answer.
func (d *demo) ask(ctx context.Context, ref, program string, answer any) error {
	text, err := d.s.Ask(ctx, ref, program)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(text), answer); err != nil {
		return fmt.Errorf("the answer %.100q is not understood: %w", text, err)
	}
	return nil
}
