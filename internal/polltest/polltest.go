// Package polltest waits in tests for what no channel tells: a count in another process, a file, a
// descriptor that is closed.
//
// The package must never know what is waited for.
package polltest

import (
	"testing"
	"time"
)

// Eventually returns when holds does, and ends the test if that is not so within a time.
func Eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(within); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
