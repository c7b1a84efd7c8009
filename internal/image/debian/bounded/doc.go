// Package bounded reads data from outside with an upper bound on each read, so that a
// hostile file costs no more than the bound says.
//
// The package must never know what the data means.
package bounded
