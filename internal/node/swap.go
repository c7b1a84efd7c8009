package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/engine/launch"
	"ramet.dev/ramet/internal/engine/wire"
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
	s, err := m.resolveSnapshot(ctx, snapRef)
	if err != nil {
		return nil, err
	}
	return m.rollback(ctx, b, s)
}

func (m *Node) rollback(ctx context.Context, b *instance, s *snapshot) (*api.Sandbox, error) {
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
	if of := s.view().Sandbox; of != b.id && !slices.Contains(d.rec.Ancestors, of) {
		return nil, api.Errorf(api.CodeConflict, "snapshot %s is of sandbox %s, which is no ancestor of %s", s.id, of, b.id)
	}
	if !runs {
		admitted, err := m.admitAgain(ctx)
		if err != nil {
			return nil, fmt.Errorf("rollback: %w", err)
		}
		defer admitted()
	}
	f, err := m.source(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	defer m.drop(f)
	sentry, err := m.loadAs(ctx, &d, f, answerTo(s.rec.Asked, s.restored(&d.rec.Sandbox)))
	if err != nil {
		return nil, fmt.Errorf("rollback: %w", err)
	}
	d.rec.Freeze, d.rec.Base = f.id, ""
	d.rec.Sandbox.State, d.rec.Sandbox.Reason = api.StateRunning, ""
	m.hold(f, 1)
	if err := m.replace(ctx, b, d.rec, sentry, f, store.Change{Table: store.Freezes, ID: f.id, Doc: m.recordOf(f)}); err != nil {
		sentry.Kill()
		m.drop(f)
		return nil, fmt.Errorf("rollback: %w", err)
	}
	v := b.view()
	s.note(ctx)
	m.tell(api.EventRolledBack, &v, api.Event{Snapshot: s.id})
	return &v, nil
}

// loadAs starts a sentry with the state of f and the identity of d.
func (m *Node) loadAs(ctx context.Context, d *draft, f *freeze, answer *wire.ControlAnswer) (*launch.Sentry, error) {
	files, err := m.childFiles(f, d.rec.Sandbox.Image)
	if err != nil {
		return nil, err
	}
	defer files[1].Close()
	sentry, err := m.prepare(ctx, d, nil)
	if err != nil {
		return nil, err
	}
	call := &wire.Call{Op: wire.OpLoad, Load: &wire.Load{Common: d.common(), Generations: f.generations, Answer: answer}}
	if err := begin(ctx, sentry, call, files...); err != nil {
		sentry.Kill()
		return nil, err
	}
	return sentry, nil
}

// beginPatience is how long a sandbox may take to begin to run. What is large is read
// when it is used, so this takes milliseconds.
const beginPatience = time.Minute

// begin makes the call that makes a blank sentry a sandbox. It does not wait for ever: a
// sentry does, for a process of its platform that somebody killed.
func begin(ctx context.Context, sentry *launch.Sentry, call *wire.Call, files ...*os.File) error {
	late := api.Errorf(api.CodeTimeout, "the sandbox did not begin to run within %v", beginPatience)
	ctx, cancel := context.WithTimeoutCause(ctx, beginPatience, late)
	defer cancel()
	_, err := sentry.Call(ctx, call, nil, files...)
	return err
}

// replace gives b another record, sentry and freeze, whose reference it takes
// over, and ends what it had. The caller holds b.op. On error nothing changed.
func (m *Node) replace(ctx context.Context, b *instance, rec record, sentry *launch.Sentry, f *freeze, more ...store.Change) error {
	if err := detach(ctx, sentry); err != nil {
		return err
	}
	rec.Hibernation, rec.DiskMiB, rec.Resting, rec.Dozing = "", 0, false, false
	if err := m.store.Apply(ctx, append(more, store.Change{Table: store.Sandboxes, ID: b.id, Doc: rec})...); err != nil {
		return err
	}
	b.mu.Lock()
	oldSentry, oldFreeze := b.sentry, b.freeze
	b.rec, b.sentry, b.freeze = rec, sentry, f
	b.mu.Unlock()
	m.watch(b, sentry)
	m.book(b, oldSentry)
	m.endSentry(oldSentry)
	m.drop(oldFreeze)
	m.collectSnapshots()
	m.touch(b)
	m.arm(b)
	return nil
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
	err = m.identify(ctx, sentry, &rec.Sandbox)
	if err == nil {
		err = m.handOver(ctx, child, parent, rec, sentry)
	}
	if err != nil {
		was := child.view()
		return nil, fmt.Errorf("promote: %w", errors.Join(err, m.identify(context.WithoutCancel(ctx), sentry, &was)))
	}
	v := parent.view()
	audit.Of(ctx).Set(func(d *api.AuditDetails) { d.Parent = parent.id })
	m.tellOf(api.EventDestroyed, child, api.Event{})
	m.tell(api.EventPromoted, &v, api.Event{Child: child.id})
	return &v, nil
}

// identify makes a running sentry the sandbox s.
func (m *Node) identify(ctx context.Context, sentry *launch.Sentry, s *api.Sandbox) error {
	id := commonOf(s)
	if _, err := sentry.Call(ctx, &wire.Call{Op: wire.OpIdentify, Identify: &id}, nil); err != nil {
		return err
	}
	return sentry.SetLimits(groupLimits(s.Limits))
}

// handOver moves the child's sentry and freeze to the parent.
func (m *Node) handOver(ctx context.Context, child, parent *instance, rec record, sentry *launch.Sentry) error {
	child.mu.Lock()
	rec.Freeze, rec.process, rec.Base = child.rec.Freeze, child.rec.process, ""
	rec.Sandbox.State, rec.Sandbox.Reason = api.StateRunning, ""
	rec.Sandbox.Isolation = child.rec.Sandbox.Isolation
	f := child.freeze
	// From here on the child's watcher leaves the sentry alone.
	child.sentry, child.freeze = nil, nil
	name := child.rec.Sandbox.Name
	child.mu.Unlock()
	if err := m.replace(ctx, parent, rec, sentry, f, store.Change{Table: store.Sandboxes, ID: child.id}); err != nil {
		child.mu.Lock()
		child.sentry, child.freeze = sentry, f
		child.mu.Unlock()
		m.watch(child, sentry) // its watcher is gone if it ended meanwhile
		return err
	}
	child.mu.Lock()
	child.rec.Sandbox.State = api.StateDestroyed // for those who wait for it
	child.mu.Unlock()
	m.mu.Lock()
	delete(m.instances, child.id)
	m.unreserveLocked(rec.tenant(), []string{name})
	m.mu.Unlock()
	return nil
}
