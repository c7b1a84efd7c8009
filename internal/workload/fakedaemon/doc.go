// Package fakedaemon is for tests of what works against a daemon: one that keeps
// sandboxes as records, forks them by copying those, and has a function for a
// warm process.
//
// It must never be imported by code that is not a test.
package fakedaemon
