// Package hostfs is the seam between the packages that keep files and the host's file system.
// Packages whose files must survive a crash make, write, sync, rename and remove them through
// an FS, so that tests can make each of these operations fail.
//
// OS is the real file system and the default: its files are *os.File, so the seam costs a call
// through an interface. Package faultfs is an FS for tests.
//
// Replace is the order of operations by which a file changes as a whole.
//
// The package must never decide what is written where, and adds nothing to the operations of
// the host: no retries, no caching.
package hostfs
