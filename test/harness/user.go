package harness

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ramet.dev/ramet/internal/polltest"
)

// OrdinaryUser is the user, and the group, of tests that have no privileges.
const OrdinaryUser = 65533

// envAsUser is set by a caller that reads the events of the ordinary user's tests, to the pattern
// of those that are to run.
const envAsUser = "RAMET_TEST_AS_USER"

// AsOrdinaryUser runs the tests of the suite again as a user who is not root, if this one
// is: without control groups, with other owners of namespaces.
func AsOrdinaryUser(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user already")
	}
	dir := NewDir(t)
	program := filepath.Join(dir, "tests")
	copyProgram(t, program)
	if err := os.Chown(dir, OrdinaryUser, OrdinaryUser); err != nil {
		t.Fatal(err)
	}
	choice, streamed := os.LookupEnv(envAsUser)
	args := []string{"-test.timeout=15m", "-test.v", "-test.skip=^" + t.Name() + "$"}
	if streamed {
		args = []string{"-test.timeout=15m", "-test.v=test2json", "-test.run=" + choice}
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH"), EnvAssets + "=" + Assets, envSeed + "=" + os.Getenv(envSeed), polltest.EnvSlow + "=" + os.Getenv(polltest.EnvSlow)}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: OrdinaryUser, Gid: OrdinaryUser},
		Pdeathsig:  syscall.SIGKILL,
	}
	if streamed {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Run(); err != nil {
			t.Errorf("as user %d: %v", OrdinaryUser, err)
		}
		return
	}
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "--- ") || strings.Contains(line, envSeed) {
			t.Log(strings.TrimSpace(line))
		}
	}
	passed := strings.Count(string(out), "\n--- PASS:")
	if err != nil || passed == 0 {
		t.Errorf("as user %d: %v, %d tests passed\n%s", OrdinaryUser, err, passed, withoutPassed(string(out)))
	}
}

// OnlyOnce skips a test that root ran in the same run, because it does not depend on who
// starts sandboxes.
func OnlyOnce(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv(EnvAssets) != "" {
		t.Skip("root ran the same: " + why)
	}
}

// withoutPassed cuts those tests out of go test's output that passed or were skipped: what is
// left tells of the failed ones, or of the one that a panic or a deadline ended.
func withoutPassed(out string) string {
	var kept, current strings.Builder
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "--- PASS") || strings.HasPrefix(line, "--- SKIP") {
			current.Reset()
			continue
		}
		current.WriteString(line)
		if strings.HasPrefix(line, "--- FAIL") {
			kept.WriteString(current.String())
			current.Reset()
		}
	}
	return kept.String() + current.String()
}

// copyProgram copies this test binary: the one that go test made lies where only
// this user can read it.
func copyProgram(t *testing.T, to string) {
	t.Helper()
	if err := copyFile("/proc/self/exe", to); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, 0o755); err != nil {
		t.Fatal(err)
	}
}

// copyFile copies the contents of a file to a new one.
func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
