// Package paired is the TCP of a guest's network stack. A connection to the outside is one end of a
// socket pair with the gateway: the guest's socket reads and writes that itself, without a stack in
// between. All other connections are gVisor's: those inside the sandbox, those that its servers accept,
// and those of sockets that were bound or routed in a way of their own.
//
//	guest's socket ── End ══ socket pair ══ gateway
//
// An End wraps gVisor's endpoint, which keeps the options and the local port of an open connection.
// The end of the pair alone does not say how the connection ended: the gateway's word does, in a
// message. Until it has come, nothing is to be read.
//
// Connections that are open are not saved with a guest: a child sees a reset. One that is being asked
// for is asked for again by the child.
//
// Lock order: End.mu, and then the notifier of descriptors. What changes the guest besides its tasks
// does so between BeginIO and EndIO of the Way, and no lock is held then that a save takes.
//
// The package must never know what a policy is, nor how the gateway is asked.
package paired
