package gate

import (
	"sync"
	gotime "time"
)

// Clock is the clock of timeouts. It stands still while the guest is paused, because a
// guest that cannot run is neither late nor idle.
type Clock struct {
	mu     sync.Mutex
	asleep gotime.Duration // until the last pause ended
	since  gotime.Time     // of the present pause, zero if there is none
	waits  map[*Wait]bool
}

// Wait is a timeout on the clock.
type Wait struct {
	C     <-chan struct{} // closed when it is due, nil if it never is
	over  chan struct{}   // the same channel
	clock *Clock
	due   gotime.Duration
	timer *gotime.Timer // the last one that was set; guarded by clock.mu
}

// began is where all such clocks are at zero.
var began = gotime.Now()

// Now returns the time on the clock.
func (c *Clock) Now() gotime.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

func (c *Clock) nowLocked() gotime.Duration {
	if !c.since.IsZero() {
		return c.since.Sub(began) - c.asleep
	}
	return gotime.Since(began) - c.asleep
}

func (c *Clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.since = gotime.Now()
}

func (c *Clock) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asleep += gotime.Since(c.since)
	c.since = gotime.Time{}
	for w := range c.waits {
		w.armLocked()
	}
}

// After returns a wait for the moment at which the guest has run for d; 0 is never. Stop
// it when it is not needed any more.
func (c *Clock) After(d gotime.Duration) *Wait {
	w := &Wait{clock: c}
	if d <= 0 {
		return w
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	w.over, w.due = make(chan struct{}), c.nowLocked()+d
	w.C = w.over
	if c.waits == nil {
		c.waits = map[*Wait]bool{}
	}
	c.waits[w] = true
	if c.since.IsZero() {
		w.armLocked()
	}
	return w
}

func (w *Wait) armLocked() {
	w.timer = gotime.AfterFunc(w.due-w.clock.nowLocked(), w.look)
}

// look ends the wait if it is due. If the guest was paused since the timer was set,
// there is another timer, or there will be.
func (w *Wait) look() {
	c := w.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waits[w] && c.since.IsZero() && c.nowLocked() >= w.due {
		delete(c.waits, w)
		close(w.over)
	}
}

// Stop ends the wait without closing C.
func (w *Wait) Stop() {
	c := w.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waits, w)
	if w.timer != nil {
		w.timer.Stop()
	}
}
