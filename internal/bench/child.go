package bench

import (
	"context"
	"time"

	"ramet.dev/ramet/internal/bench/cost"
	"ramet.dev/ramet/internal/observe/procfs"
	"ramet.dev/ramet/internal/workload"
)

const (
	// idleChildren is the number of sandboxes that are measured together for idleFor: one alone
	// uses too little to be measured.
	idleChildren = 20
	idleFor      = 5 * time.Second
	// untouchedChildren is the number of children of the fork that shows the cost of an idle child.
	untouchedChildren = 20
	// exploredChildren is the number of attempts of the exploration that a fork into as many, with a
	// command in each, is compared with.
	exploredChildren = 100
	coldChildren     = 100 // of the first fork of a daemon
)

// fork makes n children, each of which answers a command.
func (b *bench) fork(ctx context.Context, ref string, n int) (sample, error) {
	return b.children(ctx, n, func(ctx context.Context) (*workload.Forked, error) { return b.s.Fork(ctx, ref, n, "") })
}

// children measures a fork or restore, and destroys the new sandboxes.
func (b *bench) children(ctx context.Context, n int, makeAll func(context.Context) (*workload.Forked, error)) (sample, error) {
	c, err := b.meter().Start(ctx)
	if err != nil {
		return nil, err
	}
	f, err := makeAll(ctx)
	if err != nil {
		return nil, err
	}
	s := times(f)
	if err := stop(ctx, c, s, n, 0); err != nil {
		return nil, err
	}
	if s[privateMiB], err = b.s.PrivateMiB(ctx, f.IDs()); err != nil {
		return nil, err
	}
	return s, b.s.Destroy(ctx, f.IDs()...)
}

// explore makes children by one exploration, which runs a command in each.
func (b *bench) explore(ctx context.Context, ref string) (sample, error) {
	s, err := b.children(ctx, exploredChildren, func(ctx context.Context) (*workload.Forked, error) { return b.s.Explore(ctx, ref, exploredChildren) })
	delete(s, pauseMS)
	delete(s, returnMS)
	delete(s, firstExecMS)
	return s, err
}

// meter returns the meter of the daemon and its sandboxes.
func (b *bench) meter() cost.Meter {
	return cost.Meter{Trees: func() (time.Duration, error) { return procfs.TreeCPU(b.daemon) }, Pace: b.pace, Speed: &b.speed}
}

// stop adds the cost of n children to s.
func stop(ctx context.Context, c *cost.Cost, s sample, n int, besides time.Duration) error {
	spent, err := c.Stop(ctx, n, besides)
	if err != nil {
		return err
	}
	s[workMS], s[cpuMS] = c.Work, spent.CPUMS
	if spent.HostMiB != nil {
		s[hostPrivateMiB] = *spent.HostMiB
	}
	return nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func times(f *workload.Forked) sample {
	return sample{pauseMS: millis(f.Pause), returnMS: millis(f.Return), firstExecMS: millis(f.FirstExec), allReadyMS: millis(f.AllReady)}
}

// untouched makes children that run no command. It shows the cost of the fork alone, and the memory
// of an idle child.
func (b *bench) untouched(ctx context.Context, ref string) (sample, error) {
	s, err := b.children(ctx, untouchedChildren, func(ctx context.Context) (*workload.Forked, error) {
		return b.s.ForkUntouched(ctx, ref, untouchedChildren)
	})
	delete(s, firstExecMS)
	delete(s, allReadyMS)
	return s, err
}

// written makes a child of a source that has just written to all of its array. The fork has to make
// all of these pages copy-on-write again.
func (b *bench) written(ctx context.Context, ref string) (sample, error) {
	if _, err := b.s.Ask(ctx, ref, "data += 1\nprint(len(data))"); err != nil {
		return nil, err
	}
	return b.fork(ctx, ref, 1)
}

// ask makes a child, and asks the process that it inherited, which has to write to shared memory to
// answer. A second question measures the round trip.
func (b *bench) ask(ctx context.Context, ref string) (sample, error) {
	c, err := b.meter().Start(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	f, err := b.s.ForkUntouched(ctx, ref, 1)
	if err != nil {
		return nil, err
	}
	id := f.Children[0].ID
	s := sample{pauseMS: millis(f.Pause), returnMS: millis(f.Return)}
	const question = "print(len(data))"
	if _, err := b.s.Ask(ctx, id, question); err != nil {
		return nil, err
	}
	s[firstExecMS] = millis(time.Since(began))
	s[allReadyMS] = s[firstExecMS]
	again := time.Now()
	if _, err := b.s.Ask(ctx, id, question); err != nil {
		return nil, err
	}
	s[roundtripMS] = millis(time.Since(again))
	if err := stop(ctx, c, s, 1, 0); err != nil {
		return nil, err
	}
	if s[privateMiB], err = b.s.PrivateMiB(ctx, []string{id}); err != nil {
		return nil, err
	}
	return s, b.s.Destroy(ctx, id)
}

// idle measures the processor time of idle sandboxes. It includes that of the daemon and its pool.
func (b *bench) idle(ctx context.Context, ref string) (sample, error) {
	f, err := b.s.Fork(ctx, ref, idleChildren, "")
	if err != nil {
		return nil, err
	}
	c, err := b.meter().Start(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(idleFor):
	}
	used, err := c.Trees()
	if err != nil {
		return nil, err
	}
	const source = 1
	share := float64(used-c.CPU) / float64(time.Since(began)) / (idleChildren + source)
	return sample{idlePercent: 100 * share, workMS: c.Work}, b.s.Destroy(ctx, f.IDs()...)
}
