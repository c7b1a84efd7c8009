package daemon

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/internal/storage/paths"
)

// useEnv makes p the paths of processes that are started from now on, and ends
// their daemon with the test.
func useEnv(t *testing.T, p paths.Paths) {
	t.Helper()
	t.Setenv(paths.EnvRuntimeDir, p.RuntimeDir())
	t.Setenv(paths.EnvDataDir, p.DataDir())
	t.Cleanup(func() { endDaemon(t, p) })
}

// endDaemon ends the daemon of p, if there is one, and waits for it: a daemon
// holds its lock until it ends.
func endDaemon(t *testing.T, p paths.Paths) {
	t.Helper()
	c, h, err := Connect(context.Background(), p)
	if err != nil {
		return
	}
	c.Close()
	if err := syscall.Kill(h.PID, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	lock, err := acquire(context.Background(), p.Lock())
	if err != nil {
		t.Fatal(err)
	}
	if err := release(lock); err != nil {
		t.Error(err)
	}
}

func TestTwentyCommandsStartOneDaemon(t *testing.T) {
	p := testPaths(t)
	useEnv(t, p)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	commands := make([]*exec.Cmd, 20)
	outs := make([]strings.Builder, len(commands))
	for i := range commands {
		commands[i] = exec.Command(exe, "ensure")
		commands[i].Stdout = &outs[i]
		if err := commands[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	pids := map[string]int{}
	for i, cmd := range commands {
		if err := cmd.Wait(); err != nil {
			t.Errorf("command %d: %v: %s", i, err, outs[i].String())
		}
		pids[strings.TrimSpace(outs[i].String())]++
	}
	if len(pids) != 1 {
		t.Fatalf("daemons: %v", pids)
	}
	log, err := os.ReadFile(p.Log())
	if err != nil || strings.Count(string(log), "daemon is ready") != 1 {
		t.Errorf("log: %v\n%s", err, log)
	}
}

func TestEnsureAgainAfterTheDaemonDied(t *testing.T) {
	p := testPaths(t)
	useEnv(t, p)
	last := 0
	for range 2 {
		c, h, err := Ensure(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if h.PID == last || h.PID == os.Getpid() {
			t.Fatalf("process %d again", h.PID)
		}
		last = h.PID
		if session, _, errno := syscall.RawSyscall(syscall.SYS_GETSID, uintptr(h.PID), 0, 0); errno != 0 || int(session) != h.PID {
			t.Errorf("the daemon is in session %d: %v", session, errno)
		}
		if cwd, err := os.Readlink("/proc/" + strconv.Itoa(h.PID) + "/cwd"); err != nil || cwd != "/" {
			t.Errorf("the daemon is in %q: %v", cwd, err)
		}
		// Killed, it leaves its socket and lock files behind.
		if err := syscall.Kill(h.PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		lock, err := acquire(t.Context(), p.Lock())
		if err != nil {
			t.Fatal(err)
		}
		if err := release(lock); err != nil {
			t.Fatal(err)
		}
	}
}

// A daemon that is being killed may have taken the connection already.
func TestEnsureWhileTheDaemonDies(t *testing.T) {
	p := testPaths(t)
	useEnv(t, p)
	if err := p.MakeRuntime(); err != nil {
		t.Fatal(err)
	}
	dying, err := net.Listen("unix", p.Socket())
	if err != nil {
		t.Fatal(err)
	}
	var asked sync.WaitGroup
	asked.Go(func() {
		conn, err := dying.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		dying.Close() // its file goes, too: the next one finds nobody
		conn.Close()
	})
	c, h, err := Ensure(t.Context(), p)
	asked.Wait()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if h.PID == os.Getpid() {
		t.Error("no daemon was started")
	}
}

func TestADaemonThatCannotStartSaysWhy(t *testing.T) {
	for behaviour, want := range map[string]struct {
		code api.Code
		text string
	}{
		"refuse": {api.CodeIsolation, "no user namespaces"},
		"crash":  {api.CodeUnavailable, "segmentation fault, so to speak"},
	} {
		t.Run(behaviour, func(t *testing.T) {
			p := testPaths(t)
			useEnv(t, p)
			t.Setenv(envBehaviour, behaviour)
			_, _, err := Ensure(t.Context(), p)
			if api.CodeOf(err) != want.code || !strings.Contains(err.Error(), want.text) {
				t.Errorf("Ensure = %v", err)
			}
			// The lock is free again: a second attempt is not stuck.
			t.Setenv(envBehaviour, "")
			c, _, err := Ensure(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		})
	}
}

func TestInheritRefusesAPerson(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := testPaths(t)
	useEnv(t, p)
	if err := os.MkdirAll(p.RuntimeDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.StartLock(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	other, err := os.Create(filepath.Join(t.TempDir(), "start.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for name, files := range map[string][]*os.File{"no files": {nil, nil}, "the files of another program": {write, other}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, exe, "serve")
		cmd.ExtraFiles = files
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "only ramet itself") {
			t.Errorf("%s: %v: %s", name, err, out)
		}
	}
}
