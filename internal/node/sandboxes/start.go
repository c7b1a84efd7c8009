package sandboxes

import (
	"context"

	"ramet.dev/ramet/api"
)

// Start is what there is of a child besides its record while it is being made. The methods
// of a nil Start are those of a sandbox that was made before it was listed.
type Start struct {
	over    chan struct{} // closed when it runs or has failed
	ctx     context.Context
	abandon context.CancelCauseFunc
}

// NewChild returns a sandbox that is listed before it is made. Its Op is held until Settle
// is called. It is made until ctx ends.
func NewChild(ctx context.Context, rec Record) *Instance {
	b := New(rec)
	b.Start = &Start{over: make(chan struct{})}
	b.Start.ctx, b.Start.abandon = context.WithCancelCause(ctx)
	b.Op.Lock()
	return b
}

// Settle tells those who wait for the child that it runs, or has failed.
func (b *Instance) Settle() {
	b.Start.abandon(nil)
	close(b.Start.over)
	b.Op.Unlock()
}

// Context returns the context in which the child is made.
func (s *Start) Context() context.Context { return s.ctx }

// Wait waits until the sandbox is no longer being made.
func (s *Start) Wait(ctx context.Context) error {
	if s == nil {
		return nil
	}
	select {
	case <-s.over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Abandon has the sandbox fail if it is still being made.
func (s *Start) Abandon(reason error) {
	if s != nil {
		s.abandon(reason)
	}
}

var (
	errUnwanted = api.Errorf(api.CodeCanceled, "it was removed before it ran")
	// ErrNotStarted is why a child failed whose daemon ended.
	ErrNotStarted = api.Errorf(api.CodeUnavailable, "the daemon ended before it ran")
)
