// Package dns answers the DNS questions of sandboxes, and remembers which name it gave which
// address for: a connection is judged by the name that a sandbox asked for.
//
//	question of a guest ──► Client: limits ──► Policy: name ──► Upstream: the host's resolver
//	answer to the guest ◄── Client: names remembered ◄── addresses judged, records chosen
//
// Nothing of a question reaches a server of the host but the name, the type and the class, in a
// message of this package's own. Nothing of an answer reaches a guest but records of the types
// that it may ask for, which lead from the name that it asked for to its addresses.
//
// The package must never know how a policy is written, nor what is done with addresses.
package dns
