// Package timertest has a clock for tests.
//
// The package must never be part of a program.
package timertest
