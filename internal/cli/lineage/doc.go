// Package lineage is the commands about the lineage of sandboxes: fork, promote, snapshots,
// restore, rollback, and the timeline with its bisection.
//
// It never compares states: package compare does.
package lineage
