// Package proc starts processes of a sandbox for the host side and manages them: it moves their
// input and output, keeps their last output, ends them at their timeouts and records how they
// ended. A child inherits them with all that (Table).
//
// Lock order: the gate, process.input, the gate's accesses, Table.mu, ring.mu.
//
// The package must never know the caller, nor what a process runs.
package proc
