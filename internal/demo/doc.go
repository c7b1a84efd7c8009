// Package demo demonstrates forking on real input: it warms a sandbox, forks it, lets the children
// run in different ways, compares two, promotes the best, and forks it again into a hundred. It
// explains each step and checks everything that it claims; a claim that it cannot show is an error.
//
// It must never print a number that was not measured in the same run.
package demo
