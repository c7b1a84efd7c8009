// Package store keeps the daemon's records on disk: sandboxes, snapshots, freezes,
// tokens and what else outlives the daemon's process, each a JSON document in the
// table of its kind under its id. The tables are in one SQLite database.
//
// A change of several records is one transaction: after a crash of the daemon either
// all of it is there or none. A power failure may take the last transactions, unless
// Sync followed them. The daemon calls Sync where a record must survive the host: for
// snapshots on disk, hibernated sandboxes and tokens.
//
// One process at a time has the database open. Documents are opaque; the package must
// never know what is in them.
package store
