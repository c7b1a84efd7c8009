// Package store keeps the daemon's records on disk: sandboxes, snapshots and
// freezes, each a JSON document under its id.
//
// A change of several records is one transaction: after a crash of the daemon
// either all of it is there or none. Documents are opaque; the package must
// never know what is in them.
package store
