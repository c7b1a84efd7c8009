package node

import (
	"context"
	"errors"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/storage/store"
)

// Pause stops a sandbox; its memory stays.
func (m *Node) Pause(ctx context.Context, ref string) (*api.Sandbox, error) {
	return m.pauseOrResume(ctx, ref, true)
}

// Resume lets a paused sandbox run.
func (m *Node) Resume(ctx context.Context, ref string) (*api.Sandbox, error) {
	return m.pauseOrResume(ctx, ref, false)
}

func (m *Node) pauseOrResume(ctx context.Context, ref string, pause bool) (*api.Sandbox, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	b.op.Lock()
	defer b.op.Unlock()
	if err := m.setPaused(ctx, b, pause); err != nil {
		return nil, err
	}
	v := b.view()
	return &v, nil
}

// pauseIdle pauses b because it is idle, unless somebody uses it again.
func (m *Node) pauseIdle(ctx context.Context, b *instance) error {
	b.op.Lock()
	defer b.op.Unlock()
	_, done, began := m.rest(ctx, b, isDue, api.StateRunning)
	if !began {
		return nil
	}
	defer done()
	return m.pauseAs(ctx, b, true, true)
}

// setPaused pauses b or lets it run. The caller holds b.op.
func (m *Node) setPaused(ctx context.Context, b *instance, pause bool) error {
	return m.pauseAs(ctx, b, pause, false)
}

func (m *Node) pauseAs(ctx context.Context, b *instance, pause, dozing bool) (err error) {
	op, undo, from, to, kind := wire.OpResume, wire.OpPause, api.StatePaused, api.StateRunning, api.EventResumed
	operation := "resume"
	if pause {
		op, undo, from, to, kind = undo, op, to, from, api.EventPaused
		operation = "pause"
	}
	ctx, ended := m.observe(ctx, operation)
	defer ended(&err)
	if !pause {
		if err := m.mayRun(b); err != nil {
			return err
		}
	}
	sentry, err := b.running(from)
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
		ctx, cancel := context.WithTimeout(ctx, m.timeout)
		defer cancel()
		_, err := sentry.Call(ctx, &wire.Call{Op: op}, nil)
		return err
	}
	if err := call(op); err != nil {
		return err
	}
	b.mu.Lock()
	rec := b.rec
	b.mu.Unlock()
	if err := rec.become(to, ""); err != nil {
		return errors.Join(err, call(undo))
	}
	rec.Dozing = dozing
	// Nobody sees the new state before it is recorded.
	if err := m.store.Apply(ctx, store.Change{Table: store.Sandboxes, ID: b.id, Doc: rec}); err != nil {
		return errors.Join(err, call(undo))
	}
	b.mu.Lock()
	alive := b.sentry == sentry
	if alive {
		m.become(b, to, "")
		b.rec.Dozing = dozing
	}
	b.mu.Unlock()
	if !alive { // its watcher records that
		return api.Errorf(api.CodeSandboxDied, "sandbox %s ended meanwhile", b.id)
	}
	m.touch(b)
	m.arm(b)
	e := api.Event{}
	if dozing {
		e.Reason = "its idle timeout is over"
	}
	m.publishView(kind, &rec.Sandbox, e)
	return nil
}
