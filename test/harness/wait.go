package harness

import (
	"os"
	"strconv"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// Timeout bounds every wait for something that should happen soon, on a machine
// that may be busy with something else.
var Timeout = Slow(30 * time.Second)

// EnvSlow is by how much the machine is slower than a usual one, a whole number: an emulated machine has 10 to 50.
const EnvSlow = "RAMET_TEST_SLOW"

// Slow returns how long what usually takes no longer than d may take on this machine.
func Slow(d time.Duration) time.Duration {
	if n, err := strconv.Atoi(os.Getenv(EnvSlow)); err == nil && n > 1 {
		return d * time.Duration(n)
	}
	return d
}

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
