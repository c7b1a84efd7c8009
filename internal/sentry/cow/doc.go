// Package cow makes the memory of a running gVisor kernel copy-on-write between
// processes.
//
// A sandbox's memory lives in its own memory file (a memfd). A freeze pins the
// pages that must not change any more by taking a reference on them: gVisor
// copies a private page before a write whenever somebody else holds a
// reference, so a pinned page is immutable until its pin is dropped. A child
// gets the ancestors' memory files read-only, called generations, and a Table
// that says which file range lives in which generation. File offsets are the
// same in all of them. Two places make the child see generation pages:
//
//   - the Reader maps them over the child's own internal mapping of its memory
//     file, for the kernel's accesses;
//   - Platform maps them into guest address spaces, for the guest's.
//
// Everything the package relies on inside gVisor is pinned down by the canary
// test in internal/sentry.
//
// It must never know what a sandbox is, nor talk to the host side.
package cow
