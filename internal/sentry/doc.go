// Package sentry is the process that a sandbox runs in. It confines itself, waits as a blank
// until it boots or loads a sandbox, and then serves the calls of package wire: it decodes a
// call and has package guest, or a package below it, perform it.
//
// The life of a sentry:
//
//	fork      the zygote forks it: namespaces of its own, empty root, no privileges
//	blank     kernel packages, platform and memory file are ready
//	filtered  system calls are restricted; Hello goes out on the lifeline
//	sandbox   after Boot or Load, once
//	committed after Commit: it is detached from the lifeline
//
// A sentry whose lifeline closes before it is committed ends itself, so that a daemon that dies
// in the middle of an operation leaves no sandbox behind.
//
// Only this tree imports gVisor. It must never know images, lineage, names or paths of the
// host's disk.
package sentry
