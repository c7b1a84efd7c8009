// Package timer rings when a time has come: one time for each id, and one
// goroutine for all of them.
//
// The time is a Clock's, which a test moves by itself (package timertest).
//
// The package must never know what the ids stand for, nor do what has become due:
// whoever is rung must not keep the others waiting.
package timer
