package resting

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/background"
	"ramet.dev/ramet/internal/node/sandboxes"
)

// One goroutine looks after the times of all sandboxes (Lifecycles.TimeIsUp): when one is
// to be destroyed, when one is idle, and when it was used last, which is written down
// a few times in each idle timeout. What is due is done elsewhere, so that no sandbox
// waits for another one's disk.

// restsAtOnce is how many sandboxes are put to rest at the same time.
const restsAtOnce = 2

// Lifecycles does to sandboxes what their lifecycles say. It is safe for concurrent use.
type Lifecycles struct {
	rester *Rester
	chores *background.Group
	audit  Audit
	log    *slog.Logger
	rests  chan struct{} // has a value for each sandbox that is being put to disk because it is idle
}

// Audit takes entries of the audit.
type Audit interface {
	AppendAudit(e api.AuditEntry)
}

// NewLifecycles returns what looks after the lifecycles of the sandboxes that r puts to rest.
// chores does what is due.
func NewLifecycles(r *Rester, chores *background.Group, audit Audit, log *slog.Logger) *Lifecycles {
	return &Lifecycles{r, chores, audit, log, make(chan struct{}, restsAtOnce)}
}

// Update changes the name, the metadata and the lifecycle of a sandbox: all of it or
// nothing. With a lifecycle, its idle timeout begins anew.
func (l *Lifecycles) Update(ctx context.Context, ref string, req api.UpdateRequest) (*api.Sandbox, error) {
	registry, clock := l.rester.cfg.Sandboxes, l.rester.cfg.Clock
	b, err := registry.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	if err := req.Lifecycle.Valid(); err != nil {
		return nil, err
	}
	var old string
	renamed := false
	err = registry.EditAnd(ctx, b, func(rec *sandboxes.Record) (err error) {
		if len(req.Metadata) > 0 {
			if rec.Sandbox.Metadata, err = api.ChangeMetadata(rec.Sandbox.Metadata, req.Metadata); err != nil {
				return err
			}
			rec.Sandbox.Claimed = api.ChangeClaimed(rec.Sandbox.Claimed, req.Metadata, false)
		}
		if req.Lifecycle != nil {
			rec.Sandbox.Lifecycle = rec.Sandbox.Lifecycle.Changed(req.Lifecycle, clock.Now())
		}
		old = rec.Sandbox.Name
		if req.Name == nil || *req.Name == old {
			return nil
		}
		if err := registry.Names.Reserve(b.Tenant(), []string{*req.Name}, []string{b.ID}); err != nil {
			return err
		}
		rec.Sandbox.Name, renamed = *req.Name, true
		return nil
	}, func(was, is *sandboxes.Record) error { return l.rester.cfg.Networks.Put(ctx, b, was, is) })
	switch {
	case renamed && err == nil:
		registry.Names.Release(b.Tenant(), old)
	case renamed:
		registry.Names.Release(b.Tenant(), *req.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("update sandbox: %w", err)
	}
	if req.Lifecycle != nil {
		b.Touch(clock.Now())
		l.rester.cfg.Timers.Arm(b)
	}
	v := b.View()
	registry.Events.PublishAs(api.EventUpdated, b, &v, api.Event{})
	return &v, nil
}

// TimeIsUp looks at the times of the sandbox called id, and has done what is due.
func (l *Lifecycles) TimeIsUp(id string) {
	b := l.rester.cfg.Sandboxes.Get(id)
	if b == nil {
		return
	}
	now := l.rester.cfg.Clock.Now()
	s, a := b.Activity()
	action := idleAction(&s, a, now)
	if expired(&s, now) {
		l.chores.Go(func(context.Context) {
			l.retire(b, "its ttl is over", func(now time.Time) bool { v := b.View(); return expired(&v, now) })
			l.rester.cfg.Timers.Arm(b)
		})
		return
	}
	if action == "" {
		SaveActivity(l.rester.cfg.Store, l.log, now, b)
		l.rester.cfg.Timers.Arm(b)
		return
	}
	l.chores.Go(func(ctx context.Context) {
		if err := l.rest(ctx, b, action); err != nil {
			l.failed(b, action, err)
		}
		l.rester.cfg.Timers.Arm(b)
	})
}

// rest does to b what its lifecycle says, unless somebody uses it again.
func (l *Lifecycles) rest(ctx context.Context, b *sandboxes.Instance, action api.IdleAction) error {
	switch action {
	case api.IdleDestroy:
		// Whoever wants to use it from then on waits for its end.
		l.retire(b, "its idle timeout is over", func(now time.Time) bool {
			_, _, idle := b.Rest(context.Background(), now, isDue, api.StateRunning)
			return idle
		})
		return nil
	case api.IdlePause:
		return l.rester.pauseIdle(ctx, b)
	}
	select {
	case l.rests <- struct{}{}:
	case <-ctx.Done():
		return nil // the next daemon will do it
	}
	defer func() { <-l.rests }()
	_, err := l.rester.hibernate(ctx, b, isDue)
	if api.CodeOf(err) == api.CodeCanceled {
		return nil // somebody uses it, or the daemon ends
	}
	return err
}

// failed notes, and tells the first time, that b could not be put to rest by itself.
func (l *Lifecycles) failed(b *sandboxes.Instance, action api.IdleAction, err error) {
	if !b.FailedToRest(l.rester.cfg.Clock.Now()) {
		return
	}
	l.log.Warn("put an idle sandbox to rest; it is tried again, ever less often, and not logged", "id", b.ID, "action", action, "error", err)
	l.rester.cfg.Sandboxes.Events.Publish(api.EventUnrested, b, api.Event{Reason: fmt.Sprintf("%s: %v", action, err)})
}

// retire destroys b by itself, if that is still due when nothing else is done to it.
func (l *Lifecycles) retire(b *sandboxes.Instance, reason string, due func(now time.Time) bool) {
	b.Op.Lock()
	defer b.Op.Unlock()
	if !due(l.rester.cfg.Clock.Now()) {
		return // it was used, or given more time
	}
	switch err := l.rester.cfg.Sandboxes.DestroyLocked(b, reason); api.CodeOf(err) {
	case "":
		l.note("retire-sandbox", b)
	case api.CodeNotFound:
	default:
		l.log.Warn("destroy a sandbox by itself", "id", b.ID, "error", err)
	}
}

// note adds to the audit that something was done to b by itself.
func (l *Lifecycles) note(action string, b *sandboxes.Instance) {
	l.audit.AppendAudit(api.AuditEntry{Time: time.Now().UTC(), Tenant: b.Tenant(), Action: action, Object: b.ID, Result: "ok"})
}
