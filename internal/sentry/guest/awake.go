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
	waits  map[*wait]bool
}

// wait is one that somebody does on the clock.
type wait struct {
	over  chan struct{} // closed when it is due, nil if it never is
	clock *awake
	due   gotime.Duration
	timer *gotime.Timer // the last one that was set; guarded by clock.mu
}

// began is where all such clocks are at zero.
var began = gotime.Now()

// now returns the time on the clock.
func (a *awake) now() gotime.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nowLocked()
}

func (a *awake) nowLocked() gotime.Duration {
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
	for w := range a.waits {
		w.armLocked()
	}
}

// after returns a wait for the moment at which the guest has run for so long; 0 is
// never. Who no longer waits for it must stop it.
func (a *awake) after(d gotime.Duration) *wait {
	w := &wait{clock: a}
	if d <= 0 {
		return w
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w.over, w.due = make(chan struct{}), a.nowLocked()+d
	if a.waits == nil {
		a.waits = map[*wait]bool{}
	}
	a.waits[w] = true
	if a.since.IsZero() {
		w.armLocked()
	}
	return w
}

func (w *wait) armLocked() {
	w.timer = gotime.AfterFunc(w.due-w.clock.nowLocked(), w.look)
}

// look ends the wait if it is due. If the guest was paused since the timer was set,
// there is another one, or there will be.
func (w *wait) look() {
	a := w.clock
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waits[w] && a.since.IsZero() && a.nowLocked() >= w.due {
		delete(a.waits, w)
		close(w.over)
	}
}

func (w *wait) stop() {
	a := w.clock
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waits, w)
	if w.timer != nil {
		w.timer.Stop()
	}
}
