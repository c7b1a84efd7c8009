// Package gateway owns the sockets that sandboxes reach the outside with. Each sandbox has a channel
// on which its sentry asks for flows; the gateway judges each, opens the socket, and hands one end of
// a socket pair to the sentry.
//
//	sentry ══ channel ══► sandbox ──► policy ──► host socket
//	                         │ a flow is a goroutine that opens it, and a relay while it is open
//	                         ├── names: dns.Client
//	                         ├── first bytes: sniff, then policy once more
//	                         └── other sandboxes: deliver
//
// A flow is judged and recorded in one step, under the lock of its sandbox, and a policy is replaced
// under the same lock: no flow stays open that was judged by a policy which is not in force any more
// and that the new one does not allow.
//
// The address that was judged is the one that is dialed; a name is never resolved a second time.
//
// The package must never know how the process that it runs in is started or confined, nor how a
// daemon speaks to it.
package gateway
