package node

import (
	"context"
	"sync"

	"ramet.dev/ramet/internal/engine/wire"
)

// freezeGroup lets forks of one box that come at the same time share a freeze: each may
// be of any moment from its call on, and the source pauses once for all that wait
// while it is being frozen for others.
type freezeGroup struct {
	freezing sync.Mutex // held by the one that freezes

	mu      sync.Mutex
	next    *pendingFreeze // what a fork may still join; nil for none
	loading chan struct{}  // see newLoading; made by the first fork
}

// pendingFreeze is a freeze that several forks wait for.
type pendingFreeze struct {
	done chan struct{} // closed when the rest is known

	// Guarded by joint.mu until done is closed.
	waiting int // forks that still want it
	f       *freeze
	frozen  *wire.Frozen
	err     error
}

// freezeForFork is freezeBox, perhaps together with other forks. The caller holds
// box.op and owns a reference on the result.
func (m *Node) freezeForFork(ctx context.Context, b *instance) (*freeze, *wire.Frozen, error) {
	s, first := b.freezeGroup.join()
	if first {
		m.freezeShared(ctx, b, s)
	}
	select {
	case <-s.done:
		return s.f, s.frozen, s.err
	case <-ctx.Done():
		if b.freezeGroup.leave(s) {
			m.drop(s.f)
		}
		return nil, nil, context.Cause(ctx)
	}
}

// join returns what the caller is to wait for, and whether it has to bring it about.
func (j *freezeGroup) join() (s *pendingFreeze, first bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.next == nil {
		j.next = &pendingFreeze{done: make(chan struct{})}
		first = true
	}
	j.next.waiting++
	return j.next, first
}

// leave is for a fork that waits no longer. It reports whether it owns a reference
// all the same.
func (j *freezeGroup) leave(s *pendingFreeze) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case <-s.done:
		return s.err == nil
	default:
		s.waiting--
		return false
	}
}

// freezeShared freezes b for all that have joined s by the time it begins. It works
// for others too, so that the end of ctx does not stop it.
func (m *Node) freezeShared(ctx context.Context, b *instance, s *pendingFreeze) {
	j := &b.freezeGroup
	j.freezing.Lock()
	defer j.freezing.Unlock()
	j.mu.Lock()
	j.next = nil
	j.mu.Unlock()
	var f *freeze
	var frozen *wire.Frozen
	var err error = errDefect
	defer func() { // also if it panics: the others would hold the sandbox for ever
		j.mu.Lock()
		s.f, s.frozen, s.err = f, frozen, err
		if err == nil {
			m.hold(f, s.waiting)
		}
		close(s.done)
		j.mu.Unlock()
		if err == nil {
			m.drop(f) // freezeBox's reference; each that waits has its own
		}
	}()
	f, frozen, err = m.freezeBox(context.WithoutCancel(ctx), b, false)
}

// slots returns the places of what all forks of the box have loading at once.
func (j *freezeGroup) slots() chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.loading == nil {
		j.loading = newLoading()
	}
	return j.loading
}
