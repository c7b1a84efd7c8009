package cost

import (
	"context"
	"time"

	"ramet.dev/ramet/internal/bench/speed"
	"ramet.dev/ramet/internal/observe/procfs"
)

// Pace is the timing of the wait for idle processes.
type Pace struct {
	// Poll is the time between two readings.
	Poll time.Duration
	// Quiet is how long the processes must be idle.
	Quiet time.Duration
	// Most bounds the wait for processes that are never idle.
	Most time.Duration
}

// Real suits a daemon that waits for 150 ms before it starts new sentries for those that were
// taken from its pool.
var Real = Pace{Poll: 100 * time.Millisecond, Quiet: 400 * time.Millisecond, Most: 5 * time.Second}

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

// Cost is the cost of a number of children on this machine.
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
type Cost struct {
	Meter
	CPU    time.Duration // at the start
	Memory int64         // likewise
	Work   float64       // milliseconds of a fixed piece of work: see speed
}

// Meter reads the processor time of the processes that are measured.
type Meter struct {
	Trees func() (time.Duration, error)
	Pace  Pace
	Speed *speed.Meter
}

// Start waits until the processes are idle, and starts to measure.
func (m Meter) Start(ctx context.Context) (*Cost, error) {
	c := &Cost{Meter: m}
	if err := c.Settle(ctx, 0); err != nil {
		return nil, err
	}
	c.Work = c.Speed.Sample()
	mem, err := procfs.ReadMemory()
	if err != nil {
		return nil, err
	}
	c.Memory = mem.Occupied
	c.CPU, err = c.Trees()
	return c, err
}

// Spent is what a child cost.
type Spent struct {
	CPUMS float64
	// HostMiB is by the memory of the machine, and nil for few children.
	HostMiB *float64
}

// Stop waits until the processes are idle, and returns the cost of each of n children since the start.
// besides is processor time that Trees does not include.
func (c *Cost) Stop(ctx context.Context, n int, besides time.Duration) (spent Spent, err error) {
	if err := c.Settle(ctx, n); err != nil {
		return spent, err
	}
	m, err := procfs.ReadMemory()
	if err != nil {
		return spent, err
	}
	cpu, err := c.Trees()
	if err != nil {
		return spent, err
	}
	spent.CPUMS = float64((cpu - c.CPU + besides).Microseconds()) / 1000 / float64(n)
	if n >= hostMemoryFrom {
		mib := float64(m.Occupied-c.Memory) / (1 << 20) / float64(n)
		spent.HostMiB = &mib
	}
	return spent, nil
}

// Settle waits until the processes, with n new sandboxes among them, are idle.
func (m Meter) Settle(ctx context.Context, n int) error {
	share := quietShare + quietShareEach*float64(n)
	ticker := time.NewTicker(m.Pace.Poll)
	defer ticker.Stop()
	began, last := time.Now(), time.Now()
	used, err := m.Trees()
	if err != nil {
		return err
	}
	for quiet := time.Duration(0); quiet < m.Pace.Quiet && time.Since(began) < m.Pace.Most; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		now, err := m.Trees()
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
