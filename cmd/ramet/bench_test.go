package main

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ramet.dev/ramet/internal/bench"
)

// ordinaryUser runs the commands of tests that root runs.
const ordinaryUser = 65533

// TestBench runs the real measurements of the cases that need no Python, by an
// ordinary user with a daemon of his own.
func TestBench(t *testing.T) {
	u := newUser(t)
	u.serve()
	u.run("image", "import", u.rootfs(), "--name", "python")
	var r bench.Report
	out := u.run("bench", "--only", "create,exec,runsc-restore", "--runsc", "/bin/true", "--runs", "2", "--json")
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(r.Rows) != 2 || r.Rows[0].Case != "create" || r.Rows[1].Case != "exec" {
		t.Fatalf("rows: %s", out)
	}
	create, exec := r.Rows[0], r.Rows[1]
	for name, value := range map[string]*float64{
		"return of create": create.ReturnMS, "first command": create.FirstExecMS, "processor time": create.CPUMSPerChild,
		"memory": create.PrivateMiBPerChild, "round trip": exec.RoundtripMS,
	} {
		if value == nil || *value <= 0 {
			t.Errorf("%s was not measured: %s", name, out)
		}
	}
	if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "needs root") {
		t.Errorf("what only root can measure is not in the notes: %q", notes)
	}
	if left := string(u.run("ls", "--json")); strings.Contains(left, "sbx_") {
		t.Errorf("sandboxes are left: %s", left)
	}
}

// user runs ramet with directories of his own, and is not root.
type user struct {
	t       *testing.T
	dir     string
	program string
}

func newUser(t *testing.T) *user {
	t.Helper()
	dir, err := os.MkdirTemp("", "ramet-bench-") // short, as sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	u := &user{t: t, dir: dir, program: filepath.Join(dir, "ramet")}
	// The one that go test made lies where only this user can read it.
	program, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(u.program, program, 0o755)
	}
	if err == nil && os.Geteuid() == 0 {
		err = os.Chown(dir, ordinaryUser, ordinaryUser)
	}
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (u *user) command(args ...string) *exec.Cmd {
	cmd := exec.Command(u.program, args...)
	cmd.Dir = u.dir
	cmd.Env = []string{envMain + "=1", "HOME=" + u.dir, "TMPDIR=" + u.dir, "PATH=" + os.Getenv("PATH"), "RAMET_POOL=1",
		"RAMET_RUNTIME_DIR=" + filepath.Join(u.dir, "run"), "RAMET_DATA_DIR=" + filepath.Join(u.dir, "data")}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: ordinaryUser, Gid: ordinaryUser}
	}
	return cmd
}

// run runs a command that must succeed.
func (u *user) run(args ...string) []byte {
	u.t.Helper()
	cmd := u.command(args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		u.t.Fatalf("%v: %v: %s%s", args, err, out, stderr.String())
	}
	return out
}

// serve runs a daemon until the end of the test.
func (u *user) serve() {
	u.t.Helper()
	cmd := u.command("serve")
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL // should the test be killed
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		u.t.Fatal(err)
	}
	ready, ended := make(chan bool, 1), make(chan string, 1)
	go func() {
		var text strings.Builder
		for lines := bufio.NewScanner(io.TeeReader(log, &text)); lines.Scan(); {
			if strings.Contains(lines.Text(), "daemon is ready") {
				ready <- true
			}
		}
		close(ready)
		ended <- text.String()
	}()
	u.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		text := <-ended
		if err := cmd.Wait(); err != nil || u.t.Failed() {
			u.t.Errorf("daemon: %v\n%s", err, text)
		}
	})
	if !<-ready {
		u.t.Fatal("the daemon did not start")
	}
}

// rootfs makes the root file system of an image in which there is a command true
// and nothing else.
func (u *user) rootfs() string {
	u.t.Helper()
	root := filepath.Join(u.dir, "rootfs")
	for _, dir := range []string{"bin", "etc", "root", "dev", "proc", "sys", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			u.t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(root, "bin/guest"), "ramet.dev/ramet/test/guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		u.t.Fatalf("build guest program: %v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/true"), []byte("#!/bin/guest true\n"), 0o755); err != nil {
		u.t.Fatal(err)
	}
	return root
}
