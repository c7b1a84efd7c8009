package compare

import (
	"context"
	"sync"
)

// turns let one comparison at a time ask the interpreters of a sandbox: an interpreter that is asked
// is busy, and a comparison refuses busy ones. The zero value is ready.
type turns struct {
	mu    sync.Mutex
	taken map[string]chan struct{} // by id; closed when the turn is over
}

// take waits for the turn of a sandbox. The result ends it.
func (t *turns) take(ctx context.Context, id string) (done func(), err error) {
	for {
		t.mu.Lock()
		other, taken := t.taken[id]
		if !taken {
			break
		}
		t.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	defer t.mu.Unlock()
	mine := make(chan struct{})
	if t.taken == nil {
		t.taken = map[string]chan struct{}{}
	}
	t.taken[id] = mine
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.taken, id)
		close(mine)
	}, nil
}
