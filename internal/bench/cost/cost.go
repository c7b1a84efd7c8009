package bench

import (
	"context"
	"time"

	"ramet.dev/ramet/internal/bench/speed"
	"ramet.dev/ramet/internal/observe/procfs"
)

// pace is the timing of the wait for idle processes.
type pace struct {
	// poll is the time between two readings.
	poll time.Duration
	// quiet is how long the processes must be idle.
	quiet time.Duration
	// most bounds the wait for processes that are never idle.
	most time.Duration
}

// realPace suits a daemon that waits for 150 ms before it starts new sentries for those that were
// taken from its pool.
var realPace = pace{poll: 100 * time.Millisecond, quiet: 400 * time.Millisecond, most: 5 * time.Second}

const (
	// quietShare and quietShareEach are the shares of one processor below which processes are
	// idle: for all together, and in addition for each new sandbox. The time of the wait is
	// measured too, and a hundred idle sandboxes must not prolong it.
	quietShare     = 0.03
	quietShareEach = 0.003
	// hostMemoryFrom is the number of children from which the memory of the machine is
	// used as a metric: it varies by some tens of MiB for reasons that
	// have nothing to do with the children.
	hostMemoryFrom = 20
)

// cost is the cost of a number of children on this machine.
//
// Processor time is that of all processes that work for them: the daemon or the runsc commands, the
// sandboxes, the processes in which guest code runs, and those that have ended. It is measured from
// idle to idle, so that it includes work that is done ahead and afterwards, such as the start of
// the sentries that replace those of the pool.
//
// Memory is measured in two ways, and the larger result is reported. One is the daemon's: the pages
// that only a child has. The other is the growth of the machine's occupied memory, divided by the
// number of children. It includes the pages that the source copied because of the fork, page tables
// and kernel stacks, but also everything that other programs did meanwhile. It is therefore used
// for many children only.
type cost struct {
	meter
	cpu    time.Duration
	memory int64
	work   float64 // milliseconds of a fixed piece of work: see speed
}

// meter reads the processor time of the processes that are measured.
type meter struct {
	trees func() (time.Duration, error)
	pace  pace
	speed *speed.Meter
}

// start waits until the processes are idle, and starts to measure.
func (m meter) start(ctx context.Context) (*cost, error) {
	c := &cost{meter: m}
	if err := c.settle(ctx, 0); err != nil {
		return nil, err
	}
	c.work = c.speed.Sample()
	mem, err := procfs.ReadMemory()
	if err != nil {
		return nil, err
	}
	c.memory = mem.Occupied
	c.cpu, err = c.trees()
	return c, err
}

// stop waits until the processes are idle, and adds the cost of n children since the start to s.
// besides is processor time that trees does not include.
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

// settle waits until the processes, with n new sandboxes among them, are idle.
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

// meter returns the meter of the daemon and its sandboxes.
func (b *bench) meter() meter {
	return meter{trees: func() (time.Duration, error) { return procfs.TreeCPU(b.daemon) }, pace: b.pace, speed: &b.speed}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
