// Package background runs what goes on beside requests, in goroutines that somebody waits
// for, and says what to do about a panic there.
//
// The package must never know what is done.
package background

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"ramet.dev/ramet/api"
)

// Group is goroutines that end together. It is safe for concurrent use.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// New returns a group without goroutines, whose context has the values of ctx and does not
// end with it.
func New(ctx context.Context) *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return g
}

// Context returns the context of the group.
func (g *Group) Context() context.Context { return g.ctx }

// Ended reports whether the group is to end.
func (g *Group) Ended() bool { return g.ctx.Err() != nil }

// Go calls do in a goroutine.
func (g *Group) Go(do func(ctx context.Context)) {
	g.work.Go(func() { do(g.ctx) })
}

// Cancel ends the context of the group.
func (g *Group) Cancel() { g.cancel() }

// Wait waits for all goroutines.
func (g *Group) Wait() { g.work.Wait() }

// Finish waits for all goroutines, and ends their context when that takes longer than
// grace.
func (g *Group) Finish(grace time.Duration) {
	timer := time.AfterFunc(grace, g.cancel)
	g.work.Wait()
	timer.Stop()
	g.cancel()
}

// ErrDefect is what those are told who met a defect.
var ErrDefect = api.Errorf(api.CodeInternal, "a defect in Ramet; the daemon's log tells more")

// Recovered logs what was recovered from while something was done, and returns the error to
// be told.
func Recovered(log *slog.Logger, doing string, v any) error {
	log.Error(doing+" panicked", "panic", v, "stack", string(debug.Stack()))
	return ErrDefect
}
