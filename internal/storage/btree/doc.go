// Package btree is a sorted map in pages of a store: a B+tree of which every version that is
// pinned stays readable.
//
// A Tree is the present version, which its owner changes in place where no pin forbids it and
// else by copying the path to the root. A View reads a version from files that somebody else
// may have written, and believes nothing of them. Diff compares two views and reads only the
// nodes that they do not share.
//
// Keys are at most 600 bytes and values at most 1200. Values may refer to data pages; callers
// say to which (DataPages), since the package must never know what keys and values mean.
package btree
