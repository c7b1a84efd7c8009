package sentry

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/engine/confinement"
)

// TestRestrictAccess restricts a process of its own, as that cannot be undone.
func TestRestrictAccess(t *testing.T) {
	if reason := confinement.WhyNoLandlock(); reason != "" {
		t.Skip(reason)
	}
	const variable = "RAMET_TEST_RESTRICTED"
	if os.Getenv(variable) == "" {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestRestrictAccess$")
		cmd.Env = append(os.Environ(), variable+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return
	}
	open, err := os.Open("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	proc, err := os.OpenRoot("/proc")
	if err != nil {
		t.Fatal(err)
	}
	if err := allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		t.Fatal(err)
	}
	if on, err := restrictAccess(proc); err != nil || !on {
		t.Fatal(on, err)
	}
	if _, err := os.Open("/etc/passwd"); !errors.Is(err, unix.EACCES) {
		t.Errorf("a file is opened: %v", err)
	}
	if err := os.Mkdir("/tmp/ramet-restricted", 0o700); !errors.Is(err, unix.EACCES) {
		t.Errorf("a directory is made: %v", err)
	}
	if err := unix.Kill(os.Getppid(), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("another process is sent a signal: %v", err)
	}
	if _, err := proc.ReadFile("self/status"); err != nil {
		t.Errorf("the directory of processes: %v", err)
	}
	if n, err := open.Read(make([]byte, 1)); n != 1 {
		t.Errorf("a file that was open: %v", err)
	}
}
