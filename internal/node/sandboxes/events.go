package sandboxes

import (
	"context"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/observe/events"
	"ramet.dev/ramet/internal/service/access"
)

// keptEvents is how many events are kept, some 1 KiB each.
const keptEvents = 4096

// EventLog is what happened to the sandboxes of a registry.
type EventLog struct {
	registry *Registry
	log      *events.Log
}

// Publish publishes an event of a sandbox as it is now.
func (l *EventLog) Publish(kind api.EventKind, b *Instance, e api.Event) {
	s := b.View()
	l.PublishAs(kind, b, &s, e)
}

// PublishAs publishes an event of a sandbox as it was then.
func (l *EventLog) PublishAs(kind api.EventKind, b *Instance, s *api.Sandbox, e api.Event) {
	e.Kind, e.SandboxID, e.Name, e.Tenant, e.Line = kind, s.ID, s.Name, access.OfRecord(s.Tenant), b.Lineage()
	l.log.Publish(e)
}

// publishCreated tells of a new sandbox.
func (l *EventLog) publishCreated(b *Instance) {
	v := b.View()
	l.PublishAs(api.EventCreated, b, &v, api.Event{Parent: v.Parent, Snapshot: v.Snapshot})
}

// Now returns the number of the last event.
func (l *EventLog) Now() int64 { return l.log.Now() }

// Events calls each with what happened and, if the request says so, with what
// happens, until ctx ends or the one sandbox that it asks for is destroyed. It
// calls began before, when nothing that happens is missed any more.
func (l *EventLog) Events(ctx context.Context, req api.EventRequest, began func(), each func(api.Event) error) error {
	wanted := map[api.EventKind]bool{}
	for _, k := range req.Kinds {
		if err := k.Valid("kind"); err != nil {
			return err
		}
		wanted[k] = true
	}
	since := req.Since
	switch {
	case since < -1:
		return api.Invalid("since", "%d is not a sequence number, 0 for all or -1 for those from now on", since)
	case since == -1:
		since = l.log.Now() // before the sandbox is looked up: it may be destroyed then
	}
	id := ""
	if req.Sandbox != "" {
		b, err := l.registry.Find(ctx, req.Sandbox)
		if err != nil {
			return err
		}
		id = b.ID
	}
	began()
	caller := access.From(ctx)
	return l.log.Read(ctx, since, req.Follow, func(e api.Event) (bool, error) {
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
