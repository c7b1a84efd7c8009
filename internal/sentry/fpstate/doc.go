// Package fpstate preserves the vector and floating-point registers of guest threads that are
// interrupted, which gVisor's systrap platform does not always do.
//
// Systrap runs the threads of a guest process on several host threads. Restoring these
// registers takes time, so a host thread that continues the guest thread that it ran last
// leaves them as they are. Two records say that it may: the guest thread that the host thread
// ran last, and the host thread that ran the guest thread last. In two cases the records are
// wrong: a guest thread that is interrupted while it waits for its turn is recorded as if it
// had run on the host thread that took it; and for a guest thread that is interrupted just
// before its registers are restored, it is recorded that they were. Then the next host thread
// may continue with old registers. Copies of memory are made with these registers, so at times
// 32 bytes of a copy came from another place.
//
// Interrupts that lead to a signal of the guest do no harm: its handler gets the right
// registers, and they are restored after it. Interrupts of a freeze, of a stop and of the
// platform itself did harm: of 1000 times that a program was stopped and continued, 20 to 90,
// in unchanged gVisor too.
//
// The package's test has a fake platform; that registers survive on the real one is tested
// in test/fork (TestVectorRegisters), where without this package some are lost.
//
// It must never know what a sandbox is, nor where memory comes from.
package fpstate
