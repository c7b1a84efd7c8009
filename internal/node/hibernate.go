package node

import (
	"context"
	"errors"
	"fmt"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/storage/store"
)

// A hibernated sandbox is a record and a snapshot on disk that is its own: no list
// shows it, and no process belongs to it. To wake it is to load that snapshot under
// the same id; pages are read when they are used.
//
// The sandbox rests from its freeze on, so that nothing is lost that happened in it.
// That it is about to is written down before: a daemon that ends in the middle leaves
// a paused sentry, which the next one lets run (recovery.adopt).

// Hibernate puts a sandbox to disk and ends its processes on the host.
func (m *Node) Hibernate(ctx context.Context, ref string) (*api.Sandbox, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	return m.hibernate(ctx, b, nil)
}

// hibernate is Hibernate. With idle it does nothing if the sandbox is used, and ends
// early when somebody wants to.
func (m *Node) hibernate(ctx context.Context, b *instance, idle idleness) (*api.Sandbox, error) {
	b.op.Lock()
	defer b.op.Unlock()
	return m.hibernateLocked(ctx, b, idle)
}

// hibernateLocked is hibernate. The caller holds b.op.
func (m *Node) hibernateLocked(ctx context.Context, b *instance, idle idleness) (*api.Sandbox, error) {
	ctx, done, began := m.rest(ctx, b, idle, api.StateRunning, api.StatePaused)
	if !began {
		if idle != nil {
			return nil, nil
		}
		_, err := b.running(api.StateRunning, api.StatePaused)
		return nil, err
	}
	defer done()
	defer m.UseImage(b.view().Image)()
	b.mu.Lock()
	rec := b.rec
	b.mu.Unlock()
	rec.Resting = true
	if err := m.store.Apply(ctx, store.Change{Table: store.Sandboxes, ID: b.id, Doc: rec}); err != nil {
		return nil, fmt.Errorf("hibernate: %w", err)
	}
	err := m.writeHibernation(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("hibernate: %w", errors.Join(err, m.abortHibernation(b)))
	}
	v := b.view()
	m.publishView(api.EventHibernated, &v, api.Event{})
	return &v, nil
}

// writeHibernation freezes b for good, writes it to disk and ends its sentry.
func (m *Node) writeHibernation(ctx context.Context, b *instance) (err error) {
	ctx, ended := m.observe(ctx, "hibernate")
	defer ended(&err)
	disk := m.diskOf(ctx, b)
	f, frozen, err := m.captureAs(ctx, b, api.SnapshotRequest{}, true)
	if err != nil {
		return err
	}
	frozen.Private = b.id
	s, err := m.snapshots.Add(f, frozen)
	if err != nil {
		m.freezes.Drop(f)
		return err
	}
	if err := s.Write(ctx, f, b.chain()); err != nil {
		s.Remove()
		return err
	}
	b.mu.Lock()
	was := b.rec
	b.mu.Unlock()
	rec := was
	rec.DiskMiB = disk
	if err := rec.become(api.StateHibernated, ""); err != nil {
		s.Remove()
		return err
	}
	rec.Hibernation, rec.Freeze, rec.Process, rec.Resting, rec.Dozing = s.ID, "", spawn.Process{}, false, false
	err = m.store.Apply(ctx, s.ReadyRecord(), store.Change{Table: store.Sandboxes, ID: b.id, Doc: rec})
	if err == nil {
		err = m.store.Sync(ctx) // it is acknowledged, and may outlive the host
	}
	if err != nil {
		back := m.store.Apply(context.WithoutCancel(ctx), store.Change{Table: store.Sandboxes, ID: b.id, Doc: was})
		if back == nil { // else the record may say that it is all there is of the sandbox
			s.Remove()
		}
		return errors.Join(err, back)
	}
	b.mu.Lock()
	sentry, origin := b.sentry, b.freeze
	b.rec, b.sentry, b.freeze = rec, nil, nil
	b.mu.Unlock()
	s.Ready() // not before: nobody would need it
	m.book(b, sentry)
	m.endSentry(sentry)
	m.freezes.Drop(origin)
	return nil
}

// diskOf returns how much b's files take, in MiB, or 0 if its sentry does not say.
func (m *Node) diskOf(ctx context.Context, b *instance) float64 {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	st, err := m.stats(ctx, b)
	if err != nil {
		return 0
	}
	return st.Disk.UsedMiB
}

// abortHibernation lets b go on as it was, after it could not be hibernated.
func (m *Node) abortHibernation(b *instance) error {
	ctx, cancel := context.WithTimeout(context.Background(), m.timeout)
	defer cancel()
	b.mu.Lock()
	rec, sentry := b.rec, b.sentry
	b.mu.Unlock()
	if sentry == nil {
		return nil // it ended, which is told in another way
	}
	var err error
	if rec.Sandbox.State == api.StateRunning {
		_, err = sentry.Call(ctx, &wire.Call{Op: wire.OpResume}, nil)
		if code := api.CodeOf(err); code == api.CodeWrongState || code == api.CodeSandboxDied {
			err = nil // it was not paused yet
		}
	}
	return errors.Join(err, m.store.Apply(ctx, store.Change{Table: store.Sandboxes, ID: b.id, Doc: rec}))
}

// Wake lets a hibernated sandbox run again. It keeps its id.
func (m *Node) Wake(ctx context.Context, ref string) (*api.Sandbox, error) {
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	b.op.Lock()
	defer b.op.Unlock()
	if v := b.view(); v.State != api.StateHibernated {
		return nil, api.Errorf(api.CodeWrongState, "sandbox %s is %s, not hibernated", b.id, v.State)
	}
	if err := m.wake(ctx, b); err != nil {
		return nil, err
	}
	v := b.view()
	return &v, nil
}

// awaken lets b run if it sleeps, for a request that needs it.
func (m *Node) awaken(ctx context.Context, b *instance) error {
	b.op.Lock()
	defer b.op.Unlock()
	b.mu.Lock()
	state, dozing, may := b.rec.Sandbox.State, b.rec.Dozing, b.rec.Sandbox.Lifecycle.WakesByItself()
	b.mu.Unlock()
	switch {
	case may && state == api.StateHibernated:
		return m.wake(ctx, b)
	case may && state == api.StatePaused && dozing:
		return m.setPaused(ctx, b, false)
	}
	return nil // somebody was faster, or the caller will find out
}

// wake loads the snapshot of b, which is hibernated, into a new sentry. The caller
// holds b.op. On error b stays as it is.
func (m *Node) wake(ctx context.Context, b *instance) (err error) {
	ctx, ended := m.observe(ctx, "wake")
	defer ended(&err)
	if err := m.mayRun(b); err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	admitted, err := m.AdmitAgain(ctx)
	if err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	defer admitted()
	b.mu.Lock()
	d := draft{rec: b.rec}
	b.mu.Unlock()
	f, err := m.hibernation(ctx, b)
	if err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	defer m.freezes.Drop(f)
	d.rec.Base = f.ID
	if err := m.reload(ctx, b, d, f, nil); err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	m.publish(api.EventWoken, b, api.Event{})
	return nil
}

// hibernation returns the freeze of b, which is hibernated. The caller owns a
// reference, and holds b.op.
func (m *Node) hibernation(ctx context.Context, b *instance) (*freezes.Freeze, error) {
	s := m.hibernated(b)
	if s == nil {
		return nil, api.Errorf(api.CodeCorrupt, "sandbox %s is %s, and the snapshot of that is gone", b.id, b.view().State)
	}
	return s.Open(ctx)
}

// hibernated returns the snapshot that b is on disk as, or nil.
func (m *Node) hibernated(b *instance) *snapshots.Snapshot {
	b.mu.Lock()
	id := b.rec.Hibernation
	b.mu.Unlock()
	return m.snapshots.Get(id)
}
