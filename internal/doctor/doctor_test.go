package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ramet.dev/ramet/internal/engine/cgroup"
)

// runEnv makes this test binary print the findings for the data directory that
// the variable names, as another user.
const runEnv = "RAMET_TEST_DOCTOR_DATA_DIR"

func TestMain(m *testing.M) {
	if ChildMain(os.Args) {
		return
	}
	// A program under the race detector sleeps for a second at its end, each child
	// included.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	if dir := os.Getenv(runEnv); dir != "" {
		if err := json.NewEncoder(os.Stdout).Encode(Run(context.Background(), dir)); err != nil {
			panic(err)
		}
		return
	}
	os.Exit(m.Run())
}

func TestChildMainLeavesOtherCommandsAlone(t *testing.T) {
	for _, args := range [][]string{nil, {"ramet"}, {"ramet", "doctor"}, {"ramet", childArg}, {"ramet", "x", childArg, "wait"}} {
		if ChildMain(args) {
			t.Errorf("ChildMain(%q) took the command", args)
		}
	}
}

func TestRunHere(t *testing.T) {
	checkNoFail(t, Run(t.Context(), filepath.Join(t.TempDir(), "not", "yet")))
}

func TestRunHereAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become somebody else; TestRunHere is this test for an ordinary user")
	}
	const nobody = 65534
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "doctor.test"))
	copyFile(t, selfExe, cmd.Path) // go test's own directory is closed to others
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	findings := runDoctor(t, cmd, dir)
	checkNoFail(t, findings)
	if f := find(t, findings, "user_namespaces"); !strings.Contains(f.Detail, "65534") {
		t.Errorf("it did not run as another user: %+v", f)
	}
}

// TestOnlyOneUserNamespace has a host that lets a process make a user namespace and
// nobody in that another one.
func TestOnlyOneUserNamespace(t *testing.T) {
	cmd := exec.Command("sh", "-c", `echo 1 >/proc/sys/user/max_user_namespaces && exec "$0"`, os.Args[0])
	cmd.SysProcAttr = childAttr(unix.CLONE_NEWUSER)
	if f := find(t, runDoctor(t, cmd, t.TempDir()), "user_namespaces"); f.Status != StatusWarn || !strings.Contains(f.Detail, "in a user namespace") {
		t.Errorf("%+v", f)
	}
}

// runDoctor has cmd, which ends up as this program, examine the machine for a daemon
// whose data are in dir.
func runDoctor(t *testing.T, cmd *exec.Cmd, dir string) (findings []Finding) {
	t.Helper()
	cmd.Env = append(os.Environ(), runEnv+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out, &findings); err != nil {
		t.Fatal(err)
	}
	return findings
}

func find(t *testing.T, findings []Finding, name string) Finding {
	t.Helper()
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("nothing was found of %s", name)
	}
	return findings[i]
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	src, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		t.Fatal(err)
	}
	if err := dst.Close(); err != nil {
		t.Fatal(err)
	}
}

func checkNoFail(t *testing.T, findings []Finding) {
	t.Helper()
	if len(findings) != len(probes)+1 {
		t.Errorf("%d findings of %d probes and their sum", len(findings), len(probes))
	}
	for _, f := range findings {
		t.Logf("%-5s %-18s %s", f.Status, f.Name, f.Detail)
		if f.Status == StatusFail {
			t.Errorf("%s fails: %s", f.Name, f.Detail)
		}
		checkShape(t, f)
	}
}

// checkShape checks what callers rely on in every finding.
func checkShape(t *testing.T, f Finding) {
	t.Helper()
	if f.Detail == "" || f.Name == "" {
		t.Errorf("incomplete: %+v", f)
	}
	if (f.Status == StatusOK) != (f.Remedy == "") {
		t.Errorf("remedy and status do not go together: %+v", f)
	}
}

func TestEverythingThatFailsHasARemedy(t *testing.T) {
	m := &machine{root: t.TempDir(), dataDir: "/proc/nowhere", child: noChild, arch: "amd64", page: 4096}
	fails := 0
	for _, f := range m.run(t.Context()) {
		checkShape(t, f)
		if f.Status == StatusFail {
			fails++
		}
	}
	if fails < 6 {
		t.Errorf("only %d probes fail on a machine with nothing", fails)
	}
}

// TestEveryRemedyIsWritten reads the probes: one that finds something must say what
// to do, also what cannot be found on this machine.
func TestEveryRemedyIsWritten(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if name, ok := call.Fun.(*ast.Ident); ok && (name.Name == "warn" || name.Name == "fail") {
				found++
				if text, ok := call.Args[0].(*ast.BasicLit); ok && len(text.Value) < len(`"mount /x"`) {
					t.Errorf("%s: a finding has the remedy %s", file, text.Value)
				}
			}
			return true
		})
	}
	if found < 30 {
		t.Errorf("only %d findings were looked at", found)
	}
	var unavailable *cgroup.UnavailableError
	if _, err := cgroup.Detect(cgroup.Options{Root: t.TempDir()}); !errors.As(err, &unavailable) || unavailable.Remedy == "" {
		t.Errorf("control groups that are not there: %v", err)
	}
}

// TestIsolationIsSummedUp counts layers that are missing, and what no sandbox starts without.
func TestIsolationIsSummedUp(t *testing.T) {
	all := []Finding{{Name: "kernel", Status: StatusOK}, {Name: "namespaces", Status: StatusOK}, {Name: "disk", Status: StatusWarn}}
	for _, c := range []struct {
		more   Finding
		status Status
		detail string
	}{
		{Finding{Name: "mounts", Status: StatusOK}, StatusOK, "full: "},
		{Finding{Name: "mounts", Status: StatusWarn}, StatusWarn, "reduced: sandboxes run without mounts"},
		{Finding{Name: "seccomp", Status: StatusFail}, StatusFail, "none: no sandbox can start without seccomp"},
	} {
		f := sumUp(append(all, c.more))
		if f.Status != c.status || !strings.HasPrefix(f.Detail, c.detail) {
			t.Errorf("with %+v: %+v", c.more, f)
		}
	}
}

func noChild(context.Context, childRequest) (childReply, error) {
	return childReply{}, errors.New("operation not permitted")
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	findings := Run(ctx, t.TempDir())
	i := slices.IndexFunc(findings, func(f Finding) bool { return f.Name == "seccomp" })
	if f := findings[i]; f.Status != StatusFail || !strings.Contains(f.Detail, "canceled") {
		t.Errorf("%+v", f)
	}
}

func TestRunChildReportsFailures(t *testing.T) {
	if _, err := runChild(t.Context(), childRequest{probe: "nonsense"}); err == nil || !strings.Contains(err.Error(), "no probe") {
		t.Errorf("an unknown probe gives %v", err)
	}
	if got := firstLine(bytes.NewBufferString("\n a b\nc")); got.Error() != "a b" {
		t.Errorf("firstLine = %q", got)
	}
	if got := firstLine(bytes.NewBufferString(" \n")); got != nil {
		t.Errorf("firstLine of nothing = %q", got)
	}
}

func TestFindingJSON(t *testing.T) {
	b, err := json.Marshal(Finding{Name: "x", Status: StatusOK, Detail: "y"})
	if err != nil || string(b) != `{"name":"x","status":"ok","detail":"y"}` {
		t.Errorf("%s, %v", b, err)
	}
}
