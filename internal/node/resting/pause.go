package resting

import (
	"context"
	"errors"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
)

// Pause stops a sandbox; its memory stays.
func (r *Rester) Pause(ctx context.Context, ref string) (*api.Sandbox, error) {
	return r.pauseOrResume(ctx, ref, true)
}

// Resume lets a paused sandbox run.
func (r *Rester) Resume(ctx context.Context, ref string) (*api.Sandbox, error) {
	return r.pauseOrResume(ctx, ref, false)
}

func (r *Rester) pauseOrResume(ctx context.Context, ref string, pause bool) (*api.Sandbox, error) {
	b, err := r.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	b.Op.Lock()
	defer b.Op.Unlock()
	if err := r.SetPaused(ctx, b, pause); err != nil {
		return nil, err
	}
	v := b.View()
	return &v, nil
}

// pauseIdle pauses b because it is idle, unless somebody uses it again.
func (r *Rester) pauseIdle(ctx context.Context, b *sandboxes.Instance) error {
	b.Op.Lock()
	defer b.Op.Unlock()
	_, done, began := b.Rest(ctx, r.cfg.Clock.Now(), isDue, api.StateRunning)
	if !began {
		return nil
	}
	defer done()
	return r.pauseAs(ctx, b, true, true)
}

// SetPaused pauses b or lets it run. The caller holds b.Op.
func (r *Rester) SetPaused(ctx context.Context, b *sandboxes.Instance, pause bool) error {
	return r.pauseAs(ctx, b, pause, false)
}

// alreadyIn refuses a request that asks for the state that b has.
func alreadyIn(b *sandboxes.Instance, s api.State) error {
	if b.View().State == s {
		return api.Errorf(api.CodeWrongState, "sandbox %s is %s already", b.ID, s)
	}
	return nil
}

func (r *Rester) pauseAs(ctx context.Context, b *sandboxes.Instance, pause, dozing bool) (err error) {
	op, undo, from, to, kind := wire.OpResume, wire.OpPause, api.StatePaused, api.StateRunning, api.EventResumed
	operation := "resume"
	if pause {
		op, undo, from, to, kind = undo, op, to, from, api.EventPaused
		operation = "pause"
	}
	ctx, ended := r.cfg.Meter.Observe(ctx, operation)
	defer ended(&err)
	if err := alreadyIn(b, to); err != nil {
		return err
	}
	if !pause {
		if err := r.cfg.Admission.MayRun(b.Tenant(), quota.Tree(b.Lineage())); err != nil {
			return err
		}
	}
	sentry, err := b.Running(from)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	// What is begun is finished, even if its caller goes away: else a sandbox would
	// stand still that is said to run.
	ctx = context.WithoutCancel(ctx)
	call := func(op wire.Op) error {
		ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
		defer cancel()
		_, err := sentry.Call(ctx, &wire.Call{Op: op}, nil)
		return err
	}
	if err := call(op); err != nil {
		return err
	}
	rec := b.Record()
	if err := rec.Become(to, ""); err != nil {
		return errors.Join(err, call(undo))
	}
	rec.Dozing = dozing
	// Nobody sees the new state before it is recorded.
	if err := r.cfg.Store.Apply(ctx, rec.Stored()); err != nil {
		return errors.Join(err, call(undo))
	}
	if !b.ReplaceRecord(sentry, rec) { // its watcher records that
		return api.Errorf(api.CodeSandboxDied, "sandbox %s ended meanwhile", b.ID)
	}
	b.Touch(r.cfg.Clock.Now())
	r.cfg.Timers.Arm(b)
	e := api.Event{}
	if dozing {
		e.Reason = "its idle timeout is over"
	}
	r.cfg.Sandboxes.Events.PublishAs(kind, b, &rec.Sandbox, e)
	return nil
}
