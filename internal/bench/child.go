package bench

import (
	"context"
	"time"

	"ramet.dev/ramet/internal/workload"
)

const (
	// idleChildren sandboxes are watched together, for idleFor: one alone does
	// too little to be measured.
	idleChildren = 20
	idleFor      = 5 * time.Second
	// untouchedChildren are made at once to see what an idle child costs.
	untouchedChildren = 20
)

// fork makes n children, which answer a command each.
func (b *bench) fork(ctx context.Context, ref string, n int) (sample, error) {
	return b.children(ctx, n, func(ctx context.Context) (*workload.Forked, error) { return b.s.Fork(ctx, ref, n, "") })
}

// children measures a fork or restore and destroys what it made.
func (b *bench) children(ctx context.Context, n int, makeAll func(context.Context) (*workload.Forked, error)) (sample, error) {
	c, err := b.meter().start(ctx)
	if err != nil {
		return nil, err
	}
	f, err := makeAll(ctx)
	if err != nil {
		return nil, err
	}
	s := times(f)
	if err := c.stop(ctx, s, n, 0); err != nil {
		return nil, err
	}
	if s[privateMiB], err = b.s.PrivateMiB(ctx, f.IDs()); err != nil {
		return nil, err
	}
	return s, b.s.Destroy(ctx, f.IDs()...)
}

func times(f *workload.Forked) sample {
	return sample{pauseMS: millis(f.Pause), returnMS: millis(f.Return), firstExecMS: millis(f.FirstExec), allReadyMS: millis(f.AllReady)}
}

// untouched makes children that run no command: what the fork alone costs, and
// what an idle child holds.
func (b *bench) untouched(ctx context.Context, ref string) (sample, error) {
	s, err := b.children(ctx, untouchedChildren, func(ctx context.Context) (*workload.Forked, error) {
		return b.s.ForkUntouched(ctx, ref, untouchedChildren)
	})
	delete(s, firstExecMS)
	delete(s, allReadyMS)
	return s, err
}

// written makes a child of a source that has just written to all of its array: what it
// may write to without a copy, a fork has to take from it.
func (b *bench) written(ctx context.Context, ref string) (sample, error) {
	if _, err := b.s.Ask(ctx, ref, "data += 1\nprint(len(data))"); err != nil {
		return nil, err
	}
	return b.fork(ctx, ref, 1)
}

// ask makes a child whose first answer is that of the process it inherited,
// which so has to write to memory it shares. A second question is the round trip.
func (b *bench) ask(ctx context.Context, ref string) (sample, error) {
	c, err := b.meter().start(ctx)
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
	if err := c.stop(ctx, s, 1, 0); err != nil {
		return nil, err
	}
	if s[privateMiB], err = b.s.PrivateMiB(ctx, []string{id}); err != nil {
		return nil, err
	}
	return s, b.s.Destroy(ctx, id)
}

// idle counts the processor time of sandboxes that were asked for nothing. The
// daemon and its pool are counted with them.
func (b *bench) idle(ctx context.Context, ref string) (sample, error) {
	f, err := b.s.Fork(ctx, ref, idleChildren, "")
	if err != nil {
		return nil, err
	}
	c, err := b.meter().start(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(idleFor):
	}
	used, err := c.trees()
	if err != nil {
		return nil, err
	}
	const source = 1
	share := float64(used-c.cpu) / float64(time.Since(began)) / (idleChildren + source)
	return sample{idlePercent: 100 * share, workMS: c.work}, b.s.Destroy(ctx, f.IDs()...)
}
