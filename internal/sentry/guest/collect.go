package guest

import (
	"math"
	"runtime"
	"runtime/debug"
	"sync"
)

// gcPercent is how much garbage a sandbox may have, in percent of what lives. Less
// saves a MiB or two, but what lives is so little that a busy sandbox would collect
// all the time, beside guest code that waits for the same processors: with 50, an
// exec took an eighth more processor time than with 100. More saves nothing further.
const gcPercent = 100

// collector decides when this process collects garbage: not in a freeze, whose
// pause it would prolong by more than all else, and not before the first freeze
// or settle, as hardly anything is worth it. The process starts with collections off.
type collector struct {
	mu sync.Mutex // held in a freeze
}

// Until it settles, a process collects garbage only if it has this much memory, in MiB:
// a guest that does nothing but start processes can make 100 MiB of it in a second. It is
// less where the sandbox's limit is small, and never so little that it would collect all
// the time.
const (
	mostUnsettled  = 128
	leastUnsettled = 48
)

// unsettled bounds what a process has until it settles, with a sandbox's limit of
// memory, in MiB, or 0.
func unsettled(limit int64) {
	most := int64(mostUnsettled)
	if limit > 0 {
		most = min(most, max(limit/2, leastUnsettled))
	}
	debug.SetMemoryLimit(most << 20)
}

// settle gives back the memory that starting took, if that was much. Freezes and it wait for each
// other.
func (c *collector) settle(much bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !much {
		debug.SetGCPercent(gcPercent)
		debug.SetMemoryLimit(math.MaxInt64)
		return
	}
	// One processor does it in a fifth less processor time than several, which wait for
	// each other. A guest that is busy has to share it for once.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(math.MaxInt64)
	debug.FreeOSMemory()
}

// stop lets no collection begin until the result is called. After that there are
// collections, whether it has settled or not: many freezes make much garbage.
func (c *collector) stop() (resume func()) {
	c.mu.Lock()
	debug.SetGCPercent(-1)
	limit := debug.SetMemoryLimit(math.MaxInt64) // see unsettled
	return func() {
		debug.SetMemoryLimit(limit)
		debug.SetGCPercent(gcPercent)
		c.mu.Unlock()
	}
}

// Settle gives back the memory that starting took, some time after it. A fork of a template has left hardly any
// garbage, and a collection would have it copy what the two share.
func (g *Guest) Settle() { g.collector.settle(!g.forked) }
