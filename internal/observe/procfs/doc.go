// Package procfs is the only reader of proc(5) on the host side: what processes and
// groups of them use, and what the machine as a whole has.
//
// The daemon bills sandboxes with it, and a benchmark checks with it what the daemon says
// about itself. Lines of processes are parsed by prometheus/procfs. Its parser of meminfo
// is not used: it refuses, or panics at, lines of a form that it does not know, which a
// newer kernel may have.
//
// The package never learns what the processes are.
package procfs
