// Package doctor checks this machine: which requirements and features of Ramet it supports, and
// what a person can do about the others.
//
// A probe tries a feature itself wherever that is possible, because the settings of a kernel do not
// show what a container forbids. A feature that cannot be tried without harm to the calling process
// is tried in a child: the same executable with hidden arguments, which main must pass to ChildMain
// first.
//
// The package changes nothing on the machine and must never decide what follows from a finding: the
// start of a sandbox tries everything again and reports its own errors.
package doctor
