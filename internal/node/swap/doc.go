// Package swap gives a sandbox that exists another state: that of a snapshot (rollback, and
// the wake of a hibernated sandbox) or that of a child (promote). The sandbox keeps its id,
// name and limits. If it fails, the sandbox is as it was.
//
// The package must never know why a sandbox gets another state.
package swap
