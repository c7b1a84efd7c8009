// Package store keeps the daemon's records on disk: sandboxes, snapshots, freezes, tokens and
// all others that outlive the daemon's process. Each is a JSON document in the table of its
// kind under its id. The tables are in one SQLite database.
//
// A change of several records is one transaction: after a crash of the daemon all of its
// records are changed or none. A power failure may undo the last transactions, unless Sync
// followed them. The daemon calls Sync for records that must survive the host: snapshots on
// disk, hibernated sandboxes and tokens.
//
// One process at a time has the database open. Documents are opaque: the package must never
// know what is in them.
package store
