package docs

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// timeout bounds each command, on a machine that may be busy with something else.
const timeout = 3 * time.Minute

// world is an empty directory, a shell in it, and a daemon of its own.
type world struct {
	t       *testing.T
	dir     string
	env     []string
	shell   *exec.Cmd
	stdin   io.WriteCloser
	status  *bufio.Reader
	numbers int // of commands so far
}

// environment returns the environment of a world whose directories are below dir.
func environment(dir string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "RAMET_") || strings.HasPrefix(v, "OTEL_") || strings.HasPrefix(v, "BASH_ENV=")
	})
	return append(env, "PATH="+programs+":"+os.Getenv("PATH"), "HOME="+dir, "LC_ALL=C.UTF-8", "TZ=UTC", "NO_COLOR=1",
		"XDG_RUNTIME_DIR="+filepath.Join(dir, "run"), "XDG_DATA_HOME="+filepath.Join(dir, "data"), "RAMET_POOL=4")
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "ramet-docs-") // short, as sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: dir, env: environment(dir)}
	t.Cleanup(w.end)
	for _, d := range []string{"run", "data", "work", "steps"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyImages(filepath.Join(imageDir(t), "ramet", "images"), filepath.Join(dir, "data", "ramet", "images")); err != nil {
		t.Fatal(err)
	}
	w.shell = exec.Command("bash", "--noprofile", "--norc")
	w.shell.Dir, w.shell.Env = filepath.Join(dir, "work"), w.env
	w.shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := w.shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if w.stdin, err = w.shell.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := w.shell.Start(); err != nil {
		t.Fatal(err)
	}
	w.status = bufio.NewReader(stdout)
	return w
}

// run has the shell execute a command, and returns the file with its output.
func (w *world) run(command string) (output string, err error) {
	w.numbers++
	file := filepath.Join(w.dir, "steps", fmt.Sprint(w.numbers))
	output = file + ".out"
	if err := os.WriteFile(file, []byte(command+"\n"), 0o600); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(w.stdin, "{ . %s; } </dev/null >%s 2>&1; echo done\n", file, output); err != nil {
		return "", err
	}
	done := make(chan error, 1)
	go func() {
		_, err := w.status.ReadString('\n')
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return output, fmt.Errorf("the shell ended: %w", err)
		}
		return output, nil
	case <-time.After(timeout):
		return output, fmt.Errorf("it has not ended within %v", timeout)
	}
}

// end removes all that the world has, and looks whether its daemon ends.
func (w *world) end() {
	if w.shell != nil {
		_ = syscall.Kill(-w.shell.Process.Pid, syscall.SIGKILL) // commands in the background as well
		_ = w.stdin.Close()
		_ = w.shell.Wait()
	}
	if err := endDaemon(w.env); err != nil {
		w.t.Errorf("end the daemon: %v", err)
	}
	if err := os.RemoveAll(w.dir); err != nil {
		w.t.Errorf("remove the world: %v", err)
	}
}

// endDaemon removes the sandboxes of a daemon and ends it.
func endDaemon(env []string) error {
	said, err := ramet(env, "api", "/healthz")
	if err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	var health struct{ PID int }
	if err := json.Unmarshal(said, &health); err != nil || health.PID <= 1 {
		return fmt.Errorf("%q says no process: %w", said, err)
	}
	ids, err := ramet(env, "ls", "-q", "-A")
	if err != nil {
		return fmt.Errorf("%w: %s", err, ids)
	}
	if all := strings.Fields(string(ids)); len(all) > 0 {
		if out, err := ramet(env, append([]string{"rm"}, all...)...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
	if err := syscall.Kill(health.PID, syscall.SIGTERM); err != nil {
		return err
	}
	if !eventually(time.Minute, func() bool { return errors.Is(syscall.Kill(health.PID, 0), syscall.ESRCH) }) {
		return fmt.Errorf("process %d has not ended within a minute", health.PID)
	}
	return nil
}

// eventually reports whether a condition holds within a time. It looks at least once.
func eventually(within time.Duration, holds func() bool) bool {
	for start := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) >= within {
			return false
		}
	}
	return true
}

func ramet(env []string, args ...string) ([]byte, error) {
	cmd := exec.Command(filepath.Join(programs, "ramet"), args...)
	cmd.Env = env
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	return said.Bytes(), err
}

// copyImages copies an image store. The images themselves, which nobody changes, are links.
func copyImages(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, from))
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o700)
		case filepath.Ext(path) == ".erofs" && os.Link(path, target) == nil:
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o600)
	})
}
