package memwatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// every is how often the memory that grows quickly is read. A program that takes 1 GiB a second passes its limit
	// by some 100 MiB.
	every = 100 * time.Millisecond
	// restEvery is how often the rest is read, in readings: that takes a millisecond.
	restEvery = 30
)

// Group has the goroutines that watch processes.
type Group struct {
	closing context.CancelFunc
	closed  <-chan struct{}
	running sync.WaitGroup
}

// NewGroup returns a Group. Close ends its goroutines.
func NewGroup() *Group {
	ctx, cancel := context.WithCancel(context.Background())
	return &Group{closing: cancel, closed: ctx.Done()}
}

// Close stops watching, and waits for all goroutines. The processes run on. No limit may be set any more.
func (g *Group) Close() {
	g.closing()
	g.running.Wait()
}

// Process is a process that is watched.
type Process struct {
	// Done is closed when the process has ended.
	Done <-chan struct{}
	// Guest returns the bytes of its guest, and Rest those of the process itself. Both return 0 when it has ended.
	Guest, Rest func() int64
	// Kill ends the process.
	Kill func()
}

// Watch is a limit of memory. Its zero value is none. It is safe for concurrent use.
type Watch struct {
	limit    atomic.Int64 // bytes
	running  atomic.Bool
	exceeded atomic.Bool
}

// Set replaces the limit, in bytes; 0 is none. p is the process of all calls of one Watch. A goroutine of g reads its
// memory until it has ended or g is closed.
func (w *Watch) Set(g *Group, limit int64, p Process) {
	w.limit.Store(limit)
	if limit > 0 && w.running.CompareAndSwap(false, true) {
		g.running.Go(func() { w.run(p, g.closed) })
	}
}

// Exceeded reports whether the process was killed because of the limit.
func (w *Watch) Exceeded() bool { return w.exceeded.Load() }

func (w *Watch) run(p Process, closed <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	rest := int64(0)
	for n := 0; ; n++ {
		if n%restEvery == 0 {
			rest = p.Rest()
		}
		if limit := w.limit.Load(); limit > 0 && p.Guest()+rest > limit {
			w.exceeded.Store(true)
			p.Kill()
			return
		}
		select {
		case <-closed:
			return
		case <-p.Done:
			return
		case <-tick.C:
		}
	}
}
