// Package volumes is a file system whose names and attributes the daemon keeps, so that several
// sandboxes share it. Contents are read, written and mapped through descriptors of the host, which
// the daemon hands out: all sandboxes see the same pages.
//
// Nothing is cached beyond one operation but what files that are in use were last known to be: a
// change that another sandbox made is seen by the next look. Locks of files, and watches, are
// those of one sandbox.
//
// A child of a fork has the same volumes as its parent. Descriptors are not saved: a restored
// file system asks for them when they are needed.
//
// An operation waits for the daemon, and cannot be interrupted meanwhile: so a freeze, which
// waits for running system calls, never finds one half done. While there is no daemon, operations
// wait for the next one (see Client).
//
// Lock order: kernfs's, inode.mu, gVisor's of address spaces, inode.filesMu, Client.mu. Leaves are
// filesystem.mu and inode.attrMu; inode.mapsMu comes before the locks of address spaces.
//
// The package must never know who may use a volume, or where it is: the daemon checks that.
package volumes
