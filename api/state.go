package api

// State is the state of a sandbox.
type State string

// The states of a sandbox. Destroyed is only seen on records that are being
// removed: a destroyed sandbox is not found any more.
const (
	StateCreating State = "creating"
	StateRunning  State = "running"
	StatePaused   State = "paused"
	// StateHibernated is the state of a sandbox that is on disk only: it has no process and
	// no memory on the host.
	StateHibernated State = "hibernated"
	StateDestroyed  State = "destroyed"
	StateFailed     State = "failed"
)

// SnapshotState is the state of a snapshot.
type SnapshotState string

// The states of a snapshot.
const (
	SnapshotCreating  SnapshotState = "creating"
	SnapshotUploading SnapshotState = "uploading"
	SnapshotReady     SnapshotState = "ready"
	SnapshotFailed    SnapshotState = "failed"
	SnapshotDeleted   SnapshotState = "deleted"
)

// States returns the states that a list may show.
func States() []State {
	return []State{StateCreating, StateRunning, StatePaused, StateHibernated, StateFailed}
}

// SnapshotStates returns the states that a list may show.
func SnapshotStates() []SnapshotState {
	return []SnapshotState{SnapshotCreating, SnapshotUploading, SnapshotReady, SnapshotFailed}
}
