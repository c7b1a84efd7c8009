package sandboxes

import (
	"sync"
	"time"
)

// Birth is when a child was made, until that was measured. Its zero value is that of a
// sandbox that is no child. It is safe for concurrent use.
type Birth struct {
	mu    sync.Mutex
	fresh bool      // nothing was run in the child yet
	at    time.Time // when it was ready; zero once its cost was told
}

// Mark notes that the sandbox is a child that was made at the time at.
func (b *Birth) Mark(at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fresh, b.at = true, at
}

// FirstUse reports, once, that the sandbox is a child.
func (b *Birth) FirstUse() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.fresh
	b.fresh = false
	return was
}

// CostDue reports, once, that the sandbox is a child that was made before the time at.
func (b *Birth) CostDue(at time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	due := !b.at.IsZero() && !b.at.After(at)
	if due {
		b.at = time.Time{}
	}
	return due
}
