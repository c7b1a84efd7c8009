package api

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestSignalNumber(t *testing.T) {
	for n := 1; n <= 31; n++ {
		name := unix.SignalName(unix.Signal(n))
		for _, text := range []string{name, strings.ToLower(name), strings.TrimPrefix(name, "SIG")} {
			if got, err := SignalNumber("signal", text); err != nil || got != n {
				t.Errorf("%s is %d, %v, not %d", text, got, err, n)
			}
		}
	}
	if n, err := SignalNumber("signal", "64"); err != nil || n != 64 {
		t.Errorf("64 is %d, %v", n, err)
	}
	for _, text := range []string{"", "SIG", "TERMINATE", "SIGSIGTERM", "9.5"} {
		if n, err := SignalNumber("signal", text); CodeOf(err) != CodeInvalid || AsError(err).Field != "signal" {
			t.Errorf("%q is %d, %v", text, n, err)
		}
	}
}
