// Package host keeps a gateway running for a daemon: it finds the one that an earlier daemon has
// started, or starts one when the first sandbox needs it, and starts another when it ends.
//
// One file lock says whether there is a gateway; the process holds it for as long as it lives. Whoever
// gets the lock may start one.
//
//	gateway.lock  held: its owner is in the file, and is asked at gateway.sock. One of another
//	              build, or one that does not answer, is ended
//
// The daemon's side of the truth is here: which sandboxes have a network, and under which policy. A
// gateway that is new knows of none. A sandbox is registered with its policy first; only then does its
// sentry get the other end of the channel, so that nothing can be reached before the policy is in
// force.
//
// The directory of held requests is the daemon's data. It is opened here and inherited by the gateway,
// whose user cannot reach it by its path.
//
// The package must never know what a policy says, nor how a sentry is spoken to.
package host
