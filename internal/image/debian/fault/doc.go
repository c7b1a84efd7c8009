// Package fault has the errors of a build, each a type of its own, so that a caller can
// tell causes apart.
//
// The package must never know how a build works.
package fault
