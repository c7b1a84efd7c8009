// Package limitfs shows the programs of a sandbox its limits in the form in which they look for them in a container: a
// read-only file system of the type cgroup2, for /sys/fs/cgroup, and the files of /proc that gVisor leaves empty.
//
// gVisor's own cgroup2 file system is not shown to a guest, because a guest could write its limit of processes there.
//
// The package must never know what a sandbox is: it is given numbers.
package limitfs
