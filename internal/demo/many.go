package demo

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/workload"
)

// firstSample is the sample that the first of many children is asked about.
const firstSample = 1000

// forkMany makes many children of the same source and checks the answer of each.
func (d *demo) forkMany(ctx context.Context) error {
	before, err := d.samples(ctx)
	if err != nil {
		return err
	}
	f, idle, err := d.forkInto(ctx, manyChildren, d.s.Name()+"-many")
	if err != nil {
		return err
	}
	d.hundred = f
	d.say("The same source again, into %d at once: paused for %.1f ms, all ready after %.2f s.", manyChildren, millis(f.Pause), f.AllReady.Seconds())
	began := time.Now()
	err = workload.Each(ctx, manyChildren, func(ctx context.Context, i int) error {
		return d.askOne(ctx, &f.Children[i], i, before[i])
	})
	if err != nil {
		return err
	}
	took := time.Since(began)
	busy, err := d.s.PrivateMiB(ctx, f.IDs())
	if err != nil {
		return err
	}
	after, err := d.samples(ctx)
	if err != nil {
		return err
	}
	for i := range before {
		if before[i] != after[i] {
			return fmt.Errorf("sample %d of the source was %v and is %v", firstSample+i, before[i], after[i])
		}
	}
	d.report.Answers = manyChildren
	d.say("Each was asked over its inherited server to add its own index to one sample of the array and to write there; %d of %d answers", manyChildren, manyChildren)
	d.say("were right, each under its own host name, in %.2f s. The source's samples are what they were.", took.Seconds())
	d.say("A child had %.1f MiB of its own before that line and %.1f MiB after it.", idle, busy)
	return nil
}

// samples returns the samples that the children are asked about.
func (d *demo) samples(ctx context.Context) ([]float64, error) {
	var values []float64
	program := fmt.Sprintf("print(json.dumps([float(x) for x in data[%d:%d]]))", firstSample, firstSample+manyChildren)
	if err := d.ask(ctx, d.source, program, &values); err != nil {
		return nil, err
	}
	if len(values) != manyChildren {
		return nil, fmt.Errorf("there are %d samples, not %d", len(values), manyChildren)
	}
	return values, nil
}

// askOne checks the identity of child i and the state that it has inherited.
func (d *demo) askOne(ctx context.Context, child *api.Sandbox, i int, sample float64) error {
	program := fmt.Sprintf("data[%d] += %d\nprint(plan, repr(float(data[%d])))", firstSample+i, i, firstSample+i)
	res, err := d.c.Processes.Exec(ctx, child.ID, api.ExecRequest{
		Shell: "hostname && exec " + workload.AskPath + " " + strconv.Itoa(workload.Port), Stdin: program,
	})
	if err != nil {
		return fmt.Errorf("child %d: %w", i+1, err)
	}
	want := fmt.Sprintf("%s %s", child.Identity.Hostname, d.best.Plan)
	fields := strings.Fields(res.Stdout)
	if len(fields) != 3 || strings.Join(fields[:2], " ") != want {
		return fmt.Errorf("child %d answered %q and %q, not %q and a number", i+1, res.Stdout, res.Stderr, want)
	}
	if got, err := strconv.ParseFloat(fields[2], 64); err != nil || got != sample+float64(i) {
		return fmt.Errorf("child %d answered %s, not %v", i+1, fields[2], sample+float64(i))
	}
	return nil
}

// cleanUp destroys the sandboxes of the demonstration, and checks that they are gone.
func (d *demo) cleanUp(ctx context.Context) error {
	if d.opts.Keep {
		if err := d.s.Destroy(ctx, d.hundred.IDs()...); err != nil {
			return err
		}
		d.say("The %d children were destroyed. %q and the other children of the first fork were kept: see 'ramet tree'.", manyChildren, d.s.Name())
		return nil
	}
	began := time.Now()
	all, err := d.s.Living(ctx)
	if err != nil {
		return err
	}
	if err := d.s.Close(ctx); err != nil {
		return err
	}
	left, err := d.s.Living(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("%d sandboxes are left", len(left))
	}
	d.say("All %d sandboxes were destroyed in %.2f s; none is left.", len(all), time.Since(began).Seconds())
	return nil
}
