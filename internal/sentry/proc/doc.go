// Package proc starts processes of a sandbox from outside and takes care of them: it moves
// their input and output, keeps what they wrote, ends them at their timeouts and notes how
// they ended. A child inherits them with all that (Table).
//
// Lock order: the gate, process.input, the gate's accesses, Table.mu, ring.mu.
//
// The package must never know who asks, nor what a process runs.
package proc
