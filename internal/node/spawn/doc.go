// Package spawn makes sandboxes of blank sentries: it prepares a sentry for a sandbox, boots
// an image in it or loads the state of a freeze, and detaches it from the daemon.
//
// All sandboxes begin in the same way, whoever waits for them:
//
//	                prepare   load   detach         install
//	fork, restore   each      each   when all are   all at once
//	fork, no wait   each      each   each           each, in the sandbox that is listed
//	rollback, wake  the one   the one, in the sandbox that exists
//	create          the one, which boots
//
// A sentry that was not detached ends with the daemon. A sentry that was is ended by the
// next daemon unless its sandbox has a record, which is the business of who installs it.
//
// The package must never know which sandboxes there are, nor write a record.
package spawn
