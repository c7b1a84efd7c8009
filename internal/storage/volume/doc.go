// Package volume keeps a directory tree that outlives sandboxes and that several of them share.
//
// Names and attributes are in a SQLite database, so that a user without rights on the host can
// keep owners, modes and devices that it could not give files of its own. The contents of each
// regular file are a file of the host: its size and its times of access and modification are
// those of that file. Whoever reads and writes contents does so by descriptor (Data), and asks
// before a file grows (Grow), which is where the limit of a volume is held.
//
// A change of names is one transaction: after a crash all of it is there or none. A power
// failure may undo the last changes of names, and may lose contents that were not synced.
//
// Errors of operations on files are system errors (unix.Errno), as a guest gets them. The
// package must never know who uses a volume: permissions are checked by the kernel of a guest.
package volume
