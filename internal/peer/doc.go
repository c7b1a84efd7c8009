// Package peer notices that whoever is at the other end of a connection is gone:
// where nobody reads, and where no last word came.
//
// It must never know what a connection is for, nor end one by itself.
package peer
