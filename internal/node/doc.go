// Package node is one machine: it keeps the sandboxes, snapshots and images of one
// daemon, and puts the packages below it together.
//
//	sandbox   a record and a sentry process (package sandboxes)
//	freeze    a moment of a sandbox that others were made from (package freezes). It keeps
//	          the source's pages pinned and the memory files open that its state refers to.
//	snapshot  a freeze with a record, in memory or on disk (package snapshots)
//
// What is below depends only on what is left of it:
//
//	memfiles, snapdir, fsview, transition  <-  freezes  <-  snapshots, spawn
//	spawn, selfcontrol, timeline           <-  sandboxes  <-  networks
//	snapshots, sandboxes                   <-  lineage, views, accounting, capture, swap
//	lineage                                <-  inspect
//	inspect, capture, swap                 <-  resting  <-  branching  <-  node
//
// compare, dataplane, images, selfcontrol and timeline declare interfaces, which the node
// implements (handle.go, merging.go, scratch.go, selfcontrol.go, timelines.go). What becomes of
// a sandbox is told to all who need to know by listener.go. What servers call is in offers.go.
//
// All sandboxes begin by one path (package spawn, then Registry.Install of package sandboxes)
// and change their states by one table (sandboxes.States).
//
// Lock order:
//
//	Instance.Op              held for writing while a sandbox changes its sentry or ends
//	  published              Publisher.mu: the ports of the host that lead to sandboxes
//	  quota.Admission.mu     held while the holdings of a tenant are added up
//	  the catalog of images  held while an image is removed, which asks for its users
//	    snapshots            Snapshot.mu, then Set.mu
//	      Remains.mu         names of what is gone
//	        Registry.mu      the instances and their names
//	          Instance.mu    the record and the sentry of a sandbox
//	            freezes      Table.mu: the references on freezes
//	              memfiles   Table.mu: the references on memory files
//
// No call to a sentry is made while Registry.mu or a lock after it is held.
//
// Crash safety: a sentry that was not detached ends with the daemon. A detached sentry has
// a record or is ended by the next daemon, so a fork is whole or not at all. Records are
// written in one transaction per operation, before anybody sees the change.
//
// The package must never know about HTTP, nor import gVisor.
package node
