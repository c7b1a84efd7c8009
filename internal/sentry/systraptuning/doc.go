// Package systraptuning makes gVisor's systrap platform cheap for programs that are over in a few
// milliseconds, as most commands are.
//
// Systrap pays ahead for calls that are cheaper later: it rewrites the instruction that a
// system call came from, in a copy of the page for that process alone. And it maps memory
// when it is touched, which saves what is never touched and takes a signal for the rest. A
// program that makes thirty calls and ends pays for the one, gets nothing back, and touches
// nearly all that it is made of. And after a millisecond of calls it has its two sides poll
// for each other, which saves that they wake each other where each has a processor, and takes
// the processor from the other where Linux has both on one, as it has in the beginning. So
//
//   - a process makes a hundred calls that could be before the first is rewritten (rewrite.go),
//   - it goes to its own code forty times before systrap polls for it (polling.go),
//   - what the dynamic linker is sure to touch is mapped at once (ahead.go),
//   - what was never mapped is not unmapped (addressspace.go).
//
// What the package relies on inside gVisor is pinned down by its tests, and by those of
// programs in test/integration (brief_test.go).
//
// It must never know what a sandbox is, nor where memory comes from.
package systraptuning
