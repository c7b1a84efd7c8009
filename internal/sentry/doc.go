// Package sentry is the process that a sandbox runs in: it confines itself, waits as a blank
// until it boots or loads a sandbox, and then serves the calls of package wire: it decodes
// them and calls the part of package guest that does them.
//
// The life of a sentry:
//
//	fork      the zygote forks it: namespaces of its own, empty root, no privileges
//	blank     kernel packages, platform and memory file are ready
//	filtered  system calls are restricted; Hello goes out on the lifeline
//	sandbox   after Boot or Load, once
//	committed after Commit: it is detached from the lifeline
//
// A sentry whose lifeline closes before it is committed ends itself, so that a
// daemon that dies in the middle of something leaves nothing half made.
//
// This tree is the only one that imports gVisor. It must never know about
// images, lineage, names or the disk.
package sentry
