// Package cow makes the memory of a running gVisor kernel copy-on-write between processes.
//
// The memory of a sandbox is in its own memory file (a memfd). A freeze pins the pages that
// must not change any more by taking a reference on them: gVisor copies a private page before
// a write if it has another reference, so a pinned page is immutable until its pin is dropped.
// A child gets the memory files of its ancestors read-only, called generations, and a Table
// that says which range of its memory is in which generation. File offsets are the same in all
// of them. A child reaches the pages of generations in two ways:
//
//   - the Reader maps them over the child's own internal mapping of its memory file, for
//     accesses of the kernel;
//   - Platform maps them into guest address spaces, for accesses of the guest.
//
// The canary test checks all that the package relies on inside gVisor.
//
// It must never know what a sandbox is, nor talk to the host side.
package cow
