package api

import (
	"slices"
	"strings"
	"time"
)

// EventKind is the kind of an event. The words are part of the interface: their meaning never
// changes.
type EventKind string

// The kinds of events of a sandbox.
const (
	EventCreated     EventKind = "created" // by create, fork or restore
	EventForked      EventKind = "forked"
	EventSnapshotted EventKind = "snapshotted"
	EventRolledBack  EventKind = "rolled_back"
	EventPromoted    EventKind = "promoted" // it goes on with the state of a child, which is gone
	EventMerged      EventKind = "merged"
	EventCommitted   EventKind = "committed"
	EventUpdated     EventKind = "updated"          // its name or metadata
	EventNetwork     EventKind = "network_set"      // what it may reach was replaced
	EventDecided     EventKind = "network_decision" // about a connection, a look-up, a ping or a request; a sample of them
	EventPublished   EventKind = "port_published"   // on the host
	EventUnpublished EventKind = "port_unpublished" // by request
	EventPortRefused EventKind = "port_refused"     // requests to a published port lacked its token; once a minute at most
	EventPaused      EventKind = "paused"
	EventResumed     EventKind = "resumed"
	EventHibernated  EventKind = "hibernated"
	EventWoken       EventKind = "woken"
	EventStarted     EventKind = "process_started" // in the background
	EventExecuted    EventKind = "executed"        // a command in the foreground has ended
	EventRan         EventKind = "code_run"
	EventFailed      EventKind = "failed"
	EventDestroyed   EventKind = "destroyed"
	// EventUnrested says that an idle sandbox could not be hibernated or paused. The daemon
	// tries again with growing delays, and publishes the event once until the sandbox is
	// used.
	EventUnrested EventKind = "rest_failed"
)

// EventKinds are all kinds.
var EventKinds = []EventKind{
	EventCreated, EventForked, EventSnapshotted, EventRolledBack, EventPromoted, EventMerged, EventCommitted, EventUpdated, EventNetwork, EventDecided, EventPublished, EventUnpublished, EventPortRefused, EventPaused, EventResumed, EventHibernated, EventWoken,
	EventStarted, EventExecuted, EventRan, EventFailed, EventDestroyed, EventUnrested,
}

// Valid returns a CodeInvalid error that names field unless k is one of EventKinds.
func (k EventKind) Valid(field string) error {
	if slices.Contains(EventKinds, k) {
		return nil
	}
	known := make([]string, len(EventKinds))
	for i, e := range EventKinds {
		known[i] = string(e)
	}
	return Invalid(field, "%q is not one of %s", k, strings.Join(known, ", "))
}

// Event is something that happened to a sandbox. It has no contents of commands, files and
// environments.
type Event struct {
	// Seq grows with every event of a daemon, and from one daemon to the next.
	Seq       int64     `json:"seq" doc:"sequence number, which grows with every event"`
	Time      time.Time `json:"time" doc:"when it happened"`
	Kind      EventKind `json:"kind,omitempty" doc:"kind of the event; absent if lost or restarted is set"`
	SandboxID string    `json:"sandbox_id" doc:"sandbox that the event is about"`
	Name      string    `json:"name,omitempty" doc:"of the sandbox"`
	Parent    string    `json:"parent,omitempty" doc:"created: the sandbox that it was forked from, or that its snapshot is of"`
	Snapshot  string    `json:"snapshot,omitempty" doc:"id of the snapshot that the event is about"`
	Child     string    `json:"child,omitempty" doc:"promoted: the sandbox that the state comes from"`
	Children  []string  `json:"children,omitempty" doc:"forked: the new sandboxes"`
	From      []string  `json:"from,omitempty" doc:"merged: where the changes came from"`
	Paths     int       `json:"paths,omitempty" doc:"merged: how many paths changed"`
	Image     string    `json:"image,omitempty" doc:"committed: id of the image"`
	PID       int       `json:"pid,omitempty" doc:"process_started"`
	Context   string    `json:"context,omitempty" doc:"code_run"`
	ExitCode  *int      `json:"exit_code,omitempty" doc:"executed, code_run"`
	Port      int       `json:"port,omitempty" doc:"port_published, port_unpublished, port_refused: port in the sandbox"`
	Listen    string    `json:"listen,omitempty" doc:"port_published, port_unpublished, port_refused: address and port of the host"`
	Refused   int       `json:"refused,omitempty" doc:"port_refused: how many requests without the token came since the last such event"`
	// Decision is that of EventDecided. Its Lost counts those of the sandbox with the same verdict that
	// are no events, because they were many.
	Decision *NetworkLogEntry `json:"decision,omitempty" doc:"network_decision: what was decided; lost is how many decisions with this verdict about the sandbox came before it that are no events, because they were many"`
	Reason   string           `json:"reason,omitempty" doc:"failed; rest_failed; paused and destroyed, if no request asked for it"`
	// Tenant and Line decide which callers see it. Line has the ids of the ancestors of the
	// sandbox and, last, its own.
	Tenant string   `json:"-"`
	Line   []string `json:"-"`
	// Lost is the number of events before this one that are not kept any more. An event with
	// Lost has no other field but Seq.
	Lost int64 `json:"lost,omitempty" doc:"number of events before this one that are not kept any more; such an event has no other member but seq"`
	// Restarted stands for the events of an earlier daemon, whose number is unknown. An event
	// with Restarted has no other field but Seq.
	Restarted bool `json:"restarted,omitempty" doc:"since was a number of an earlier daemon: the events after it until this daemon started are unknown"`
}

// IsGap reports whether e stands for missing events.
func (e *Event) IsGap() bool { return e.Lost > 0 || e.Restarted }

// EventRequest asks for events.
type EventRequest struct {
	Sandbox string      // id or name; empty for all
	Kinds   []EventKind // empty for all
	// Since is the sequence number of the last event that the client has; 0 for all that
	// are kept, -1 for those from now on.
	Since int64
	// Follow asks also for new events, until the caller goes away or the requested sandbox is
	// destroyed.
	Follow bool
}
