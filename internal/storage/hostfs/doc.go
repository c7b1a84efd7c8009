// Package hostfs is the seam between the packages that keep files and the host's file
// system. Code whose files must survive a crash makes, writes, syncs, renames and removes
// them through an FS, so that tests can make each of these operations fail.
//
// OS is the real file system and the default everywhere: its files are *os.File, so the
// seam costs one call through an interface. Package faultfs is the one for tests.
//
// The package must never decide what is written where, and adds nothing to what the host
// does: no retries, no caching.
package hostfs
