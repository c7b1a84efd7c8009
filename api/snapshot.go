package api

import "time"

// Snapshot is a frozen state that any number of sandboxes can be restored from.
type Snapshot struct {
	ID        string            `json:"id" doc:"id of the snapshot"`
	Tenant    string            `json:"tenant,omitempty" doc:"tenant that owns it; absent for the default tenant"`
	Name      string            `json:"name" doc:"name, or empty"`
	Label     string            `json:"label,omitempty" doc:"name that the sandbox gave it which took it by self-control; it cannot be found by this name from outside"`
	State     SnapshotState     `json:"state" doc:"state"`
	Reason    string            `json:"reason,omitempty" doc:"why it failed"`
	Sandbox   string            `json:"sandbox" doc:"sandbox that it was taken of"`
	Parent    string            `json:"parent,omitempty" doc:"snapshot that the sandbox came from"`
	Image     string            `json:"image" doc:"image id"`
	Depth     int               `json:"depth" doc:"forks and restores between the sandbox and a created one"`
	CreatedAt time.Time         `json:"created_at" doc:"when it was made"`
	OnDisk    bool              `json:"on_disk" doc:"survives the daemon and the host"`
	SizeBytes int64             `json:"size_bytes" doc:"bytes on disk"`
	PauseMS   float64           `json:"pause_ms" doc:"how long the sandbox stood still"`
	Engine    string            `json:"engine" doc:"engine version that can restore it"`
	DependsOn []string          `json:"depends_on,omitempty" doc:"snapshots that have parts of it: only the differences to them are stored"`
	ExpiresAt *time.Time        `json:"expires_at,omitempty" doc:"when it is deleted, by a rule of its tree"`
	Metadata  map[string]string `json:"metadata,omitempty" doc:"labels for programs: keys and values of text"`
	Claimed   []string          `json:"claimed,omitempty" doc:"keys of metadata that the sandbox set itself by self-control: rules about access ignore them"`
	// Origin is nil for snapshots that this machine has made.
	Origin *SnapshotOrigin `json:"origin,omitempty" doc:"packed snapshot that it was unpacked from; absent if it was made here"`
	// Template is set by servers of the daemon alone, so that a caller cannot plant a template.
	Template string `json:"template,omitempty" doc:"template that the daemon made as this snapshot; no request can set it"`
}

// SnapshotRequest asks for a snapshot of a running sandbox.
type SnapshotRequest struct {
	Name     string            `json:"name,omitempty" doc:"name to give the snapshot, unique among those of the tenant" minLength:"1"`
	Metadata map[string]string `json:"metadata,omitempty" doc:"labels for programs: keys and values of text"`
	// Memory keeps the snapshot in memory only: faster, gone when the daemon ends.
	Memory bool `json:"memory,omitempty" doc:"keep in memory, do not write to disk; gone when the daemon ends"`
	// Wait is nil or true unless the caller goes on before the snapshot is on disk.
	Wait *bool `json:"wait,omitempty" doc:"false: return as soon as the sandbox runs again; the snapshot is uploading until it is on disk, and can be restored meanwhile"`
	// Template marks the snapshot as a template of a server of the daemon. Clients cannot set it.
	Template string `json:"-"`
}

var templateName = pattern(`^e2b-.+-[0-9a-f]{8}$`)

// IsTemplateName reports whether a name is of those that the daemon gives the snapshots of its templates. No request may
// give a snapshot such a name.
func IsTemplateName(name string) bool { return templateName().MatchString(name) }

// SnapshotDeletion says how to treat snapshots that depend on the snapshot to delete. If there
// are such snapshots and neither is set, the deletion is refused.
type SnapshotDeletion struct {
	Cascade bool // delete them too
	Flatten bool // rewrite them, so that they do not depend on it
}

// RestoreRequest asks for new sandboxes from a snapshot.
type RestoreRequest struct {
	Count       int               `json:"count,omitempty" minimum:"1" maximum:"1000" doc:"number of new sandboxes; if absent, the number of names, or 1"`
	Names       []string          `json:"names,omitempty" doc:"names of the sandboxes, one for each"`
	Metadata    map[string]string `json:"metadata,omitempty" doc:"labels of the sandboxes, added to those of the sandbox that the snapshot is of"`
	Env         map[string]string `json:"env,omitempty" doc:"added to the environment of commands in the sandboxes"`
	Hostname    string            `json:"hostname,omitempty" maxLength:"63" doc:"host name of the sandboxes; that of the sandbox that was frozen if absent. Older names stay in /etc/hosts"`
	NewHostname bool              `json:"new_hostname,omitempty" doc:"each has a host name of its own: its name, or its id"`
	Lifecycle   *LifecycleRequest `json:"lifecycle,omitempty" doc:"when they end or rest by themselves; absent members are those of the sandbox that was frozen, counted from now"`
	Network     *NetworkRequest   `json:"network,omitempty" doc:"what they may reach: what the sandbox that was frozen might if absent"`
	Volumes     []VolumeMount     `json:"volumes,omitempty" maxItems:"16" doc:"volumes that they have besides those of the sandbox that was frozen"`
	// Hold and Record are as of ForkRequest. A sandbox that was frozen and is gone has nobody promoted to it.
	Hold   NetworkHold `json:"hold,omitempty" enum:"writes" doc:"requests of the sandboxes that wait until they are released, or until one is promoted to the sandbox that was frozen, and are dropped with theirs: writes are all but GET, HEAD and OPTIONS. Connections other than HTTP to names are refused"`
	Record bool        `json:"record,omitempty" doc:"the sandboxes see one world: what the first one was answered is the answer to others that ask the same"`
	// Require is FreshRandomness or nothing.
	Require []string `json:"require,omitempty" enum:"fresh-randomness" doc:"fresh-randomness: make no sandbox with a random generator that is known to repeat and has no new seed"`
}
