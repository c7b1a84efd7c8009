// Package launch starts sentry processes and talks to them: it makes what they
// need from the host (namespaces, a memory file, a control socket, a control
// group), keeps a pool of blank ones, notices when one ends, and finds those
// again that an earlier daemon started.
//
// Every descriptor that reaches a sentry is made here. The package must never
// import gVisor, nor know what a sandbox's name, lineage or image is.
package launch
