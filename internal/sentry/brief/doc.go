// Package brief makes gVisor's systrap platform cheap for programs that are over in a few
// milliseconds, as most commands are.
//
// Systrap pays ahead for calls that are cheaper later: it rewrites the instruction that a
// system call came from, in a copy of the page for that process alone, and it has threads
// spin for what comes next. It maps memory when it is touched, which saves what is never
// touched and takes a signal for the rest. A program that makes thirty calls and ends pays
// for both, gets nothing back, and touches nearly all that it is made of. So
//
//   - a process makes a hundred calls before the first is rewritten (rewrite.go),
//   - nobody spins before guests have been busy for five milliseconds (spin.go),
//   - what the dynamic linker is sure to touch is mapped at once (ahead.go).
//
// What the package relies on inside gVisor is checked when the platform is made, or pinned
// down by the package's tests.
//
// It must never know what a sandbox is, nor where memory comes from.
package brief
