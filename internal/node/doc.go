// Package node is the node: it keeps the sandboxes, snapshots and images of
// one daemon and carries out what users ask for.
//
// What depends on what:
//
//	box      a sandbox: a record and a sentry process
//	freeze   a moment of a sandbox that others were made from (package freezes); it keeps the
//	         source's pages pinned and the memory files open that its state
//	         refers to. Boxes, snapshots and later freezes of its children
//	         hold it; when nobody does, its memory goes back to the host.
//	snapshot a freeze with a name of its own, in memory or on disk
//
// Lock order:
//
//	box.op              held for writing while a box changes its sentry or ends
//	  Manager.imageMu   held while an image is removed, which asks who uses it
//	    snapshot.mu     a snapshot's record, and what it is restored from while that is opened
//	      Manager.mu    the maps, names and reference counts
//	        box.mu      a box's record and sentry
//
// Crash safety: a sentry that was not committed ends with the daemon. A
// committed one has a record or is ended by the next daemon, so a fork is whole
// or not at all. Records are written in one transaction per operation.
//
// The package must never know about HTTP, nor import gVisor.
package node
