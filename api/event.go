package api

import (
	"slices"
	"time"
)

// EventKind says what happened. The words are part of the interface: none ever
// changes its meaning.
type EventKind string

// What happens to a sandbox.
const (
	EventCreated     EventKind = "created" // by create, fork or restore
	EventForked      EventKind = "forked"
	EventSnapshotted EventKind = "snapshotted"
	EventRolledBack  EventKind = "rolled_back"
	EventPromoted    EventKind = "promoted" // it goes on with the state of a child, which is gone
	EventMerged      EventKind = "merged"
	EventCommitted   EventKind = "committed"
	EventUpdated     EventKind = "updated" // its name or metadata
	EventPaused      EventKind = "paused"
	EventResumed     EventKind = "resumed"
	EventHibernated  EventKind = "hibernated"
	EventWoken       EventKind = "woken"
	EventStarted     EventKind = "process_started" // in the background
	EventExecuted    EventKind = "executed"        // a command in the foreground has ended
	EventRan         EventKind = "code_run"
	EventFailed      EventKind = "failed"
	EventDestroyed   EventKind = "destroyed"
	// EventUnrested says that an idle sandbox could not be hibernated or paused. That is
	// tried again, ever less often, and told once until somebody uses the sandbox.
	EventUnrested EventKind = "rest_failed"
)

// EventKinds are all there are.
var EventKinds = []EventKind{
	EventCreated, EventForked, EventSnapshotted, EventRolledBack, EventPromoted, EventMerged, EventCommitted, EventUpdated, EventPaused, EventResumed, EventHibernated, EventWoken,
	EventStarted, EventExecuted, EventRan, EventFailed, EventDestroyed, EventUnrested,
}

// Valid says whether it is one of EventKinds.
func (k EventKind) Valid() bool { return slices.Contains(EventKinds, k) }

// Event is something that happened to a sandbox. What was in commands, files and
// environments is not part of it.
type Event struct {
	// Seq grows with every event of a daemon, and from one daemon to the next.
	Seq       int64     `json:"seq" doc:"sequence number, which grows with every event"`
	Time      time.Time `json:"time" doc:"when it happened"`
	Kind      EventKind `json:"kind,omitempty" doc:"what happened; absent in an event that stands for others"`
	SandboxID string    `json:"sandbox_id" doc:"sandbox that it happened to"`
	Name      string    `json:"name,omitempty" doc:"of the sandbox"`
	Parent    string    `json:"parent,omitempty" doc:"created: the sandbox that it was forked from, or that its snapshot is of"`
	Snapshot  string    `json:"snapshot,omitempty" doc:"id of the snapshot that it was about"`
	Child     string    `json:"child,omitempty" doc:"promoted: the sandbox whose state it is"`
	Children  []string  `json:"children,omitempty" doc:"forked: the new sandboxes"`
	From      []string  `json:"from,omitempty" doc:"merged: where the changes came from"`
	Paths     int       `json:"paths,omitempty" doc:"merged: how many paths changed"`
	Image     string    `json:"image,omitempty" doc:"committed: id of the image"`
	PID       int       `json:"pid,omitempty" doc:"process_started"`
	Context   string    `json:"context,omitempty" doc:"code_run"`
	ExitCode  *int      `json:"exit_code,omitempty" doc:"executed, code_run"`
	Reason    string    `json:"reason,omitempty" doc:"failed; rest_failed; paused and destroyed, if it was by itself"`
	// Tenant and Line say who may see it: Line are the ids of what the sandbox
	// descends from, itself the last.
	Tenant string   `json:"-"`
	Line   []string `json:"-"`
	// Lost stands for events that are not kept any more: so many before this one,
	// which says nothing else then but Seq.
	Lost int64 `json:"lost,omitempty" doc:"as many events before this one are not kept any more; it says nothing else but seq"`
	// Restarted stands for what happened before this daemon began to keep events, of
	// which nobody knows how much there was. It says nothing else but Seq.
	Restarted bool `json:"restarted,omitempty" doc:"since was a number of an earlier daemon: what happened after that until this one started is not known"`
}

// IsGap reports whether e stands for events that are not told.
func (e *Event) IsGap() bool { return e.Lost > 0 || e.Restarted }

// EventRequest asks for events.
type EventRequest struct {
	Sandbox string      // id or name; empty for all
	Kinds   []EventKind // empty for all
	// Since is the sequence number of the last event that is known; 0 for all that
	// are kept, -1 for those from now on.
	Since int64
	// Follow asks for what happens from now on too, until the caller goes away or the
	// one sandbox is destroyed.
	Follow bool
}
