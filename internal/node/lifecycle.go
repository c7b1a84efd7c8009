package node

import (
	"context"
	"fmt"
	"time"

	"ramet.dev/ramet/api"
)

// One goroutine looks after the times of all sandboxes (Node.timeIsUp): when one is
// to be destroyed, when one is idle, and when it was used last, which is written down
// a few times in each idle timeout. What is due is done elsewhere, so that no sandbox
// waits for another one's disk.

// restsAtOnce is how many sandboxes are put to rest at the same time.
const restsAtOnce = 2

// lookAgain is how often in an idle timeout its activity is written down.
const lookAgain = 4

// minLook bounds that.
const minLook = time.Second

// What fails is tried again after firstRetry, and then ever less often, up to lastRetry:
// a reason that lasts, as an object that cannot be saved, is not worth a freeze a second.
const (
	firstRetry = 10 * time.Second
	lastRetry  = 10 * time.Minute
)

// failing notes that b could not be put to rest by itself. It reports whether this is the
// first time since somebody used it.
func (b *instance) failing(now time.Time) (first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &b.activity
	a.retry = now.Add(min(firstRetry<<min(a.failures, 16), lastRetry))
	a.failures++
	return a.failures == 1
}

// restFailed notes, and tells the first time, that b could not be put to rest by itself.
func (m *Node) restFailed(b *instance, action api.IdleAction, err error) {
	if !b.failing(m.clock.Now()) {
		return
	}
	m.log.Warn("put an idle sandbox to rest; it is tried again, ever less often, and not logged", "id", b.id, "action", action, "error", err)
	m.publish(api.EventUnrested, b, api.Event{Reason: fmt.Sprintf("%s: %v", action, err)})
}

// arm sets when the times of b are to be looked at next.
func (m *Node) arm(boxes ...*instance) {
	now := m.clock.Now()
	for _, b := range boxes {
		if at, any := b.nextLook(now); any {
			m.timers.Set(b.id, at)
		} else {
			m.timers.Clear(b.id)
		}
	}
}

// nextLook returns when something may be due of b.
func (b *instance) nextLook(now time.Time) (at time.Time, any bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.rec.Sandbox
	if s.State == api.StateDestroyed {
		return time.Time{}, false
	}
	at, any = s.Lifecycle.Expiry()
	idle := s.Lifecycle.IdleTimeout()
	if idle == 0 || s.State != api.StateRunning {
		return at, any
	}
	look := now.Add(max(idle/lookAgain, minLook))
	end := b.activity.at.Add(idle)
	if end.Before(b.activity.retry) {
		end = b.activity.retry
	}
	if b.activity.uses == 0 && end.After(now) && end.Before(look) {
		look = end
	}
	if !any || look.Before(at) {
		return look, true
	}
	return at, true
}

// expired reports whether the sandbox's time is over.
func (b *instance) expired(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.rec.Sandbox.Lifecycle.Expiry()
	return ok && !now.Before(at)
}

// idle returns what is to happen to b because nobody uses it, or "". The caller
// holds b.mu.
func (b *instance) idle(now time.Time) api.IdleAction {
	s := &b.rec.Sandbox
	timeout := s.Lifecycle.IdleTimeout()
	if timeout == 0 || s.State != api.StateRunning || b.activity.uses > 0 || b.activity.resting || now.Before(b.activity.at.Add(timeout)) || now.Before(b.activity.retry) {
		return ""
	}
	return s.Lifecycle.IdleAction
}

// timeIsUp looks at the times of a sandbox, and has done what is due.
func (m *Node) timeIsUp(id string) {
	if api.IsID(api.KindSnapshot, id) {
		m.chore(func(context.Context) { m.snapshots.Expire(id) })
		return
	}
	m.mu.Lock()
	b := m.instances[id]
	m.mu.Unlock()
	if b == nil {
		return
	}
	now := m.clock.Now()
	b.mu.Lock()
	action := b.idle(now)
	b.mu.Unlock()
	if b.expired(now) {
		m.chore(func(context.Context) {
			m.retire(b, "its ttl is over", b.expired)
			m.arm(b)
		})
		return
	}
	if action == "" {
		m.saveActivity(b)
		m.arm(b)
		return
	}
	m.chore(func(ctx context.Context) {
		if err := m.restIdle(ctx, b, action); err != nil {
			m.restFailed(b, action, err)
		}
		m.arm(b)
	})
}

// restIdle does to b what its lifecycle says, unless somebody uses it again.
func (m *Node) restIdle(ctx context.Context, b *instance, action api.IdleAction) error {
	switch action {
	case api.IdleDestroy:
		m.retire(b, "its idle timeout is over", b.takeIdle)
		return nil
	case api.IdlePause:
		return m.pauseIdle(ctx, b)
	}
	select {
	case m.rests <- struct{}{}:
	case <-ctx.Done():
		return nil // the next daemon will do it
	}
	defer func() { <-m.rests }()
	_, err := m.hibernate(ctx, b, isDue)
	if api.CodeOf(err) == api.CodeCanceled {
		return nil // somebody uses it, or the daemon ends
	}
	return err
}

// takeIdle reports whether b is idle, and keeps whoever wants to use it then waiting
// for its end.
func (b *instance) takeIdle(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.idle(now) == "" {
		return false
	}
	b.activity.resting = true
	return true
}

// retire destroys b by itself, if that is still due when nothing else is done to it.
func (m *Node) retire(b *instance, reason string, due func(now time.Time) bool) {
	b.op.Lock()
	defer b.op.Unlock()
	if !due(m.clock.Now()) {
		return // it was used, or given more time
	}
	switch err := m.destroyLocked(b, reason); api.CodeOf(err) {
	case "":
		m.cfg.Audit.AppendAudit(api.AuditEntry{Time: time.Now().UTC(), Tenant: b.Tenant(), Action: "retire-sandbox", Object: b.id, Result: "ok"})
	case api.CodeNotFound:
	default:
		m.log.Warn("destroy a sandbox by itself", "id", b.id, "error", err)
	}
}

// chore does something that has become due. Close waits for it, and ends ctx.
func (m *Node) chore(do func(ctx context.Context)) {
	m.chores.Go(func() { do(m.choreContext) })
}
