// Package datagrams wakes the senders of unix datagrams when their receiver has room again.
//
// A sender that meets a full queue waits at its own socket. gVisor's receiver notifies nobody, because a socket that
// was not made by socketpair(2) has no fixed sender. This package tells the receiver's queue which sockets send to
// it: those that are connected to it, and those that are in a call that names it.
//
// The package must never know which sandbox makes a call.
package datagrams
