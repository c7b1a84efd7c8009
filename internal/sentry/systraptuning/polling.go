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

// What bounds systrap's polling, for all of this process: for how many ticks of the
// processor's counter the sentry polls for a program that is to come back
// (shared_context.go), and beside how many threads in programs a host thread polls for the
// next one to run (metrics.go). The one is set when the platform is made, the other soon
// after that and to twice the threads that a program may have.
//
//go:linkname deepSleepTimeout gvisor.dev/gvisor/pkg/sentry/platform/systrap.deepSleepTimeout
var deepSleepTimeout uint64

//go:linkname fastPathContextLimit gvisor.dev/gvisor/pkg/sentry/platform/systrap.fastPathContextLimit
var fastPathContextLimit uint32

// polling is how systrap polls where nobody keeps it from that.
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

// unpolled has the sentry look twice before it sleeps, and the host threads not at all.
var unpolled = polling{ticks: 1}

// allow has systrap poll as it likes, or not. Systrap reads what is set without
// synchronisation and with every switch: what is right for one process of the sandbox lasts
// until another one's next switch, and cuts short the polling for others. It costs them a
// sleep, and nothing else.
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
