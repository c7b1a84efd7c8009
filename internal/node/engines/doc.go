// Package engines keeps the programs that the states of sandboxes were written by, so that
// a new version of Ramet restores the snapshots of the versions before it.
//
// An engine is named by the form of the states that it loads and saves. The program of this
// daemon is copied beside its data before the first snapshot is on disk: the program of the
// next daemon has another form, perhaps, and replaces this one where it was installed.
//
//	engines/DIGEST        the program, named by its SHA-256
//	engines/NAME.json     the engine's name, and the digest of its program
//
// The program of another engine is compared with its digest and copied to a sealed file in
// memory when a sandbox needs it. Its sentries are started by a launcher of its own.
//
// The package must never know what a snapshot is: its callers say which engines are needed.
package engines
