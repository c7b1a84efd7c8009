// Package guest is a sandbox inside a sentry: a gVisor kernel with its mounts, its first
// process and its memory. It is booted from an image or loaded from a freeze, and can be frozen.
//
// Operations of the host side on files, processes, contexts, ports and requests of a running
// sandbox are in packages of their own, which a Guest puts together. Each of them gets the
// kernel (package kern) and the gate (package gate), and saves its own part of the state.
//
// Lock order: the gate, the gate's accesses, the locks of those packages.
//
// The package must never know how calls reach it: package sentry decodes them.
package guest
