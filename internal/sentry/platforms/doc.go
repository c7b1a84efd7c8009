// Package platforms has the ways in which gVisor runs the code of guests, each behind one interface: how it is made in
// a process that was forked, the filter of system calls that it needs, and what forks of the process may not share.
// systrap is the only one.
//
// The rest of the sentry names no platform. What depends on the architecture of the processor is in files whose names
// end with it.
//
// The package must never know what a sandbox is.
package platforms
