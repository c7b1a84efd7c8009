package resting

import (
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/timer"
)

// lookAgain is how often in an idle timeout its activity is written down.
const lookAgain = 4

// minLook bounds that.
const minLook = time.Second

// lookAfter returns after which part of an idle timeout its activity is written down.
func lookAfter(idle time.Duration) time.Duration { return max(idle/lookAgain, minLook) }

// Timers sets when the times of sandboxes are to be looked at. It is safe for concurrent
// use.
type Timers struct {
	queue *timer.Queue
	clock timer.Clock
}

// NewTimers returns timers in a queue.
func NewTimers(queue *timer.Queue, clock timer.Clock) *Timers { return &Timers{queue, clock} }

// Arm sets when the times of b are to be looked at next.
func (t *Timers) Arm(b *sandboxes.Instance) {
	s, a := b.Activity()
	if at, any := nextLook(&s, a, t.clock.Now()); any {
		t.queue.Set(b.ID, at)
	} else {
		t.queue.Clear(b.ID)
	}
}

// Clear forgets the times of b.
func (t *Timers) Clear(b *sandboxes.Instance) { t.queue.Clear(b.ID) }

// nextLook returns when something may be due of a sandbox.
func nextLook(s *api.Sandbox, a sandboxes.Activity, now time.Time) (at time.Time, any bool) {
	if s.State == api.StateDestroyed {
		return time.Time{}, false
	}
	at, any = s.Lifecycle.Expiry()
	idle := s.Lifecycle.IdleTimeout()
	if idle == 0 || s.State != api.StateRunning {
		return at, any
	}
	look := now.Add(lookAfter(idle))
	end := a.At.Add(idle)
	if end.Before(a.Retry) {
		end = a.Retry
	}
	if a.Uses == 0 && end.After(now) && end.Before(look) {
		look = end
	}
	if !any || look.Before(at) {
		return look, true
	}
	return at, true
}

// expired reports whether the sandbox's time is over.
func expired(s *api.Sandbox, now time.Time) bool {
	at, ok := s.Lifecycle.Expiry()
	return ok && !now.Before(at)
}

// idleAction returns what is to happen to a sandbox because nobody uses it, or "".
func idleAction(s *api.Sandbox, a sandboxes.Activity, now time.Time) api.IdleAction {
	timeout := s.Lifecycle.IdleTimeout()
	if timeout == 0 || s.State != api.StateRunning || a.Uses > 0 || a.Resting || now.Before(a.At.Add(timeout)) || now.Before(a.Retry) {
		return ""
	}
	return s.Lifecycle.IdleAction
}

// isDue is the idleness that a lifecycle asks for.
func isDue(s *api.Sandbox, a sandboxes.Activity, now time.Time) bool {
	return idleAction(s, a, now) != ""
}
