// Package events keeps the last events and hands them to whoever follows. Memory is
// bounded by the number of events that are kept: a reader that is too slow is told
// how many it missed, and nobody who publishes ever waits.
//
// The package must never know what an event means.
package events
