// Package hostuse reads from proc(5) what groups of processes cost this machine:
// processor time of process trees, and memory of the machine as a whole. It is
// how a measurement checks what the measured program says about itself.
//
// It must never know what the processes are.
package hostuse
