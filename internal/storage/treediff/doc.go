// Package treediff lists what differs between the files of two trees above one image: paths
// that were added, deleted, changed or renamed. Its cost is in proportion to what changed
// since the trees had a common ancestor, however many files there are.
//
// It reads both sides through package cowfs and trusts neither: whatever the trees hold, the
// answer is right or an error, after bounded work. It must never know what a sandbox is, nor
// change anything.
package treediff
