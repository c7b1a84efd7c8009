// Package process tests what runs in sandboxes: commands, processes, terminals, contexts of interpreters, logs and ports,
// with forks in the middle. It has tests only,
// with real sandboxes: see package harness.
package process
