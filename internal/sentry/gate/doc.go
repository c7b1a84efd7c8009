// Package gate decides when the host side may use the kernel of a guest, which at times is
// paused, saved or at rest. It also has the clock of timeouts and the event listeners, which
// stay right across a pause and a save.
//
// Lock order: Gate.ops before Gate.io, and both before the locks of the packages that use
// the gate.
//
// The package must never know what an operation does with the kernel.
package gate
