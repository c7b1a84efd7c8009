// Package limitfs shows the limits of a sandbox to its programs, in the places where they look
// in a container: a read-only file system of the type cgroup2, for /sys/fs/cgroup, and files of
// /proc that gVisor leaves empty.
//
// gVisor's own cgroup2 file system is not mounted, because a guest could write its limit of
// processes there.
//
// The package must never know what a sandbox is: it is given numbers.
package limitfs
