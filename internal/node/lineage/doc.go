// Package lineage knows what descends from what: it draws the trees of sandboxes and
// snapshots, and keeps what is only needed as long as descendants live.
//
//	Trees    the tree that a caller sees, and ids of what is in it
//	Remains  names of ancestors that are gone, and the budgets of self-control
//
// The package must never know how sandboxes or snapshots are made.
package lineage
