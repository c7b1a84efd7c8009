// Package systraptuning tunes gVisor's systrap platform for short-lived programs: most commands
// end after a few milliseconds.
//
// Systrap is made for programs that run for long:
//
//   - It rewrites the instruction of a system call, in a copy of the page for that process
//     alone, so that later calls are cheaper. A program that makes thirty calls pays for the
//     copies and saves nothing.
//   - It maps a page when it is first touched. Each of these faults takes a signal, and a
//     short-lived program touches nearly all of its pages. After a fork, a child begins with none,
//     and its parent has lost those that it may write to.
//   - After a millisecond of calls, the sentry and the program poll for each other. That is
//     faster than waking each other if each has a processor. If Linux runs both on the same
//     processor, as it does at first, each takes the processor from the other.
//
// With this package
//
//   - a process makes a hundred system calls before the first one is rewritten (rewrite.go),
//   - it enters its own code forty times before systrap polls for it (polling.go),
//   - pages that the dynamic linker always touches are mapped at once (ahead.go),
//   - address ranges that were never mapped are not unmapped (addressspace.go), and others when a
//     thread of the process is about to run, unless they are mapped again before (late.go),
//   - pages that a process and its children touched after its last forks are mapped at once after
//     the next one (lessons.go).
//
// The tests of the package, and those of programs in test/process (brief_test.go), check
// all that it relies on inside gVisor.
//
// It must never know what a sandbox is, nor where memory comes from.
package systraptuning
