// Package ports lists the ports that processes of a sandbox listen on, and connects to them
// from outside: by an end of TCP in the sandbox's own network stack, as a process in it would
// have.
//
// Lock order: the gate's accesses, Conns.mu.
//
// It must never know how the data of a connection travel outside of the sandbox.
package ports
