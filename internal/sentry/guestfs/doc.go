// Package guestfs does what the host side asks for with files of a running sandbox: it
// reads, writes, lists, searches, packs, unpacks, changes and watches them as a user of the
// sandbox.
//
// An operation is a row of short accesses to the gate, so that a freeze waits for none of
// them for long. What an operation has open meanwhile is saved with the kernel (Held).
//
// Lock order: Files.matching, the gate's accesses, Held.mu.
//
// The package must never follow a path other than as the sandbox's own processes do, and
// never knows what the kernel runs.
package guestfs
