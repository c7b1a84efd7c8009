// Package lineage has the trees of sandboxes and snapshots, and keeps the names and budgets
// that outlive a sandbox or a snapshot until its last descendant is gone.
//
//	Trees    the tree that a caller sees, and ids of what is in it
//	Remains  names of ancestors that are gone, and the budgets of self-control
//
// The package must never know how sandboxes or snapshots are made.
package lineage
