package codectx

import (
	"slices"
	"sync"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/sentry/gate"
)

// turns is a queue of runs: one run has the turn, the others get it in the order in which
// they came.
type turns struct {
	mu      sync.Mutex
	taken   bool
	waiting []chan struct{}
	stop    chan struct{} // has an item when the run shall end, nil until it is used
}

var errQueue = api.Errorf(api.CodeLimit, "%d runs wait for this context already", maxWaiting)

// take waits for the turn, or for gone.
func (t *turns) take(gone <-chan struct{}) error {
	t.mu.Lock()
	if !t.taken {
		t.taken = true
		t.mu.Unlock()
		return nil
	}
	if len(t.waiting) >= maxWaiting {
		t.mu.Unlock()
		return errQueue
	}
	mine := make(chan struct{})
	t.waiting = append(t.waiting, mine)
	t.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-gone:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting, mine); i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	} else {
		t.nextLocked() // it was given at the same moment
	}
	return gate.ErrGone
}

// give hands the turn to the next run.
func (t *turns) give() {
	t.forget()
	t.pass()
}

// pass is give for a holder that prepared the interpreter for the next run: an interrupt that
// came meanwhile is for that run.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nextLocked()
}

func (t *turns) nextLocked() {
	if len(t.waiting) == 0 {
		t.taken = false
		t.forgetLocked()
		return
	}
	close(t.waiting[0])
	t.waiting = t.waiting[1:]
}

func (t *turns) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.waiting)
}

// interrupt ends the run that has the turn, whether it has begun or not. It reports whether
// there is one.
func (t *turns) interrupt() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.taken {
		return false
	}
	select {
	case t.stopLocked() <- struct{}{}:
	default: // it was asked for already
	}
	return true
}

// interrupts returns a channel for the run that has the turn. It has an item after interrupt.
func (t *turns) interrupts() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopLocked()
}

func (t *turns) stopLocked() chan struct{} {
	if t.stop == nil {
		t.stop = make(chan struct{}, 1)
	}
	return t.stop
}

// forget drops an interrupt, because the run that it was for is over.
func (t *turns) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.forgetLocked()
}

func (t *turns) forgetLocked() {
	select {
	case <-t.stop:
	default:
	}
}
