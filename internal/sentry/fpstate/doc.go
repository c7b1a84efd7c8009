// Package fpstate keeps the vector and floating-point registers of guest threads whole
// when they are interrupted, which gVisor's systrap platform does not.
//
// Systrap has several host threads for the threads of a guest process. To save the time of
// restoring these registers, one that goes on with the guest thread that it had before
// leaves its own as they are. It knows by two notes that it may: what it had last, and who
// had the guest thread last. But a guest thread that is interrupted while it waits for its
// turn is handed back by whichever took it, with a note as if it had run there; and one that
// is interrupted just before its registers are restored, with a note that they were. The
// next host thread then may go on with registers from before. Copies of memory are made
// with these registers, so 32 bytes of a copy were at times what another place has.
//
// Interrupts that lead to a signal of the guest's do no harm: its handler gets the right
// registers, and they are restored behind it. Those of a freeze, of a stop and of the
// platform itself did: of 1000 times that a program was stopped and went on, 20 to 90, in
// gVisor as it is too.
//
// The package's test has a fake platform; that registers survive on the real one is tested
// in test/fork (TestVectorRegisters), where without this package some are lost.
//
// It must never know what a sandbox is, nor where memory comes from.
package fpstate
