// Package launch starts sentry processes and calls them. It makes the host resources of a
// sentry (namespaces, a memory file, a control socket, a control group), keeps a pool of
// blank sentries, notices when a sentry ends, and adopts the sentries that an earlier daemon
// started.
//
// A Launcher starts, adopts and sweeps sentries, which its zygote forks. A Sentry is a
// process and the calls to it. A Pool keeps blank sentries ready.
//
// Every descriptor that reaches a sentry is made here. The package must never
// import gVisor, nor know what a sandbox's name, lineage or image is.
package launch
