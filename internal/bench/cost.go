package bench

import (
	"context"
	"time"

	"ramet.dev/ramet/internal/observe/procfs"
)

// pace says how to wait for processes to settle.
type pace struct {
	// poll is how often to look.
	poll time.Duration
	// quiet is how long they must have done next to nothing.
	quiet time.Duration
	// most bounds the wait, for processes that are never quiet.
	most time.Duration
}

// realPace suits a daemon that waits for 150 ms before it starts new sentries for
// those that were taken from its pool.
var realPace = pace{poll: 100 * time.Millisecond, quiet: 400 * time.Millisecond, most: 5 * time.Second}

const (
	// quietShare and quietShareEach are next to nothing, of one processor: for
	// all processes, and more for each new sandbox, since the wait is counted
	// and must not go on because a hundred of them tick over.
	quietShare     = 0.03
	quietShareEach = 0.003
	// hostMemoryFrom is the least number of children for which the machine's
	// own memory figure is used: it moves by some tens of MiB for reasons that
	// have nothing to do with us.
	hostMemoryFrom = 20
)

// cost is what a number of children cost this machine.
//
// Processor time is that of all processes that have to do with them: the daemon
// or the runsc commands, the sandboxes, the processes in which guest code runs,
// and those that ended. It is taken from quiet to quiet, so that it has in it
// also what is done ahead and afterwards: the start of the sentries that replace
// those of the pool.
//
// Memory is counted twice and the larger figure is reported. One is what the
// daemon says of each child: pages that only it has. The other is by how much the
// machine's occupied memory grew, divided by the number of children. That one
// also has what the fork made the source copy, page tables and kernel stacks; but
// it has what everybody else on the machine did in the meantime as well, and so
// is only used for many children.
type cost struct {
	meter
	cpu    time.Duration
	memory int64
	work   float64 // what a piece of work took: see speed
}

// meter reads the processor time of the processes that are measured.
type meter struct {
	trees func() (time.Duration, error)
	pace  pace
	speed *speed
}

// start waits until the processes are quiet and starts to count.
func (m meter) start(ctx context.Context) (*cost, error) {
	c := &cost{meter: m}
	if err := c.settle(ctx, 0); err != nil {
		return nil, err
	}
	c.work = c.speed.sample()
	mem, err := procfs.ReadMemory()
	if err != nil {
		return nil, err
	}
	c.memory = mem.Occupied
	c.cpu, err = c.trees()
	return c, err
}

// stop waits for quiet and adds to s what n children cost since the start.
// besides is processor time that trees does not know.
func (c *cost) stop(ctx context.Context, s sample, n int, besides time.Duration) error {
	if err := c.settle(ctx, n); err != nil {
		return err
	}
	m, err := procfs.ReadMemory()
	if err != nil {
		return err
	}
	cpu, err := c.trees()
	if err != nil {
		return err
	}
	s[workMS] = c.work
	s[cpuMS] = millis(cpu-c.cpu+besides) / float64(n)
	if n >= hostMemoryFrom {
		s[hostPrivateMiB] = float64(m.Occupied-c.memory) / (1 << 20) / float64(n)
	}
	return nil
}

// settle waits until the processes, n new sandboxes among them, have been quiet
// for a while.
func (m meter) settle(ctx context.Context, n int) error {
	share := quietShare + quietShareEach*float64(n)
	ticker := time.NewTicker(m.pace.poll)
	defer ticker.Stop()
	began, last := time.Now(), time.Now()
	used, err := m.trees()
	if err != nil {
		return err
	}
	for quiet := time.Duration(0); quiet < m.pace.quiet && time.Since(began) < m.pace.most; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		now, err := m.trees()
		if err != nil {
			return err
		}
		passed := time.Since(last)
		if float64(now-used) < share*float64(passed) {
			quiet += passed
		} else {
			quiet = 0
		}
		used, last = now, time.Now()
	}
	return nil
}

// meter returns that of the daemon and its sandboxes.
func (b *bench) meter() meter {
	return meter{trees: func() (time.Duration, error) { return procfs.TreeCPU(b.daemon) }, pace: b.pace, speed: &b.speed}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
