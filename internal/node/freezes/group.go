package freezes

import (
	"context"
	"runtime"
	"sync"

	"ramet.dev/ramet/internal/engine/wire"
)

// Group lets forks of one sandbox that come at the same time share a freeze: each may
// be of any moment from its call on, and the source pauses once for all forks that wait
// while it is being frozen for others.
type Group struct {
	freezing sync.Mutex // held by the fork that freezes

	mu      sync.Mutex
	next    *pending      // what a fork may still join; nil for none
	loading chan struct{} // see NewSlots; made by the first fork
}

// pending is a freeze that several forks wait for.
type pending struct {
	done chan struct{} // closed when the rest is known

	// Guarded by Group.mu until done is closed.
	waiting int // forks that still want it
	f       *Freeze
	frozen  *wire.Frozen
	err     error
}

// Freeze calls freeze, perhaps for other forks too, and returns a freeze that began
// after the call. The caller owns a reference on it. defect is what the others are told
// if freeze panics.
func (g *Group) Freeze(ctx context.Context, t *Table, defect error, freeze func(context.Context) (*Freeze, *wire.Frozen, error)) (*Freeze, *wire.Frozen, error) {
	p, first := g.join()
	if first {
		g.freezeShared(ctx, t, p, defect, freeze)
	}
	select {
	case <-p.done:
		return p.f, p.frozen, p.err
	case <-ctx.Done():
		if g.leave(p) {
			t.Drop(p.f)
		}
		return nil, nil, context.Cause(ctx)
	}
}

// join returns what the caller is to wait for, and whether the caller has to bring it
// about.
func (g *Group) join() (p *pending, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.next == nil {
		g.next = &pending{done: make(chan struct{})}
		first = true
	}
	g.next.waiting++
	return g.next, first
}

// leave is for a fork that waits no longer. It reports whether the fork owns a reference
// all the same.
func (g *Group) leave(p *pending) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-p.done:
		return p.err == nil
	default:
		p.waiting--
		return false
	}
}

// freezeShared freezes for all forks that have joined p by the time it begins. It works
// for others too, so that the end of ctx does not stop it.
func (g *Group) freezeShared(ctx context.Context, t *Table, p *pending, defect error, freeze func(context.Context) (*Freeze, *wire.Frozen, error)) {
	g.freezing.Lock()
	defer g.freezing.Unlock()
	g.mu.Lock()
	g.next = nil
	g.mu.Unlock()
	var f *Freeze
	var frozen *wire.Frozen
	err := defect
	defer func() { // also if it panics: the others would hold the sandbox for ever
		g.mu.Lock()
		p.f, p.frozen, p.err = f, frozen, err
		if err == nil {
			t.Hold(f, p.waiting)
		}
		close(p.done)
		g.mu.Unlock()
		if err == nil {
			t.Drop(f) // the reference of freeze; each fork that waits has its own
		}
	}()
	f, frozen, err = freeze(context.WithoutCancel(ctx))
}

// Slots returns the places of what all forks of the sandbox have loading at once.
func (g *Group) Slots() chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.loading == nil {
		g.loading = NewSlots()
	}
	return g.loading
}

// NewSlots returns a channel with room for as many children of one source as may load
// their state at the same time: more than there are processors only makes each of them
// slower.
func NewSlots() chan struct{} { return make(chan struct{}, 2*runtime.NumCPU()) }
