package integration

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ordinaryUser runs the tests once more without privileges.
const ordinaryUser = 65533

// TestOrdinaryUser runs the tests again as a user who is not root, if this one
// is: without control groups, with other owners of namespaces.
func TestOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("this is an ordinary user already")
	}
	dir := newDir(t)
	program := filepath.Join(dir, "tests")
	copyProgram(t, program)
	if err := os.Chown(dir, ordinaryUser, ordinaryUser); err != nil {
		t.Fatal(err)
	}
	skip := []string{"TestOrdinaryUser", "TestHookHangs", "TestForksInARowCostTheSame", "TestMemoryGoesBack", "TestExecManyAtOnce", "TestCancel", "TestForkChainEnds"}
	cmd := exec.Command(program, "-test.v", "-test.timeout=15m", "-test.skip=^("+strings.Join(skip, "|")+")$")
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH"), envAssets + "=" + assets, envSeed + "=" + os.Getenv(envSeed)}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser},
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "--- ") || strings.Contains(line, envSeed) {
			t.Log(strings.TrimSpace(line))
		}
	}
	passed := strings.Count(string(out), "\n--- PASS:")
	if err != nil || passed == 0 {
		t.Errorf("as user %d: %v, %d tests passed\n%s", ordinaryUser, err, passed, withoutPassed(string(out)))
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
	in, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.Copy(out, in)
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatal(err)
	}
}
