package api

// State is where a sandbox is in its life.
type State string

// The states of a sandbox. Destroyed is only seen on records that are being
// removed: a destroyed sandbox is not found any more.
const (
	StateCreating State = "creating"
	StateRunning  State = "running"
	StatePaused   State = "paused"
	// StateHibernated is that of a sandbox which is on disk only: no process and no
	// memory of the host belongs to it.
	StateHibernated State = "hibernated"
	StateDestroyed  State = "destroyed"
	StateFailed     State = "failed"
)

// SnapshotState is where a snapshot is in its life.
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
