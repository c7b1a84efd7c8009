// Package fspatch changes many files of a running sandbox at once: all changes are made, or
// none. It is how a merge is written.
//
// It must never know where the changes come from.
package fspatch
