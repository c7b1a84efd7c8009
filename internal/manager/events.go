package manager

import (
	"context"

	"ramet.dev/ramet/internal/access"
	"ramet.dev/ramet/internal/sandbox"
)

// keptEvents is how many events are kept, some 1 KiB each.
const keptEvents = 4096

// tell publishes what happened to a sandbox that is not destroyed yet.
func (m *Manager) tell(kind sandbox.EventKind, s *sandbox.Sandbox, e sandbox.Event) {
	m.mu.Lock()
	b := m.boxes[s.ID]
	m.mu.Unlock()
	e.Line = []string{s.ID} // all that is known if somebody was faster and destroyed it
	if b != nil {
		b.mu.Lock()
		e.Line = b.rec.line()
		b.mu.Unlock()
	}
	m.publish(kind, s, e)
}

// tellOf is tell for a box.
func (m *Manager) tellOf(kind sandbox.EventKind, b *box, e sandbox.Event) {
	b.mu.Lock()
	s := b.rec.Sandbox
	e.Line = b.rec.line()
	b.mu.Unlock()
	m.publish(kind, &s, e)
}

func (m *Manager) publish(kind sandbox.EventKind, s *sandbox.Sandbox, e sandbox.Event) {
	e.Kind, e.SandboxID, e.Name, e.Tenant = kind, s.ID, s.Name, tenantOf(s.Tenant)
	m.events.Publish(e)
}

// tellCreated tells of new sandboxes.
func (m *Manager) tellCreated(boxes ...*box) {
	for _, b := range boxes {
		if b != nil {
			v := b.view()
			m.tell(sandbox.EventCreated, &v, sandbox.Event{Parent: v.Parent, Snapshot: v.Snapshot})
		}
	}
}

// Events calls each with what happened and, if the request says so, with what
// happens, until ctx ends or the one sandbox that it asks for is destroyed. It
// calls began before, when nothing that happens is missed any more.
func (m *Manager) Events(ctx context.Context, req sandbox.EventRequest, began func(), each func(sandbox.Event) error) error {
	wanted := map[sandbox.EventKind]bool{}
	for _, k := range req.Kinds {
		if !k.Valid() {
			return sandbox.Invalid("kind", "%q is none of %v", k, sandbox.EventKinds)
		}
		wanted[k] = true
	}
	since := req.Since
	switch {
	case since < -1:
		return sandbox.Invalid("since", "%d is not a sequence number, 0 for all or -1 for those from now on", since)
	case since == -1:
		since = m.events.Now() // before the sandbox is looked up: it may be destroyed then
	}
	id := ""
	if req.Sandbox != "" {
		b, err := m.resolve(ctx, req.Sandbox)
		if err != nil {
			return err
		}
		id = b.id
	}
	began()
	caller := access.From(ctx)
	return m.events.Read(ctx, since, req.Follow, func(e sandbox.Event) (bool, error) {
		if e.IsGap() {
			return false, each(e)
		}
		if !caller.Sees(e.Tenant, e.Line) {
			return false, nil
		}
		if id != "" && e.SandboxID != id || len(wanted) > 0 && !wanted[e.Kind] {
			return e.Kind == sandbox.EventDestroyed && id != "" && e.SandboxID == id, nil
		}
		if err := each(e); err != nil {
			return true, err
		}
		return e.Kind == sandbox.EventDestroyed && id != "", nil
	})
}
