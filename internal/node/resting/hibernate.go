package resting

import (
	"context"
	"errors"
	"fmt"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/capture"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/node/trust"
)

// Hibernate puts a sandbox to disk and ends its processes on the host.
func (r *Rester) Hibernate(ctx context.Context, ref string) (*api.Sandbox, error) {
	b, err := r.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	return r.hibernate(ctx, b, nil)
}

// hibernate is Hibernate. With idle it does nothing if the sandbox is used, and ends
// early when somebody wants to.
func (r *Rester) hibernate(ctx context.Context, b *sandboxes.Instance, idle sandboxes.Idleness) (*api.Sandbox, error) {
	b.Op.Lock()
	defer b.Op.Unlock()
	return r.hibernateLocked(ctx, b, idle)
}

// hibernateLocked is hibernate. The caller holds b.Op.
func (r *Rester) hibernateLocked(ctx context.Context, b *sandboxes.Instance, idle sandboxes.Idleness) (*api.Sandbox, error) {
	ctx, done, began := b.Rest(ctx, r.cfg.Clock.Now(), idle, api.StateRunning, api.StatePaused)
	if !began {
		if idle != nil {
			return nil, nil
		}
		if err := alreadyIn(b, api.StateHibernated); err != nil {
			return nil, err
		}
		_, err := b.Running(api.StateRunning, api.StatePaused)
		return nil, err
	}
	defer done()
	defer r.cfg.Images.UseImage(b.View().Image)()
	rec := b.Record()
	rec.Resting = true
	if err := r.cfg.Store.Apply(ctx, rec.Stored()); err != nil {
		return nil, fmt.Errorf("hibernate: %w", err)
	}
	err := r.writeHibernation(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("hibernate: %w", errors.Join(err, r.abortHibernation(b)))
	}
	v := b.View()
	r.cfg.Sandboxes.Events.PublishAs(api.EventHibernated, b, &v, api.Event{})
	return &v, nil
}

// writeHibernation freezes b for good, writes it to disk and ends its sentry.
func (r *Rester) writeHibernation(ctx context.Context, b *sandboxes.Instance) (err error) {
	ctx, ended := r.cfg.Meter.Observe(ctx, "hibernate")
	defer ended(&err)
	disk := r.diskOf(ctx, b)
	f, frozen, err := r.cfg.Freezer.Capture(ctx, b, api.SnapshotRequest{}, true)
	if err != nil {
		return err
	}
	frozen.Private = b.ID
	s, err := r.cfg.Snapshots.Add(f, frozen)
	if err != nil {
		r.cfg.Freezes.Drop(f)
		return err
	}
	if err := s.Write(ctx, f, capture.Chain(b)); err != nil {
		s.Remove()
		return err
	}
	was := b.Record()
	rec := was
	rec.DiskMiB = disk
	if err := rec.Become(api.StateHibernated, ""); err != nil {
		s.Remove()
		return err
	}
	rec.Hibernation, rec.Freeze, rec.Process, rec.Resting, rec.Dozing = s.ID, "", spawn.Process{}, false, false
	err = r.cfg.Store.Apply(ctx, s.ReadyRecord(), rec.Stored())
	if err == nil {
		err = r.cfg.Store.Sync(ctx) // it is acknowledged, and may outlive the host
	}
	if err != nil {
		back := r.cfg.Store.Apply(context.WithoutCancel(ctx), was.Stored())
		if back == nil { // else the record may say that it is all there is of the sandbox
			s.Remove()
		}
		return errors.Join(err, back)
	}
	sentry, origin := b.Replace(rec, nil, nil)
	s.Ready() // not before: nobody would need it
	r.cfg.Sandboxes.End(b, sentry, origin)
	return nil
}

// diskOf returns how much b's files take, in MiB, or 0 if its sentry does not say.
func (r *Rester) diskOf(ctx context.Context, b *sandboxes.Instance) float64 {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	st, err := r.cfg.Inspector.StatsOf(ctx, b)
	if err != nil {
		return 0
	}
	return st.Disk.UsedMiB
}

// abortHibernation lets b go on as it was, after it could not be hibernated.
func (r *Rester) abortHibernation(b *sandboxes.Instance) error {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.Timeout)
	defer cancel()
	rec, sentry := b.Record(), b.Sentry()
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
	return errors.Join(err, r.cfg.Store.Apply(ctx, rec.Stored()))
}

// Wake lets a hibernated sandbox run again. It keeps its id.
func (r *Rester) Wake(ctx context.Context, ref string) (*api.Sandbox, error) {
	b, err := r.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	b.Op.Lock()
	defer b.Op.Unlock()
	if v := b.View(); v.State != api.StateHibernated {
		return nil, api.Errorf(api.CodeWrongState, "sandbox %s is %s, not hibernated", b.ID, v.State)
	}
	if err := r.wake(ctx, b); err != nil {
		return nil, err
	}
	v := b.View()
	return &v, nil
}

// awaken lets b run if it sleeps, for a request that needs it.
func (r *Rester) awaken(ctx context.Context, b *sandboxes.Instance) error {
	b.Op.Lock()
	defer b.Op.Unlock()
	rec := b.Record()
	state, may := rec.Sandbox.State, rec.Sandbox.Lifecycle.WakesByItself()
	switch {
	case may && state == api.StateHibernated:
		return r.wake(ctx, b)
	case may && state == api.StatePaused && rec.Dozing:
		return r.SetPaused(ctx, b, false)
	}
	return nil // somebody was faster, or the caller will find out
}

// wake loads the snapshot of b, which is hibernated, into a new sentry. The caller
// holds b.Op. On error b stays as it is.
func (r *Rester) wake(ctx context.Context, b *sandboxes.Instance) (err error) {
	ctx, ended := r.cfg.Meter.Observe(ctx, "wake")
	defer ended(&err)
	if err := r.cfg.Admission.MayRun(b.Tenant(), quota.Tree(b.Lineage())); err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	admitted, err := r.cfg.Admission.AdmitAgain(ctx)
	if err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	defer admitted()
	rec := b.Record()
	from, err := r.Hibernation(ctx, b)
	if err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	defer r.cfg.Freezes.Drop(from.Freeze)
	rec.Base = from.Freeze.ID
	if err := r.cfg.Swapper.Reload(ctx, b, rec, from, nil); err != nil {
		return fmt.Errorf("wake: %w", err)
	}
	r.cfg.Sandboxes.Events.Publish(api.EventWoken, b, api.Event{})
	return nil
}

// Hibernation returns the state of b, which is hibernated. The caller owns a
// reference on its freeze, and holds b.Op.
func (r *Rester) Hibernation(ctx context.Context, b *sandboxes.Instance) (trust.Frozen, error) {
	s := r.cfg.Snapshots.Get(b.Record().Hibernation)
	if s == nil {
		return trust.Frozen{}, api.Errorf(api.CodeCorrupt, "sandbox %s is %s, and the snapshot of that is gone", b.ID, b.View().State)
	}
	f, err := s.Open(ctx)
	rec := s.Record()
	return trust.Frozen{Freeze: f, Source: &rec.Source, Certificate: rec.Reach.Certificate}, err
}
