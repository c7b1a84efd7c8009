package snapshots

import (
	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/node/transition"
)

// States is the owner of the states of snapshots: a transition that is not in the table
// does not happen. docs/architecture/states.md has its drawing.
var States = transition.New("snapshot",
	transition.Step[api.SnapshotState]{From: "", To: api.SnapshotCreating, By: "snapshot in memory"},
	transition.Step[api.SnapshotState]{From: "", To: api.SnapshotUploading, By: "snapshot on disk, step, hibernate"},
	transition.Step[api.SnapshotState]{From: api.SnapshotCreating, To: api.SnapshotReady, By: "it is recorded"},
	transition.Step[api.SnapshotState]{From: api.SnapshotCreating, To: api.SnapshotFailed, By: "the daemon ends"},
	transition.Step[api.SnapshotState]{From: api.SnapshotCreating, To: api.SnapshotDeleted, By: "it cannot be recorded"},
	transition.Step[api.SnapshotState]{From: api.SnapshotUploading, To: api.SnapshotReady, By: "it is on disk"},
	transition.Step[api.SnapshotState]{From: api.SnapshotUploading, To: api.SnapshotFailed, By: "it cannot be written, or the daemon ends"},
	transition.Step[api.SnapshotState]{From: api.SnapshotUploading, To: api.SnapshotDeleted, By: "it cannot be written, and its caller is told"},
	transition.Step[api.SnapshotState]{From: api.SnapshotReady, To: api.SnapshotFailed, By: "it is damaged, or was in memory when the daemon ended"},
	transition.Step[api.SnapshotState]{From: api.SnapshotReady, To: api.SnapshotDeleted, By: "delete, expiry, or its sandbox goes on without it"},
	transition.Step[api.SnapshotState]{From: api.SnapshotFailed, To: api.SnapshotDeleted, By: "delete, or its sandbox goes on without it"},
)

// condition is the state of a snapshot, with the fields that decide how long its files
// stay. It is guarded by Set.mu.
type condition struct {
	state  api.SnapshotState
	reason string   // why it failed
	needs  []string // snapshots whose files it refers to, or may do so soon
	// rewriting says that its files are being written anew: if it is deleted meanwhile,
	// it is collected after that.
	rewriting bool
}

// become changes the state of the snapshot called id, and refuses what States does not
// allow. Nothing else assigns a state. reason says why a snapshot failed and is empty
// else. The caller holds Set.mu.
func (c *condition) become(id string, to api.SnapshotState, reason string) error {
	if err := States.Check(id, c.state, to); err != nil {
		return err
	}
	c.state, c.reason = to, reason
	return nil
}

// settled reports whether the snapshot is no longer being made: it is whole, or of no
// use.
func (c *condition) settled() bool {
	return c.state != api.SnapshotCreating && c.state != api.SnapshotUploading
}

// usable reports whether other snapshots may refer to the files of this one.
func (c *condition) usable() bool { return c.state == api.SnapshotReady }
