// Package snapshot tests moments that are kept: snapshots and their chains, hibernation and timelines, also when daemons
// are killed. It has tests only,
// with real sandboxes: see package harness.
package snapshot
