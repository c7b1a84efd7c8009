// Package syscalls has the system calls of a guest in which Ramet differs from gVisor.
//
// A call here must never know which sandbox makes it.
package syscalls
