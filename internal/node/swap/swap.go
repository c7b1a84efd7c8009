package swap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/meter"
	"ramet.dev/ramet/internal/node/quota"
	"ramet.dev/ramet/internal/node/sandboxes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/node/trust"
	"ramet.dev/ramet/internal/service/audit"
	"ramet.dev/ramet/internal/storage/store"
)

// Config is what a Swapper works with.
type Config struct {
	Sandboxes *sandboxes.Registry
	Snapshots *snapshots.Set
	Freezes   *freezes.Table
	Spawner   *spawn.Spawner
	Trust     Trust
	Admission *quota.Admission
	Meter     meter.Meter
}

// Trust has sandboxes trust the authorities that they are to trust.
type Trust interface {
	// OfFrozen plans for a sandbox that is loaded.
	OfFrozen(ctx context.Context, rec *sandboxes.Record, from trust.Frozen) (*trust.Plan, error)
	// OfRunning serves a sandbox that runs in s, and completes its record to be.
	OfRunning(ctx context.Context, b *sandboxes.Instance, rec *sandboxes.Record, s *launch.Sentry) error
}

// Swapper gives sandboxes another state. It is safe for concurrent use.
type Swapper struct{ cfg Config }

// New returns a swapper.
func New(cfg Config) *Swapper { return &Swapper{cfg} }

// Rollback returns a sandbox to a snapshot of it or of one of its ancestors. It
// keeps its id, name and limits. If it fails the sandbox is as it was.
func (w *Swapper) Rollback(ctx context.Context, ref, snapRef string) (_ *api.Sandbox, err error) {
	ctx, ended := w.cfg.Meter.Observe(ctx, "rollback")
	defer ended(&err)
	b, err := w.cfg.Sandboxes.Find(ctx, ref)
	if err != nil {
		return nil, err
	}
	s, err := w.cfg.Snapshots.Find(ctx, snapRef)
	if err != nil {
		return nil, err
	}
	return w.RollbackTo(ctx, b, s)
}

// RollbackTo is Rollback.
func (w *Swapper) RollbackTo(ctx context.Context, b *sandboxes.Instance, s *snapshots.Snapshot) (*api.Sandbox, error) {
	b.Op.Lock()
	defer b.Op.Unlock()
	if _, err := b.Running(api.StateRunning, api.StatePaused); err != nil && api.CodeOf(err) != api.CodeSandboxDied && b.View().State != api.StateHibernated {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	if err := w.cfg.Admission.MayRun(b.Tenant(), quota.Tree(b.Lineage())); err != nil {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	rec, runs := b.Record(), b.Sentry() != nil
	if of := s.View().Sandbox; of != b.ID && !slices.Contains(rec.Ancestors, of) {
		return nil, api.Errorf(api.CodeConflict, "snapshot %s is of sandbox %s, which is no ancestor of %s", s.ID, of, b.ID)
	}
	if !runs {
		admitted, err := w.cfg.Admission.AdmitAgain(ctx)
		if err != nil {
			return nil, fmt.Errorf("rollback: %w", err)
		}
		defer admitted()
	}
	f, err := s.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	defer w.cfg.Freezes.Drop(f)
	rec.Base = ""
	snap := s.Record()
	var since time.Time // of an ancestor's snapshot, which may be younger than b, the rollback undoes all
	if snap.Snapshot.Sandbox == b.ID {
		since = snap.Snapshot.CreatedAt
	}
	rec.Undo(since, b.Sentry())
	from := trust.Frozen{Freeze: f, Source: &snap.Source, Certificate: snap.Trusts()}
	if err := w.Reload(ctx, b, rec, from, selfcontrol.AnswerTo(snap.Asked, selfcontrol.RestoredFrom(s.ID, s.Label())(&rec.Sandbox))); err != nil {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	v := b.View()
	s.Note(ctx)
	w.cfg.Sandboxes.Events.PublishAs(api.EventRolledBack, b, &v, api.Event{Snapshot: s.ID})
	return &v, nil
}

// Reload has b, which exists, run with a state and the record rec. What b had before ends, and its
// network stays: the state may be from before that. The caller holds b.Op. On error nothing changed.
func (w *Swapper) Reload(ctx context.Context, b *sandboxes.Instance, rec sandboxes.Record, from trust.Frozen, answer *wire.ControlAnswer) error {
	f := from.Freeze
	origin, err := w.cfg.Spawner.OpenOrigin(f, rec.Sandbox.Image)
	if err != nil {
		return err
	}
	defer origin.Close()
	trust.Inherit(&rec, from.Source)
	rec.Sandbox.Volumes = from.Source.Volumes // which are part of the state
	trusted, err := w.cfg.Trust.OfFrozen(ctx, &rec, from)
	if err != nil {
		return err
	}
	trusted.Complete(&rec)
	sentry, process, err := w.cfg.Spawner.Prepare(ctx, f.Engine, &rec.Sandbox, nil)
	if err != nil {
		return err
	}
	starting, cancel := spawn.Beginning(ctx)
	defer cancel()
	_, channel, err := origin.Load(starting, sentry, rec.ForSentry(), wire.Load{Answer: answer})
	if channel != nil {
		defer channel.Close()
	}
	rec.Freeze, rec.Process = f.ID, process
	if err == nil {
		err = trusted.Write(starting, sentry)
	}
	if err == nil {
		err = spawn.Detach(ctx, sentry)
	}
	if err == nil {
		w.cfg.Freezes.Hold(f, 1)
		if err = w.cfg.Sandboxes.Install(ctx, []sandboxes.Placement{{Instance: b, Record: rec, Sentry: sentry, Freeze: f, Channel: channel}}, w.cfg.Freezes.Stored(f)); err != nil {
			w.cfg.Freezes.Drop(f)
		}
	}
	if err != nil {
		sentry.Kill()
	}
	return err
}

// Promote gives a child's state to its parent: the parent's id and name go on
// with the child's files, memory and processes. The child is gone after that.
func (w *Swapper) Promote(ctx context.Context, childRef string) (_ *api.Sandbox, err error) {
	ctx, ended := w.cfg.Meter.Observe(ctx, "promote")
	defer ended(&err)
	child, err := w.cfg.Sandboxes.Find(ctx, childRef)
	if err != nil {
		return nil, err
	}
	parentID := child.View().Parent
	if parentID == "" {
		return nil, api.Errorf(api.CodeConflict, "sandbox %s has no parent to promote it to", child.ID)
	}
	parent, err := w.cfg.Sandboxes.Find(ctx, parentID)
	if err != nil {
		return nil, api.Errorf(api.CodeConflict, "the parent of %s, %s, is gone", child.ID, parentID)
	}
	// The child first: a parent never locks its children.
	child.Op.Lock()
	defer child.Op.Unlock()
	parent.Op.Lock()
	defer parent.Op.Unlock()
	sentry, err := child.Running(api.StateRunning)
	if err != nil {
		return nil, fmt.Errorf("promote: %w", err)
	}
	rec := parent.Record()
	if rec.Sandbox.State == api.StateDestroyed { // while we waited
		return nil, api.Errorf(api.CodeConflict, "the parent of %s, %s, is gone", child.ID, parentID)
	}
	was := child.Record()
	rec.Undo(w.branchedAt(&was), parent.Sentry())
	err = w.inherit(ctx, child, &was, &rec, sentry)
	if err == nil {
		err = spawn.Identify(ctx, sentry, rec.ForSentry())
	}
	if err == nil {
		err = w.handOver(ctx, child, parent, rec, sentry)
	}
	if err != nil {
		return nil, fmt.Errorf("promote: %w", errors.Join(err, spawn.Identify(context.WithoutCancel(ctx), sentry, was.ForSentry())))
	}
	v := parent.View()
	audit.Of(ctx).Set(func(d *api.AuditDetails) { d.Parent = parent.ID })
	w.cfg.Sandboxes.Events.Publish(api.EventDestroyed, child, api.Event{})
	w.cfg.Sandboxes.Events.PublishAs(api.EventPromoted, parent, &v, api.Event{Child: child.ID})
	return &v, nil
}

// branchedAt returns when the state of a child parted from that of its parent.
func (w *Swapper) branchedAt(child *sandboxes.Record) time.Time {
	if s := w.cfg.Snapshots.Get(child.Sandbox.Snapshot); s != nil {
		return s.View().CreatedAt
	}
	return child.Sandbox.CreatedAt // or before, if the snapshot is gone that it was restored from
}

// inherit completes the record of a parent that goes on with the state of a child, and has the programs
// of the child trust what the network of the parent needs.
func (w *Swapper) inherit(ctx context.Context, child *sandboxes.Instance, was, rec *sandboxes.Record, sentry *launch.Sentry) error {
	rec.Inherit(was)
	trust.Inherit(rec, &was.Sandbox)
	if !trust.Lacks(&was.Sandbox, was.Reach.Certificate, rec) {
		return nil
	}
	return w.cfg.Trust.OfRunning(ctx, child, rec, sentry)
}

// handOver moves the child's sentry and freeze to the parent.
func (w *Swapper) handOver(ctx context.Context, child, parent *sandboxes.Instance, rec sandboxes.Record, sentry *launch.Sentry) error {
	// From here on the child's watcher leaves the sentry alone.
	from, _, f := child.Take()
	rec.Freeze, rec.Process, rec.Base = from.Freeze, from.Process, ""
	rec.Sandbox.Isolation = from.Sandbox.Isolation
	err := spawn.Detach(ctx, sentry)
	if err == nil {
		err = w.cfg.Sandboxes.Install(ctx, []sandboxes.Placement{{Instance: parent, Record: rec, Sentry: sentry, Freeze: f}}, store.Change{Table: store.Sandboxes, ID: child.ID})
	}
	if err != nil {
		child.Give(sentry, f)
		w.cfg.Sandboxes.Watch(child, sentry, nil) // its watcher is gone if it ended meanwhile
		return err
	}
	w.cfg.Sandboxes.Forget(child)
	return nil
}
