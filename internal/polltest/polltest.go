// Package polltest waits in tests for what no channel tells: a count in another process, a file, a
// descriptor that is closed.
//
// The package must never know what is waited for.
package polltest

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// EnvSlow is by how much the machine is slower than a usual one, a whole number: an emulated machine has 10 to 50.
const EnvSlow = "RAMET_TEST_SLOW"

// Slow returns by how much the machine is slower than a usual one.
func Slow() int {
	if n, err := strconv.Atoi(os.Getenv(EnvSlow)); err == nil && n > 1 {
		return n
	}
	return 1
}

// Within returns how long an operation may take on this machine that takes no longer than d on a usual one.
func Within(d time.Duration) time.Duration { return d * time.Duration(Slow()) }

// Eventually returns when holds does, and ends the test if that is not so within a time.
func Eventually(t testing.TB, within time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(Within(within)); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
