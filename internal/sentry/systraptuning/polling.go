package systraptuning

import (
	"errors"
	"sync/atomic"
	_ "unsafe" // for go:linkname

	"gvisor.dev/gvisor/pkg/sentry/platform"
)

// pollAfter is how many times a process goes to its own code and back before systrap polls
// for it. `true` does thirty times.
const pollAfter = 40

// The bounds of systrap's polling, for all of this process. deepSleepTimeout is for how many
// ticks of the processor's counter the sentry polls for a program that is to come back
// (shared_context.go); systrap sets it when the platform is made. fastPathContextLimit is
// beside how many threads in programs a host thread polls for the next thread to run
// (metrics.go); systrap sets it soon after that, to twice the threads that a program may
// have.
//
//go:linkname deepSleepTimeout gvisor.dev/gvisor/pkg/sentry/platform/systrap.deepSleepTimeout
var deepSleepTimeout uint64

//go:linkname fastPathContextLimit gvisor.dev/gvisor/pkg/sentry/platform/systrap.fastPathContextLimit
var fastPathContextLimit uint32

// polling is the bounds that systrap chose.
type polling struct {
	ticks   uint64
	threads uint32
}

func pollingOf(systrap platform.Platform) (polling, error) {
	p := polling{atomic.LoadUint64(&deepSleepTimeout), 2 * uint32(systrap.ConcurrencyCount())}
	if p.ticks <= unpolled.ticks {
		return p, errors.New("systrap's bound of polling is not deepSleepTimeout any more")
	}
	return p, nil
}

// unpolled are bounds with which the sentry looks twice before it sleeps, and host threads do
// not poll.
var unpolled = polling{ticks: 1}

// allow lets systrap poll with its own bounds, or hardly at all. Systrap reads the bounds
// without synchronisation and at every switch: the bounds for one process of the sandbox last
// until the next switch of another process, and cut short the polling for other processes.
// That costs them a sleep, and nothing else.
func (p polling) allow(yes bool) {
	if !yes {
		p = unpolled
	}
	if atomic.LoadUint64(&deepSleepTimeout) != p.ticks {
		atomic.StoreUint64(&deepSleepTimeout, p.ticks)
	}
	if atomic.LoadUint32(&fastPathContextLimit) != p.threads {
		atomic.StoreUint32(&fastPathContextLimit, p.threads)
	}
}
