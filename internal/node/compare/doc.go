// Package compare compares sandboxes and snapshots with each other, and merges what the
// files of some of them changed into a running sandbox.
//
// Files are compared as trees of pages (internal/storage/cowfs), merges are planned in
// internal/storage/merge. What this package adds is the service: requests in, results
// for users out, and the bounds of what one operation may read and write.
//
// The package never opens files of sandboxes, nor knows how a sandbox is found or kept
// running: it is given views, processes and variables.
package compare
