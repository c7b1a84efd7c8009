// Package merge plans three-way merges of files: which changes of a tree since a base are
// made in another tree, called ours, that may have changed as well.
//
// A Plan changes nothing. It takes one side after the other; a later side sees the changes
// of the earlier ones. Its results are Ops, the operations that turn ours into the merged
// tree, and Conflicts.
//
// The unit is the path. If both sides changed a path, its contents, type, permissions, owner
// and each extended attribute are merged separately, and texts line by line. A property that
// cannot be merged is a conflict; then the path stays as ours has it, or the strategy
// decides. Last, the result must be a tree: a new file needs a directory above it, and a
// directory is removed only if nothing stays in it (structure.go).
//
// The package must never know how trees are stored, nor what a sandbox is.
package merge
