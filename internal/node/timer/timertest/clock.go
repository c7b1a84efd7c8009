package timertest

import (
	"sync"
	"time"
)

// Clock stands still until it is moved. It implements timer.Clock.
type Clock struct {
	mu      sync.Mutex
	now     time.Time
	waiting map[chan time.Time]time.Time
}

// New returns a clock that shows now.
func New(now time.Time) *Clock {
	return &Clock{now: now, waiting: map[chan time.Time]time.Time{}}
}

// Now implements timer.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After implements timer.Clock.
func (c *Clock) After(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	c.waiting[ch] = c.now.Add(d)
	c.ring()
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, ch)
	}
}

// Advance moves the clock on and wakes who waited for that.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	c.ring()
}

func (c *Clock) ring() {
	for ch, at := range c.waiting {
		if !at.After(c.now) {
			ch <- c.now
			delete(c.waiting, ch)
		}
	}
}
