// Package ports lists the ports that processes of a sandbox listen on, and connects to them
// from outside: through a TCP endpoint in the sandbox's own network stack, such as a process of
// the sandbox has.
//
// Lock order: the gate's accesses, Conns.mu.
//
// It must never know how the data of a connection travels outside of the sandbox.
package ports
