package resting

import (
	"context"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
)

// restAfter is for how long nobody may have used what is put to disk because memory is
// short.
const restAfter = 15 * time.Second

// unused is the idleness of what may be put to disk because memory is short.
func unused(s *api.Sandbox, a sandboxes.Activity, now time.Time) bool {
	return s.State == api.StateRunning && a.Uses == 0 && !a.Resting && a.At.Before(now.Add(-restAfter)) && s.Lifecycle.WakesByItself()
}

// Idle returns the sandboxes that may be put to disk because memory is short.
func (l *Lifecycles) Idle() []quota.Idle {
	var list []quota.Idle
	now := l.rester.cfg.Clock.Now()
	for _, b := range l.rester.cfg.Sandboxes.All() {
		if s, a := b.Activity(); b.Sentry() != nil && unused(&s, a, now) {
			list = append(list, quota.Idle{ID: b.ID, UsedAt: a.At, Stubborn: a.Stubborn, Sandbox: idleInstance{l, b}})
		}
	}
	return list
}

// idleInstance is a sandbox that nobody uses.
type idleInstance struct {
	l *Lifecycles
	b *sandboxes.Instance
}

// TryLock implements quota.Idle.
func (i idleInstance) TryLock() bool { return i.b.Op.TryLock() }

// Unlock implements quota.Idle.
func (i idleInstance) Unlock() { i.b.Op.Unlock() }

// Hibernate implements quota.Idle.
func (i idleInstance) Hibernate(ctx context.Context) bool {
	l, b := i.l, i.b
	switch v, err := l.rester.hibernateLocked(ctx, b, unused); {
	case api.CodeOf(err) == api.CodeCanceled: // it is used again, or room is no longer wanted
	case err != nil:
		i.MarkStubborn()
		l.failed(b, api.IdleHibernate, err)
	case v != nil:
		l.log.Info("memory is short: a sandbox was put to disk that nobody used", "id", b.ID)
		l.note("hibernate-for-memory", b)
		return true
	}
	return false
}

// MarkStubborn implements quota.Idle.
func (i idleInstance) MarkStubborn() { i.b.MarkStubborn() }
