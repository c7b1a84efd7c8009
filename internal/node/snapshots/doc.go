// Package snapshots keeps the snapshots of a node: freezes with a record, in memory or on
// disk.
//
// A snapshot on disk may refer to files of others, which it needs: such snapshots form
// chains. A snapshot that is needed stays, whoever deletes it, and is collected when nobody
// needs it any more. From the moment at which a snapshot may come to refer to another one,
// that counts as needed.
//
// A snapshot that nobody waits for is uploading from the end of its freeze until it is on
// disk. It is restored from live memory meanwhile, whose pins its freeze holds.
//
// The state of a snapshot is in one table of transitions (state.go); nothing else changes
// it.
//
// Lock order: Set.flattening, Snapshot.mu, Set.mu. Set.mu guards the names, the states and
// the needs of all snapshots, so that a decision about several of them is atomic. A record
// is written while Snapshot.mu is held, and only of a snapshot that is in the set. Its
// removal takes the snapshot out of the set first and then waits for Snapshot.mu: the record
// does not come back.
//
// Crash safety: files are written beside their place and renamed before the record says
// ready, and the record is removed before its files. A daemon that starts finds snapshots
// failed that were being written, and removes files that no record has.
//
// The package must never know what a sandbox runs in, nor how one is frozen or restored:
// it is given freezes, and says from which freeze a snapshot is restored.
package snapshots
