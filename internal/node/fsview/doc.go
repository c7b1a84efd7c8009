// Package fsview is the files of a sandbox or snapshot as they are at one moment, and
// the history of forks that led there.
//
// A View keeps its files until it is closed, whatever the sandbox does meanwhile. The
// node opens views; comparisons, merges, exports and commits read them.
//
// The package never learns how a view is opened, nor what a sandbox is.
package fsview
