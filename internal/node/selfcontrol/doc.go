// Package selfcontrol lets sandboxes control themselves: a process in a sandbox that has
// the grant asks for forks, snapshots, a rollback, a comparison or a change of metadata
// of its own sandbox.
//
//	Grant    the stored right of one sandbox
//	Budget   how much a tree of sandboxes may make, and at which pace
//	Request  a self-request under way; the copies that it makes are told of it
//	Server   reads the requests of sentries and answers them
//
// Which sandbox asks is decided by the sentry that the request came from: nothing in a
// request names a sandbox. Requests come from guests, so each is bounded in size, pace,
// number and cost, and an error about the host never reaches the guest.
//
// The package must never know how a sandbox is forked, frozen or recorded: it declares
// what it needs (Sandboxes, Sandbox).
package selfcontrol
