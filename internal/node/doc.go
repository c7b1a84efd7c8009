// Package node is one machine: it keeps the sandboxes, snapshots and images of one
// daemon, and puts the packages below it together.
//
//	sandbox   a record and a sentry process (type instance)
//	freeze    a moment of a sandbox that others were made from (package freezes). It keeps
//	          the source's pages pinned and the memory files open that its state refers to.
//	snapshot  a freeze with a record, in memory or on disk (package snapshots)
//
// What is below depends only on what is left of it:
//
//	memfiles, snapdir, fsview, transition  <-  freezes  <-  snapshots, spawn  <-  node
//	compare, dataplane, images, quota, selfcontrol, timeline  <-  node, by interfaces that they declare
//
// All sandboxes begin by one path (package spawn, then Node.install) and change their
// states by one table (sandboxstate.go).
//
// Lock order:
//
//	instance.op              held for writing while a sandbox changes its sentry or ends
//	  the catalog of images  held while an image is removed, which asks who uses it
//	    snapshots            Snapshot.mu, then Set.mu
//	      Node.mu            the instances, their names and the names of what is gone
//	        instance.mu      the record and the sentry of a sandbox
//	          freezes        Table.mu: the references on freezes
//	            memfiles     Table.mu: the references on memory files
//
// No call to a sentry is made while Node.mu or a lock after it is held.
//
// Crash safety: a sentry that was not detached ends with the daemon. A detached sentry has
// a record or is ended by the next daemon, so a fork is whole or not at all. Records are
// written in one transaction per operation, before anybody sees the change.
//
// The package must never know about HTTP, nor import gVisor.
package node
