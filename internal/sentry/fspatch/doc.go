// Package fspatch changes many files of a running sandbox atomically: all changes are made, or
// none. Merges are written with it.
//
// It must never know where the changes come from.
package fspatch
