package node

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/service/access"
)

// keptEvents is how many events are kept, some 1 KiB each.
const keptEvents = 4096

// publishView publishes what happened to a sandbox that is not destroyed yet.
func (m *Node) publishView(kind api.EventKind, s *api.Sandbox, e api.Event) {
	m.mu.Lock()
	b := m.instances[s.ID]
	m.mu.Unlock()
	e.Line = []string{s.ID} // all that is known if somebody was faster and destroyed it
	if b != nil {
		b.mu.Lock()
		e.Line = b.rec.lineage()
		b.mu.Unlock()
	}
	m.publishEvent(kind, s, e)
}

// publish is tell for a sandbox.
func (m *Node) publish(kind api.EventKind, b *instance, e api.Event) {
	b.mu.Lock()
	s := b.rec.Sandbox
	e.Line = b.rec.lineage()
	b.mu.Unlock()
	m.publishEvent(kind, &s, e)
}

func (m *Node) publishEvent(kind api.EventKind, s *api.Sandbox, e api.Event) {
	e.Kind, e.SandboxID, e.Name, e.Tenant = kind, s.ID, s.Name, access.OfRecord(s.Tenant)
	m.events.Publish(e)
}

// publishCreated tells of new sandboxes.
func (m *Node) publishCreated(boxes ...*instance) {
	for _, b := range boxes {
		if b != nil {
			v := b.view()
			m.publishView(api.EventCreated, &v, api.Event{Parent: v.Parent, Snapshot: v.Snapshot})
		}
	}
}

// Events calls each with what happened and, if the request says so, with what
// happens, until ctx ends or the one sandbox that it asks for is destroyed. It
// calls began before, when nothing that happens is missed any more.
func (m *Node) Events(ctx context.Context, req api.EventRequest, began func(), each func(api.Event) error) error {
	wanted := map[api.EventKind]bool{}
	for _, k := range req.Kinds {
		if !k.Valid() {
			return api.Invalid("kind", "%q is none of %v", k, api.EventKinds)
		}
		wanted[k] = true
	}
	since := req.Since
	switch {
	case since < -1:
		return api.Invalid("since", "%d is not a sequence number, 0 for all or -1 for those from now on", since)
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
	return m.events.Read(ctx, since, req.Follow, func(e api.Event) (bool, error) {
		if e.IsGap() {
			return false, each(e)
		}
		if !caller.Sees(e.Tenant, e.Line) {
			return false, nil
		}
		if id != "" && e.SandboxID != id || len(wanted) > 0 && !wanted[e.Kind] {
			return e.Kind == api.EventDestroyed && id != "" && e.SandboxID == id, nil
		}
		if err := each(e); err != nil {
			return true, err
		}
		return e.Kind == api.EventDestroyed && id != "", nil
	})
}
