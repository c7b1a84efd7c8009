// Package gate decides when the host side may use the kernel of a guest, which is paused,
// saved or at rest at times. It also has what stays right across a pause and a save: the
// clock of timeouts, and event listeners that can be saved.
//
// Lock order: Gate.ops before Gate.io, and both before the locks of the packages that use
// the gate.
//
// The package must never know what an operation does in the kernel.
package gate
