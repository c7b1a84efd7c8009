package harness

import (
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/polltest"
)

// Timeout bounds every wait for something that should happen soon, on a machine
// that may be busy with something else.
var Timeout = polltest.Within(30 * time.Second)

// Eventually waits until check returns nil.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	until := time.Now().Add(Timeout)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(until) {
			t.Errorf("%s: %v", what, err)
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// WantCode fails the test unless err is of the code.
func WantCode(t testing.TB, err error, code api.Code) {
	t.Helper()
	if got := api.CodeOf(err); got != code {
		t.Errorf("error has code %q, not %q: %v", got, code, err)
	}
}

// InBackground runs f and passes on its result.
func InBackground(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}
