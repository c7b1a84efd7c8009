// Package btree is a sorted map in pages of a store: a B+tree whose pinned versions stay
// readable.
//
// A Tree is the present version. It changes nodes in place where no pin forbids it, and
// otherwise copies the path to the root. A View reads a version from files that may come from
// an untrusted writer, and checks all that it reads. Diff compares two views and reads only
// the nodes that they do not share.
//
// Keys have at most 600 bytes and values at most 1200. Values may refer to data pages; callers
// say to which (DataPages), since the package must never know what keys and values mean.
package btree
