// Package aside keeps parts of a kernel while gVisor saves it, in forms that are faster to write and to
// read: what gVisor would save byte by byte, counter by counter, mapping by mapping, is taken out of the
// kernel, and put back into the one that goes on and into the one that was loaded.
//
// The package must never know what a save is for.
package aside
