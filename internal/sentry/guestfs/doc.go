// Package guestfs performs operations of the host side on files of a running sandbox: it
// reads, writes, lists, searches, packs, unpacks, changes and watches them as a user of the
// sandbox.
//
// An operation is a sequence of short accesses to the gate, so that a freeze does not wait for
// long. Files that an operation has open in between are saved with the kernel (Held).
//
// Lock order: Files.matching, the gate's accesses, Held.mu.
//
// The package must never follow a path in another way than the sandbox's own processes, nor
// know what the kernel runs.
package guestfs
