// Package lineage has the commands about the lineage of sandboxes: fork, promote, snapshots,
// restore, rollback, and the timeline with bisect.
//
// It never compares states: package compare does.
package lineage
