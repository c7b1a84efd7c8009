// Package solve selects the packages of a system: the essential ones, those that the
// caller includes, and all that they depend on. It also says in which order they are
// unpacked and configured.
//
// A result depends on the input only. The package must never read or fetch a file.
package solve
