package timer

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// Clock tells the time.
type Clock interface {
	Now() time.Time
	// After returns a channel that gets a value when d has passed, and what ends
	// the wait for it.
	After(d time.Duration) (<-chan time.Time, func())
}

// System is the clock of the machine.
type System struct{}

// Now implements Clock.
func (System) Now() time.Time { return time.Now() }

// After implements Clock.
func (System) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}

// Queue are times, one for each id. It is safe for concurrent use.
type Queue struct {
	clock   Clock
	changed chan struct{} // has a value if Run has to look again

	mu    sync.Mutex
	byID  map[string]*entry
	queue queue
}

// New returns Alarms without any time.
func New(clock Clock) *Queue {
	return &Queue{clock: clock, changed: make(chan struct{}, 1), byID: map[string]*entry{}}
}

// Set makes id ring once at a time, and not at the one it had.
func (a *Queue) Set(id string, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, ok := a.byID[id]; ok {
		e.at = at
		heap.Fix(&a.queue, e.index)
	} else {
		e = &entry{id: id, at: at}
		a.byID[id] = e
		heap.Push(&a.queue, e)
	}
	if a.queue[0].id == id {
		a.wake()
	}
}

// Clear makes id ring no more.
func (a *Queue) Clear(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, ok := a.byID[id]; ok {
		heap.Remove(&a.queue, e.index)
		delete(a.byID, id)
	}
}

func (a *Queue) wake() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Run calls ring with each id whose time has come, one after the other, until ctx
// ends.
func (a *Queue) Run(ctx context.Context, ring func(id string)) {
	for ctx.Err() == nil {
		id, wait, any := a.next()
		if id != "" {
			ring(id)
			continue
		}
		var came <-chan time.Time
		stop := func() {}
		if any {
			came, stop = a.clock.After(wait)
		}
		select {
		case <-ctx.Done():
		case <-a.changed:
		case <-came:
		}
		stop()
	}
}

// next takes an id whose time has come, or says how long to wait for the first.
func (a *Queue) next() (id string, wait time.Duration, any bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) == 0 {
		return "", 0, false
	}
	e := a.queue[0]
	if wait = e.at.Sub(a.clock.Now()); wait > 0 {
		return "", wait, true
	}
	heap.Pop(&a.queue)
	delete(a.byID, e.id)
	return e.id, 0, true
}

type entry struct {
	id    string
	at    time.Time
	index int // in the queue
}

// queue is a heap with the earliest first.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

func (q *queue) Push(x any) {
	e := x.(*entry)
	e.index = len(*q)
	*q = append(*q, e)
}

func (q *queue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}
