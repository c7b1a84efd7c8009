// Package procfs is the only reader of proc(5) on the host side: resources of processes and of
// their groups, and of the machine as a whole.
//
// The daemon accounts for sandboxes with it, and a benchmark checks the daemon's numbers with
// it. Lines of processes are parsed by prometheus/procfs. Its parser of meminfo is not used: it
// refuses, or panics at, lines of an unknown form, which a newer kernel may have.
//
// The package must never know the purpose of a process.
package procfs
