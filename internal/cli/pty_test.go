package cli_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"
	"golang.org/x/sys/unix"
)

// ptyTimeout is how long a command on a terminal has for one step of a test.
const ptyTimeout = 30 * time.Second

// sessionScript is the shell that a person would start ramet from. It leads the session, since
// what a session's leader has written last may be lost when it ends. It tells the exit code as
// the terminal's title, which is the end of ramet's output, and stays until the test has looked.
const sessionScript = `trap : INT; if [ -n "$STDIN" ]; then printf %s "$STDIN" | ramet "$@" 3<&-; else ramet "$@" 3<&-; fi; printf '\033]2;ended %d\007' $? >/dev/tty; read -r _ <&3 || :`

// onTerminal is a command whose terminal is emulated, so that a test sees what a person would.
type onTerminal struct {
	t      *testing.T
	cmd    *exec.Cmd
	tty    *os.File // the other side of the command's terminal
	before *unix.Termios
	screen vt10x.Terminal
	// release ends the shell.
	release *os.File

	mu      sync.Mutex
	raw     bytes.Buffer  // all that was written to the terminal
	written chan struct{} // closed and made anew when something is written
	drained chan struct{} // closed when nothing more will be written
}

// terminalOptions describes the terminal of a command. Streams that are set are no terminal.
type terminalOptions struct {
	cols, rows     uint16
	env            []string
	stdout, stderr io.Writer
	stdin          string
}

// startOnTerminal runs ramet against the daemon at socket.
func startOnTerminal(t *testing.T, socket string, opts terminalOptions, args ...string) *onTerminal {
	t.Helper()
	if opts.cols == 0 {
		opts.cols, opts.rows = 80, 24
	}
	// The emulator wraps where lines are longer than they may be.
	x := &onTerminal{t: t, written: make(chan struct{}), drained: make(chan struct{}),
		screen: vt10x.New(vt10x.WithSize(int(opts.cols), int(opts.rows)))}
	hold, release, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Close()
	x.release = release
	x.cmd = exec.Command("sh", append([]string{"-c", sessionScript, "sh"}, args...)...)
	x.cmd.Env = append(append(os.Environ(), envSocket+"="+socket, envVersion+"=test", "TERM=xterm-256color", "STDIN="+opts.stdin), opts.env...)
	x.cmd.Stdout, x.cmd.Stderr, x.cmd.ExtraFiles = opts.stdout, opts.stderr, []*os.File{hold}
	var theirs *os.File
	if x.tty, theirs, err = pty.Open(); err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if err := pty.Setsize(x.tty, &pty.Winsize{Cols: opts.cols, Rows: opts.rows}); err != nil {
		t.Fatal(err)
	}
	x.before = x.modes() // before the command changes them
	x.cmd.Stdin = theirs
	if x.cmd.Stdout == nil {
		x.cmd.Stdout = theirs
	}
	if x.cmd.Stderr == nil {
		x.cmd.Stderr = theirs
	}
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go x.emulate()
	t.Cleanup(func() {
		if x.cmd.ProcessState == nil {
			_ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGKILL)
			_ = x.cmd.Wait()
		}
		<-x.drained
		release.Close()
		x.tty.Close()
	})
	return x
}

// emulate draws what the command writes until its terminal is closed.
func (x *onTerminal) emulate() {
	defer close(x.drained)
	buf := make([]byte, 32<<10)
	for {
		n, err := x.tty.Read(buf)
		x.mu.Lock()
		x.raw.Write(buf[:n])
		_, _ = x.screen.Write(buf[:n])
		close(x.written)
		x.written = make(chan struct{})
		x.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// modes returns the modes of the command's terminal.
func (x *onTerminal) modes() *unix.Termios {
	x.t.Helper()
	modes, err := unix.IoctlGetTermios(int(x.tty.Fd()), unix.TCGETS)
	if err != nil {
		x.t.Fatal(err)
	}
	return modes
}

// lines returns what the screen shows, without the spaces at the end of lines and empty lines
// at the end.
func (x *onTerminal) lines() (lines []string, changed <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for line := range strings.Lines(x.screen.String()) {
		lines = append(lines, strings.TrimRight(line, " \n\x00"))
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines, x.written
}

func (x *onTerminal) title() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.screen.Title()
}

// sees waits until a line of the screen matches pattern.
func (x *onTerminal) sees(pattern string) {
	x.t.Helper()
	re := regexp.MustCompile(pattern)
	x.await("it does not show "+pattern, func(lines []string) bool {
		for _, line := range lines {
			if re.MatchString(line) {
				return true
			}
		}
		return false
	})
}

func (x *onTerminal) await(failed string, ok func(lines []string) bool) {
	x.t.Helper()
	over := time.After(ptyTimeout)
	for {
		lines, changed := x.lines()
		if ok(lines) {
			return
		}
		select {
		case <-changed:
		case <-x.drained:
			if lines, _ := x.lines(); !ok(lines) {
				x.t.Fatalf("%s:\n%s", failed, strings.Join(lines, "\n"))
			}
			return
		case <-over:
			x.t.Fatalf("%s:\n%s", failed, strings.Join(lines, "\n"))
		}
	}
}

// types has keys typed.
func (x *onTerminal) types(keys string) {
	x.t.Helper()
	if _, err := x.tty.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// bytes returns all that was written to the terminal.
func (x *onTerminal) bytes() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.raw.String()
}

// resize gives the terminal another size.
func (x *onTerminal) resize(cols, rows uint16) {
	x.t.Helper()
	x.mu.Lock()
	x.screen.Resize(int(cols), int(rows))
	x.mu.Unlock()
	if err := pty.Setsize(x.tty, &pty.Winsize{Cols: cols, Rows: rows}); err != nil {
		x.t.Fatal(err)
	}
}

// ends waits until the command has ended, checks its exit code and that the terminal is as it
// was, and returns the last screen.
func (x *onTerminal) ends(code int) []string {
	x.t.Helper()
	var got int
	x.await("it does not end", func([]string) bool {
		_, err := fmt.Sscanf(x.title(), "ended %d", &got)
		return err == nil
	})
	lines, _ := x.lines()
	if got != code {
		x.t.Errorf("exit code %d, want %d:\n%s", got, code, strings.Join(lines, "\n"))
	}
	if after := x.modes(); *after != *x.before {
		x.t.Errorf("the terminal's modes are %+v, and were %+v", *after, *x.before)
	}
	x.release.Close()
	if err := x.cmd.Wait(); err != nil {
		x.t.Error(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.screen.CursorVisible() || x.screen.Mode()&vt10x.ModeAltScreen != 0 {
		x.t.Error("the cursor is hidden, or the other screen is shown")
	}
	return lines
}
