package api

import "time"

// Snapshot is a frozen state that any number of sandboxes can be restored from.
type Snapshot struct {
	ID        string            `json:"id" doc:"id of the snapshot"`
	Tenant    string            `json:"tenant,omitempty" doc:"whose it is; absent for the default tenant"`
	Name      string            `json:"name" doc:"or empty"`
	Label     string            `json:"label,omitempty" doc:"what the sandbox calls it that took it by itself: no name, which it is found by outside"`
	State     SnapshotState     `json:"state" doc:"where it is in its life"`
	Reason    string            `json:"reason,omitempty" doc:"why it failed"`
	Sandbox   string            `json:"sandbox" doc:"sandbox it was taken of"`
	Parent    string            `json:"parent,omitempty" doc:"snapshot that the sandbox came from"`
	Image     string            `json:"image" doc:"image id"`
	Depth     int               `json:"depth" doc:"forks and restores between the sandbox and a created one"`
	CreatedAt time.Time         `json:"created_at" doc:"when it was made"`
	OnDisk    bool              `json:"on_disk" doc:"survives the daemon and the host"`
	SizeBytes int64             `json:"size_bytes" doc:"bytes on disk"`
	PauseMS   float64           `json:"pause_ms" doc:"how long the sandbox stood still"`
	Engine    string            `json:"engine" doc:"engine version that can restore it"`
	DependsOn []string          `json:"depends_on,omitempty" doc:"snapshots that have part of it: only what differs from them is stored"`
	ExpiresAt *time.Time        `json:"expires_at,omitempty" doc:"when it is deleted, by a rule of its tree"`
	Metadata  map[string]string `json:"metadata,omitempty" doc:"labels for programs: keys and values of text"`
}

// SnapshotRequest asks for a snapshot of a running sandbox.
type SnapshotRequest struct {
	Name     string            `json:"name,omitempty" doc:"name to give the snapshot, unique among those of the tenant" minLength:"1"`
	Metadata map[string]string `json:"metadata,omitempty" doc:"labels for programs: keys and values of text"`
	// Memory keeps the snapshot in memory only: faster, gone when the daemon ends.
	Memory bool `json:"memory,omitempty" doc:"keep in memory, do not write to disk; gone when the daemon ends"`
	// Wait is nil or true unless the caller goes on before the snapshot is on disk.
	Wait *bool `json:"wait,omitempty" doc:"false: return as soon as the sandbox runs again; the snapshot is uploading until it is on disk, and can be restored meanwhile"`
}

// SnapshotDeletion says what becomes of snapshots that were written as what differs
// from the one to delete. If neither is set and there are any, it stays.
type SnapshotDeletion struct {
	Cascade bool // they are deleted, too
	Flatten bool // they are written anew, without it
}

// RestoreRequest asks for new sandboxes from a snapshot.
type RestoreRequest struct {
	Count     int               `json:"count,omitempty" minimum:"1" maximum:"1000" doc:"new sandboxes; one for each name if absent, or 1"`
	Names     []string          `json:"names,omitempty" doc:"one for each sandbox"`
	Metadata  map[string]string `json:"metadata,omitempty" doc:"labels of the sandboxes, instead of those of the snapshot"`
	Env       map[string]string `json:"env,omitempty" doc:"added to the environment of commands in the sandboxes"`
	Lifecycle *LifecycleRequest `json:"lifecycle,omitempty" doc:"when they end or rest by themselves; what is absent is that of the sandbox that was frozen, counted from now"`
	// Require is FreshRandomness or nothing.
	Require []string `json:"require,omitempty" enum:"fresh-randomness" doc:"fresh-randomness: make no sandbox with a random generator that is known to repeat and has no new seed"`
}
