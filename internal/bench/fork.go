package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"ramet.dev/ramet/internal/hostuse"
	"ramet.dev/ramet/internal/workload"
)

const (
	// idleChildren sandboxes are watched together, for idleFor: one alone does
	// too little to be measured.
	idleChildren = 20
	idleFor      = 5 * time.Second
	// untouchedChildren are made at once to see what an idle child costs.
	untouchedChildren = 20
	// childMiB is a guess of what a child takes, to leave out what would not
	// fit into this machine.
	childMiB = 40
	// manyFiles is the number of files of the source that has files, each of
	// fileBytes.
	manyFiles = 10_000
	fileBytes = 20 << 10
)

// plan is what is measured of one source.
type plan struct {
	mib, files int
	children   []int
	// untouched, ask, idle and disk are further cases of this source; disk has
	// the number of sandboxes that are restored at once.
	untouched, ask, idle bool
	disk                 []int
}

func plans(quick bool) []plan {
	if quick {
		return []plan{
			{mib: sourceSmall, children: []int{1, 5, 20, 100}, untouched: true, idle: true},
			{mib: sourceMedium, children: []int{20}, ask: true, disk: []int{1}},
			{mib: sourceLarge, children: []int{1, 20}, untouched: true},
		}
	}
	return []plan{
		{mib: sourceSmall, children: []int{1, 5, 20, 100}, untouched: true, ask: true, idle: true, disk: []int{1}},
		{mib: sourceMedium, children: []int{1, 5, 20, 100}, untouched: true, ask: true, disk: []int{1, 20}},
		{mib: sourceLarge, children: []int{1, 5, 20, 100}, untouched: true, ask: true, disk: []int{1}},
		{mib: sourceSmall, files: manyFiles, children: []int{1, 5}},
	}
}

// source makes a warm sandbox and measures the cases of p with it.
func (b *bench) source(ctx context.Context, p plan) error {
	need := int64(p.mib + childMiB*max(1, last(p.children)))
	if m, err := hostuse.ReadMemory(); err != nil {
		return err
	} else if m.Available>>20 < need {
		b.note("the source of %d MiB was left out: it and its children need about %d MiB of memory, %d MiB are available", p.mib, need, m.Available>>20)
		return nil
	}
	b.progress("warm up a source of %d MiB with %d files", p.mib, p.files)
	ref, err := b.warm(ctx, p.mib, p.files)
	if err != nil {
		return fmt.Errorf("warm up a source of %d MiB: %w", p.mib, err)
	}
	for _, n := range p.children {
		k := kind{name: "fork", source: p.mib, n: n, files: p.files}
		if err := b.repeat(ctx, k, func(ctx context.Context) (sample, error) { return b.fork(ctx, ref, n) }); err != nil {
			return err
		}
	}
	for _, extra := range []struct {
		want bool
		kind kind
		run  func(context.Context, string) (sample, error)
	}{
		{p.untouched, kind{name: "fork-untouched", n: untouchedChildren}, b.untouched},
		{p.ask, kind{name: "fork-ask", n: 1}, b.ask},
		{p.idle, kind{name: "idle", n: idleChildren}, b.idle},
	} {
		if !extra.want {
			continue
		}
		extra.kind.source, extra.kind.files = p.mib, p.files
		if err := b.repeat(ctx, extra.kind, func(ctx context.Context) (sample, error) { return extra.run(ctx, ref) }); err != nil {
			return err
		}
	}
	for _, n := range p.disk {
		if err := b.disk(ctx, ref, p, n); err != nil {
			return err
		}
	}
	return b.s.Destroy(ctx, ref)
}

func last(list []int) int {
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1]
}

// warm makes a source.
func (b *bench) warm(ctx context.Context, mib, files int) (string, error) {
	sb, err := b.s.Create(ctx, workload.PythonImage, "")
	if err != nil {
		return "", err
	}
	if err := b.s.Warm(ctx, sb.ID); err != nil {
		return "", err
	}
	program := arrayProgram(mib)
	if files > 0 {
		program += fmt.Sprintf(`import os
os.mkdir("/root/files")
for i in range(%d):
    with open("/root/files/%%d" %% i, "wb") as f:
        f.write(os.urandom(%d))
`, files, fileBytes)
	}
	_, err = b.s.Ask(ctx, sb.ID, program+"print(len(data))")
	return sb.ID, err
}

// arrayProgram makes the array of a source. Every page of it is written.
func arrayProgram(mib int) string {
	if mib == sourceSmall {
		mib = 0
	}
	return fmt.Sprintf("data = np.ones(%d)\n", mib<<20/8)
}

// fork makes n children, which answer a command each.
func (b *bench) fork(ctx context.Context, ref string, n int) (sample, error) {
	return b.children(ctx, n, func(ctx context.Context) (*workload.Forked, error) { return b.s.Fork(ctx, ref, n, "") })
}

// children measures a fork or restore and destroys what it made.
func (b *bench) children(ctx context.Context, n int, makeAll func(context.Context) (*workload.Forked, error)) (sample, error) {
	c, err := startCost(ctx, b.daemonTree)
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

// ask makes a child whose first answer is that of the process it inherited,
// which so has to write to memory it shares. A second question is the round trip.
func (b *bench) ask(ctx context.Context, ref string) (sample, error) {
	c, err := startCost(ctx, b.daemonTree)
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
	c, err := startCost(ctx, b.daemonTree)
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
	return sample{idlePercent: 100 * share}, b.s.Destroy(ctx, f.IDs()...)
}

// inARow forks a new source again and again without a rest. All children stay,
// and in between the source writes to its memory: whatever a fork leaves behind
// is there when the next one comes.
func (b *bench) inARow(ctx context.Context) error {
	samples := make([][]sample, lastInARow)
	for run := range b.opts.Runs {
		b.progress("%d forks in a row, run %d of %d", lastInARow, run+1, b.opts.Runs)
		ref, err := b.warm(ctx, sourceSmall, 0)
		if err != nil {
			return err
		}
		if _, err := startCost(ctx, b.daemonTree); err != nil {
			return err
		}
		ids := []string{ref}
		for i := range samples {
			if _, err := b.s.Ask(ctx, ref, "kept = [str(n) for n in range(10000)]\nprint("+strconv.Itoa(i)+")"); err != nil {
				return err
			}
			f, err := b.s.Fork(ctx, ref, 1, "")
			if err != nil {
				return fmt.Errorf("fork %d in a row: %w", i+1, err)
			}
			samples[i] = append(samples[i], times(f))
			ids = append(ids, f.IDs()...)
		}
		if err := b.s.Destroy(ctx, ids...); err != nil {
			return err
		}
	}
	for i := range samples {
		b.add(kind{name: inARow(i + 1), source: sourceSmall, n: 1}, samples[i])
	}
	return nil
}

// disk writes snapshots to disk and restores n sandboxes of each.
func (b *bench) disk(ctx context.Context, ref string, p plan, n int) error {
	b.progress("snapshot-disk and restore-disk: source %d MiB, n %d", p.mib, n)
	var snapshots, restores []sample
	for range b.opts.Runs {
		c, err := startCost(ctx, b.daemonTree)
		if err != nil {
			return err
		}
		began := time.Now()
		snap, err := b.s.Snapshot(ctx, ref)
		if err != nil {
			return fmt.Errorf("snapshot-disk: %w", err)
		}
		s := sample{pauseMS: snap.PauseMS, returnMS: millis(time.Since(began))}
		if err := c.stop(ctx, s, 1, 0); err != nil {
			return err
		}
		snapshots = append(snapshots, s)
		r, err := b.children(ctx, n, func(ctx context.Context) (*workload.Forked, error) { return b.s.Restore(ctx, snap.ID, n) })
		if err != nil {
			return fmt.Errorf("restore-disk: %w", err)
		}
		delete(r, pauseMS) // nothing stands still
		restores = append(restores, r)
		if err := b.c.DeleteSnapshot(ctx, snap.ID); err != nil {
			return err
		}
	}
	if n == 1 {
		b.add(kind{name: "snapshot-disk", source: p.mib, n: 1, files: p.files}, snapshots)
	}
	b.add(kind{name: "restore-disk", source: p.mib, n: n, files: p.files}, restores)
	return nil
}
