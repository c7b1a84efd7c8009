package sandboxes

import (
	"context"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
)

// A sandbox is idle while nobody uses it. That it is used is noted in memory, which
// costs next to nothing, and written down now and then by package resting.

// Activity says since when nobody has used a sandbox.
type Activity struct {
	Uses int       // under way
	At   time.Time // when the last one began or ended
	// Resting says that the sandbox is being put to rest: whoever wants to use it
	// waits for the outcome.
	Resting bool
	// Failures is how often in a row the sandbox could not be put to rest by itself. That
	// is not tried again before Retry, or before somebody has used it.
	Failures int
	Retry    time.Time
	// Stubborn says that it could not be put to disk when memory was short, and that
	// nobody has used it since: others are tried first.
	Stubborn bool
}

// activity is the Activity of an instance. It is guarded by Instance.mu.
type activity struct {
	Activity
	saved time.Time // what is stored of At
	// wanted is called by whoever wants to use the sandbox while it is being put to rest,
	// unless it is nil.
	wanted context.CancelCauseFunc
}

// Activity returns the sandbox and since when nobody has used it, as they are at one
// moment.
func (b *Instance) Activity() (api.Sandbox, Activity) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.rec.Sandbox, b.activity.Activity
}

// Touch notes that the sandbox is used at the time now.
func (b *Instance) Touch(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activity.At = now
}

// BeginUse notes that a use of the sandbox begins, if its state is one of ok and it is not
// being put to rest. The result is nil otherwise.
func (b *Instance) BeginUse(now time.Time, ok []api.State) *launch.Sentry {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &b.activity
	if a.Resting || b.sentry == nil || !slices.Contains(ok, b.rec.Sandbox.State) {
		return nil
	}
	a.Uses++
	a.At, a.Stubborn = now, false
	a.Failures, a.Retry = 0, time.Time{}
	return b.sentry
}

// EndUse notes that one use of the sandbox has ended.
func (b *Instance) EndUse(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activity.Uses--
	b.activity.At = now
}

// Sleeps reports whether the sandbox rests, or is about to, and may be woken by a request.
// One that is being put to rest because it is idle is told that somebody wants to use it.
func (b *Instance) Sleeps() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.rec.Sandbox
	if s.State == api.StateDestroyed {
		return false
	}
	if b.activity.Resting {
		if b.activity.wanted != nil {
			b.activity.wanted(errWanted)
		}
		return true
	}
	return s.Lifecycle.WakesByItself() && (s.State == api.StateHibernated || s.State == api.StatePaused && b.rec.Dozing)
}

// errWanted ends what puts a sandbox to rest that somebody wants to use.
var errWanted = api.Errorf(api.CodeCanceled, "somebody uses the sandbox")

// Idleness says whether nobody uses a sandbox.
type Idleness func(s *api.Sandbox, a Activity, now time.Time) bool

// Rest begins to put the sandbox to rest, unless it is used or in none of the states ok. It
// returns a context that ends when somebody wants to use the sandbox, if idle says that
// this matters. The caller holds Op, and calls done in the end.
func (b *Instance) Rest(ctx context.Context, now time.Time, idle Idleness, ok ...api.State) (_ context.Context, done func(), began bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &b.activity
	if b.sentry == nil || !slices.Contains(ok, b.rec.Sandbox.State) || idle != nil && !idle(&b.rec.Sandbox, a.Activity, now) {
		return nil, nil, false
	}
	cancel := func(error) {}
	if idle != nil {
		ctx, cancel = context.WithCancelCause(ctx)
		a.wanted = cancel
	}
	a.Resting = true
	return ctx, func() {
		b.mu.Lock()
		a.Resting, a.wanted = false, nil
		b.mu.Unlock()
		cancel(nil)
	}, true
}

// What fails is tried again after firstRetry, and then ever less often, up to lastRetry:
// a reason that lasts, as an object that cannot be saved, is not worth a freeze a second.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 10 * time.Minute
)

// FailedToRest notes that the sandbox could not be put to rest by itself. It reports whether
// this is the first time since somebody used it.
func (b *Instance) FailedToRest(now time.Time) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &b.activity
	a.Retry = now.Add(min(firstRetry<<min(a.Failures, 16), lastRetry))
	a.Failures++
	return a.Failures == 1
}

// MarkStubborn has the sandbox come last when sandboxes are put to disk because memory is
// short.
func (b *Instance) MarkStubborn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activity.Stubborn = true
}

// UsedAt returns when the sandbox was used last, which is now if it is.
func (b *Instance) UsedAt(now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.activity.Uses > 0 {
		return now
	}
	return b.activity.At
}

// SaveUse reports whether at, when the sandbox was used last, is to be written down, which
// it then counts as.
func (b *Instance) SaveUse(at time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rec.Sandbox.Lifecycle.IdleTimeout() == 0 || !at.After(b.activity.saved) {
		return false
	}
	b.activity.saved = at
	return true
}

// RecallUse sets when the sandbox was used last, and what is written down of that.
func (b *Instance) RecallUse(at, saved time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activity.At, b.activity.saved = at, saved
}
