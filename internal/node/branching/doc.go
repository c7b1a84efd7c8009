// Package branching makes sandboxes: from an image, from a running or hibernated sandbox
// (fork), and from a snapshot (restore).
//
//	Creator  makes a sandbox of an image
//	Forker   makes children of what was frozen
//	batch    the children of one freeze, which are installed all at once, or each by itself
//	         in the background
//
// Children that nobody waits for are sandboxes in the state creating from the end of
// the freeze on: they have ids, names and records, and nothing else yet. Each is made
// in the background and then runs or has failed. Whoever wants to do something with
// one waits for that, as for one that is being woken: its Op is held for writing.
//
// The record says creating before the caller is told of it. Of a daemon that dies in
// the middle remain such records, which the next one finds failed, and no sentries:
// those of children end with the daemon until they are about to be recorded as
// running, and the next one ends what is not recorded.
//
// The package must never know what becomes of a sandbox once it is made.
package branching
