// Package cost measures what children cost the machine: processor time from idle to idle, and memory.
//
// The package must never know what the children are, nor how they are shown.
package cost
