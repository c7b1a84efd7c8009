// Package demo shows the main job on real input: warm a sandbox, fork it, let the
// children go different ways, compare two, promote the best, and fork again into
// a hundred. It tells what it does and checks everything it claims; whatever it
// cannot show is an error.
//
// It must never print a number that was not measured in the same run.
package demo
