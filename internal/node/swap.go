package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
	"ramet.dev/ramet/internal/node/freezes"
	"ramet.dev/ramet/internal/node/selfcontrol"
	"ramet.dev/ramet/internal/node/snapshots"
	"ramet.dev/ramet/internal/node/spawn"
	"ramet.dev/ramet/internal/server/audit"
	"ramet.dev/ramet/internal/storage/store"
)

// Rollback returns a sandbox to a snapshot of it or of one of its ancestors. It
// keeps its id, name and limits. If it fails the sandbox is as it was.
func (m *Node) Rollback(ctx context.Context, ref, snapRef string) (_ *api.Sandbox, err error) {
	ctx, ended := m.observe(ctx, "rollback")
	defer ended(&err)
	b, err := m.resolve(ctx, ref)
	if err != nil {
		return nil, err
	}
	s, err := m.snapshots.Find(ctx, snapRef)
	if err != nil {
		return nil, err
	}
	return m.rollback(ctx, b, s)
}

func (m *Node) rollback(ctx context.Context, b *instance, s *snapshots.Snapshot) (*api.Sandbox, error) {
	b.op.Lock()
	defer b.op.Unlock()
	if _, err := b.running(api.StateRunning, api.StatePaused); err != nil && api.CodeOf(err) != api.CodeSandboxDied && b.view().State != api.StateHibernated {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	if err := m.mayRun(b); err != nil {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	b.mu.Lock()
	d, runs := draft{rec: b.rec}, b.sentry != nil
	b.mu.Unlock()
	if of := s.View().Sandbox; of != b.id && !slices.Contains(d.rec.Ancestors, of) {
		return nil, api.Errorf(api.CodeConflict, "snapshot %s is of sandbox %s, which is no ancestor of %s", s.ID, of, b.id)
	}
	if !runs {
		admitted, err := m.AdmitAgain(ctx)
		if err != nil {
			return nil, fmt.Errorf("rollback: %w", err)
		}
		defer admitted()
	}
	f, err := s.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	defer m.freezes.Drop(f)
	d.rec.Base = ""
	if err := m.reload(ctx, b, d, f, selfcontrol.AnswerTo(s.Record().Asked, restoredFrom(s)(&d.rec.Sandbox))); err != nil {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	v := b.view()
	s.Note(ctx)
	m.publishView(api.EventRolledBack, &v, api.Event{Snapshot: s.ID})
	return &v, nil
}

// openOrigin opens the files that sandboxes of an image are loaded from f with. The caller
// holds a reference on f until the origin is closed.
func (m *Node) openOrigin(f *freezes.Freeze, image string) (*spawn.Origin, error) {
	files, err := m.freezes.OpenFiles(f)
	if err != nil {
		return nil, err
	}
	img, err := m.OpenImage(image)
	if err != nil {
		return nil, err
	}
	return spawn.NewOrigin(f, img, files), nil
}

// reload has b, which exists, run with the state of f and the identity of d. What b had
// before ends. The caller holds b.op. On error nothing changed.
func (m *Node) reload(ctx context.Context, b *instance, d draft, f *freezes.Freeze, answer *wire.ControlAnswer) error {
	from, err := m.openOrigin(f, d.rec.Sandbox.Image)
	if err != nil {
		return err
	}
	defer from.Close()
	sentry, err := m.prepare(ctx, &d, nil)
	if err != nil {
		return err
	}
	starting, cancel := spawn.Beginning(ctx)
	defer cancel()
	_, err = from.Load(starting, sentry, &d.rec.Sandbox, wire.Load{Answer: answer})
	d.rec.Freeze = f.ID
	if err == nil {
		err = spawn.Detach(ctx, sentry)
	}
	if err == nil {
		m.freezes.Hold(f, 1)
		if err = m.install(ctx, []placement{{b: b, rec: d.rec, sentry: sentry, freeze: f}}, m.freezes.Stored(f)); err != nil {
			m.freezes.Drop(f)
		}
	}
	if err != nil {
		sentry.Kill()
	}
	return err
}

// Promote gives a child's state to its parent: the parent's id and name go on
// with the child's files, memory and processes. The child is gone after that.
func (m *Node) Promote(ctx context.Context, childRef string) (_ *api.Sandbox, err error) {
	ctx, ended := m.observe(ctx, "promote")
	defer ended(&err)
	child, err := m.resolve(ctx, childRef)
	if err != nil {
		return nil, err
	}
	parentID := child.view().Parent
	if parentID == "" {
		return nil, api.Errorf(api.CodeConflict, "sandbox %s has no parent to promote it to", child.id)
	}
	parent, err := m.resolve(ctx, parentID)
	if err != nil {
		return nil, api.Errorf(api.CodeConflict, "the parent of %s, %s, is gone", child.id, parentID)
	}
	// The child first: a parent never locks its children.
	child.op.Lock()
	defer child.op.Unlock()
	parent.op.Lock()
	defer parent.op.Unlock()
	sentry, err := child.running(api.StateRunning)
	if err != nil {
		return nil, fmt.Errorf("promote: %w", err)
	}
	parent.mu.Lock()
	rec := parent.rec
	parent.mu.Unlock()
	if rec.Sandbox.State == api.StateDestroyed { // while we waited
		return nil, api.Errorf(api.CodeConflict, "the parent of %s, %s, is gone", child.id, parentID)
	}
	err = spawn.Identify(ctx, sentry, &rec.Sandbox)
	if err == nil {
		err = m.handOver(ctx, child, parent, rec, sentry)
	}
	if err != nil {
		was := child.view()
		return nil, fmt.Errorf("promote: %w", errors.Join(err, spawn.Identify(context.WithoutCancel(ctx), sentry, &was)))
	}
	v := parent.view()
	audit.Of(ctx).Set(func(d *api.AuditDetails) { d.Parent = parent.id })
	m.publish(api.EventDestroyed, child, api.Event{})
	m.publishView(api.EventPromoted, &v, api.Event{Child: child.id})
	return &v, nil
}

// handOver moves the child's sentry and freeze to the parent.
func (m *Node) handOver(ctx context.Context, child, parent *instance, rec record, sentry *launch.Sentry) error {
	child.mu.Lock()
	rec.Freeze, rec.Process, rec.Base = child.rec.Freeze, child.rec.Process, ""
	rec.Sandbox.Isolation = child.rec.Sandbox.Isolation
	f := child.freeze
	// From here on the child's watcher leaves the sentry alone.
	child.sentry, child.freeze = nil, nil
	name := child.rec.Sandbox.Name
	child.mu.Unlock()
	err := spawn.Detach(ctx, sentry)
	if err == nil {
		err = m.install(ctx, []placement{{b: parent, rec: rec, sentry: sentry, freeze: f}}, store.Change{Table: store.Sandboxes, ID: child.id})
	}
	if err != nil {
		child.mu.Lock()
		child.sentry, child.freeze = sentry, f
		child.mu.Unlock()
		m.watch(child, sentry) // its watcher is gone if it ended meanwhile
		return err
	}
	child.mu.Lock()
	m.become(child, api.StateDestroyed, "") // for those who wait for it
	child.mu.Unlock()
	m.mu.Lock()
	delete(m.instances, child.id)
	m.unreserveLocked(rec.tenant(), []string{name})
	m.mu.Unlock()
	return nil
}
