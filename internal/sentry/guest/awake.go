package guest

import (
	"sync"
	gotime "time"
)

// awake is the clock of timeouts. It stands still while the guest is paused: what
// cannot run is neither late nor idle.
type awake struct {
	mu     sync.Mutex
	asleep gotime.Duration // until the last pause ended
	since  gotime.Time     // of the present pause, zero if there is none
}

// began is where all such clocks are at zero.
var began = gotime.Now()

// now returns the time on the clock.
func (a *awake) now() gotime.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.since.IsZero() {
		return a.since.Sub(began) - a.asleep
	}
	return gotime.Since(began) - a.asleep
}

func (a *awake) stop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = gotime.Now()
}

func (a *awake) start() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asleep += gotime.Since(a.since)
	a.since = gotime.Time{}
}

// wakeCheck is how often it is looked whether something is due while the guest is
// paused.
const wakeCheck = 500 * gotime.Millisecond

// timer returns one that is about due at the time until. Whoever it wakes must look
// at the clock.
func (a *awake) timer(until gotime.Duration) *gotime.Timer {
	wait := until - a.now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.since.IsZero() {
		wait = max(wait, wakeCheck)
	}
	return gotime.NewTimer(wait)
}
