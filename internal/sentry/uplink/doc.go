// Package uplink is the way of a guest's network to the outside: an interface eth0 in the guest's
// stack, and behind it a stack of its own in which every flow of the guest ends. Each flow is put
// to the gateway as a message; what comes back is a verdict, and one end of a socket pair. Streams
// leave the sentry, packets never do.
//
//	guest's stack ── eth0 ──(Link)── outer stack ── relay ══ socket pair ══ gateway
//	                                      └─────── exchange (wire.Channel) ═══┘
//
// The outer stack takes every address for its own. It is made when the guest sends its first
// packet: a sandbox that sends none has an interface and two goroutines.
//
// Interfaces are not saved with the kernel of a guest. Connections to the outside are not, either:
// a child has none of its parent's, and its processes see a reset at once (see TakeConnections).
//
// Lock order: the gate's accesses, Uplink.mu, exchange.mu.
//
// The package must never know what a policy is: it asks, and does what it is told.
package uplink
