// Package events keeps the last events for readers, which may follow. The number of kept
// events bounds its memory. A reader that is too slow learns how many events it missed;
// publishing never waits for readers.
//
// The package must never know what an event means.
package events
