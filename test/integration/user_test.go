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
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH"), envAssets + "=" + assets}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser},
		Pdeathsig:  syscall.SIGKILL,
	}
	out, err := cmd.CombinedOutput()
	passed := strings.Count(string(out), "\n--- PASS:")
	if err != nil || passed == 0 {
		t.Errorf("as user %d: %v\n%s", ordinaryUser, err, out)
	}
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "--- ") || strings.Contains(line, "RAMET_TEST_SEED") {
			t.Log(strings.TrimSpace(line))
		}
	}
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
