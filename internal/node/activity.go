package node

import (
	"context"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/storage/store"
)

// A sandbox is idle while nobody uses it. That it is used is noted in memory, which
// costs next to nothing, and written down now and then by who looks after its times
// (lifecycle.go).

// activity says since when nobody has used a sandbox. It is guarded by mu.
type activity struct {
	uses  int       // under way
	at    time.Time // the last one began or ended
	saved time.Time // what is stored of at
	// resting says that the sandbox is being put to rest: whoever wants to use it
	// waits for the outcome, and calls wanted first, unless it is nil.
	resting bool
	wanted  context.CancelCauseFunc
	// failures is how often in a row the sandbox could not be put to rest by itself. That
	// is not tried again before retry, or before somebody has used it.
	failures int
	retry    time.Time
	// stubborn says that it could not be put to disk when memory was short, and that
	// nobody has used it since: others are tried first.
	stubborn bool
}

// activityRecord is what is stored of it.
type activityRecord struct {
	At time.Time `json:"at"`
}

// touch notes that b is used.
func (m *Node) touch(b *instance) {
	now := m.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activity.at = now
}

// use returns the sentry of b, which is in one of the states ok, for something that
// is to keep it from being idle, and what to call when that is over. A sandbox that
// sleeps is woken, if it may be by a request, and one that is being made is waited
// for. The caller must not hold b.op.
func (m *Node) use(ctx context.Context, b *instance, ok ...api.State) (*launch.Sentry, func(), error) {
	if err := b.made(ctx); err != nil {
		return nil, nil, err
	}
	for {
		if s := m.begin(b, ok); s != nil {
			return s, func() { m.endUse(b) }, nil
		}
		if !b.sleeps() {
			if _, err := b.running(ok...); err != nil {
				return nil, nil, err
			}
			continue // it was woken meanwhile
		}
		if err := m.awaken(ctx, b); err != nil {
			return nil, nil, err
		}
	}
}

// begin notes that a use of b begins, if it is in one of the states ok.
func (m *Node) begin(b *instance, ok []api.State) *launch.Sentry {
	now := m.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.activity.resting || b.sentry == nil || !slices.Contains(ok, b.rec.Sandbox.State) {
		return nil
	}
	b.activity.uses++
	b.activity.at, b.activity.stubborn = now, false
	b.activity.failures, b.activity.retry = 0, time.Time{}
	return b.sentry
}

// endUse notes that one use of b has ended.
func (m *Node) endUse(b *instance) {
	now := m.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.activity.uses--
	b.activity.at = now
}

// sleeps reports whether b rests, or is about to, and may be woken by a request.
func (b *instance) sleeps() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.rec.Sandbox
	if s.State == api.StateDestroyed {
		return false
	}
	if b.activity.resting {
		if b.activity.wanted != nil {
			b.activity.wanted(errWanted)
		}
		return true
	}
	return s.Lifecycle.WakesByItself() && (s.State == api.StateHibernated || s.State == api.StatePaused && b.rec.Dozing)
}

// errWanted ends what puts a sandbox to rest that somebody wants to use.
var errWanted = api.Errorf(api.CodeCanceled, "somebody uses the sandbox")

// idleness says whether nobody uses a sandbox, which is locked.
type idleness func(b *instance, now time.Time) bool

// isDue is the idleness that a lifecycle asks for.
func isDue(b *instance, now time.Time) bool { return b.idle(now) != "" }

// rest begins to put b to rest, unless it is used or in none of the states ok. It
// returns a context that ends when somebody wants to use b, if idle says that this
// matters. The caller holds b.op, and calls done in the end.
func (m *Node) rest(ctx context.Context, b *instance, idle idleness, ok ...api.State) (_ context.Context, done func(), began bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &b.activity
	if b.sentry == nil || !slices.Contains(ok, b.rec.Sandbox.State) || idle != nil && !idle(b, m.clock.Now()) {
		return nil, nil, false
	}
	cancel := func(error) {}
	if idle != nil {
		ctx, cancel = context.WithCancelCause(ctx)
		a.wanted = cancel
	}
	a.resting = true
	return ctx, func() {
		b.mu.Lock()
		a.resting, a.wanted = false, nil
		b.mu.Unlock()
		cancel(nil)
	}, true
}

// usedAt returns when b was used last, which is now if it is.
func (b *instance) usedAt(now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.activity.uses > 0 {
		return now
	}
	return b.activity.at
}

// saveActivity writes down when sandboxes were used last, of those of which that has
// changed.
func (m *Node) saveActivity(boxes ...*instance) {
	var changes []store.Change
	for _, b := range boxes {
		at := b.usedAt(m.clock.Now())
		b.mu.Lock()
		if b.rec.Sandbox.Lifecycle.IdleTimeout() > 0 && at.After(b.activity.saved) {
			b.activity.saved = at
			changes = append(changes, store.Change{Table: store.Activity, ID: b.id, Doc: activityRecord{At: at.UTC()}})
		}
		b.mu.Unlock()
	}
	if len(changes) == 0 {
		return
	}
	if err := m.store.Apply(context.Background(), changes...); err != nil {
		m.log.Warn("write down when sandboxes were used", "error", err) // its timers begin earlier after a restart
	}
}
