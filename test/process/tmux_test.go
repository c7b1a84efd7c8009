package process

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/client"
	"ramet.dev/ramet/internal/cli"
	"ramet.dev/ramet/internal/image"
	"ramet.dev/ramet/test/harness"
)

// cliMain is the command line for the daemon at a socket: SOCKET ARG…
func cliMain(args []string) int {
	deps := cli.Deps{Connect: func(ctx context.Context, _ bool) (*client.Client, api.Health, error) {
		c, err := client.New("unix:" + args[0])
		if err != nil {
			return nil, api.Health{}, err
		}
		h, err := c.Health(ctx)
		return c, h, err
	}, Version: cli.Version{Version: "test"}}
	return cli.Run(harness.AsOwner, deps, args[1:], cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
}

// screenTools are programs of this host that people use in terminals.
var screenTools = []string{"bash", "dash", "stty", "sleep", "cat", "seq", "clear", "vim", "less", "top"}

// importTools makes the image "tools" of programs of this host, with what they are
// linked with.
func importTools(n *harness.Node) {
	n.T.Helper()
	files := map[string]string{} // host's path of each path in the image
	for _, name := range screenTools {
		path, err := exec.LookPath(name)
		if err != nil {
			n.T.Skipf("this host has no %s", name)
		}
		files["bin/"+name] = path
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			n.T.Skipf("ldd %s: %v", path, err)
		}
		for _, m := range regexp.MustCompile(`(?m)(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
			files[strings.TrimPrefix(m[1], "/")] = m[1]
		}
	}
	for _, dir := range []string{"/lib/terminfo", "/usr/share/terminfo"} {
		path := filepath.Join(dir, "x/xterm-256color")
		if _, err := os.Stat(path); err == nil {
			files["lib/terminfo/x/xterm-256color"] = path
		}
	}
	store, err := image.Open(n.Paths.Images())
	if err != nil {
		n.T.Fatal(err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(writeToolsTar(w, files)) }()
	if _, err := store.ImportTar(harness.AsOwner, r, image.Options{Name: "tools"}); err != nil {
		n.T.Fatal(err)
	}
}

func writeToolsTar(to io.Writer, files map[string]string) error {
	w := tar.NewWriter(to)
	for _, dir := range []string{"root", "run", "var", "dev", "proc", "sys", "tmp", "etc"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
			return err
		}
	}
	for name, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return w.Close()
}

// tmux is a terminal with a person at it.
type tmux struct {
	t    testing.TB
	name string
}

// newTmux runs a command of ours in a terminal of 90 columns and 25 rows, and a
// shell after it.
func newTmux(n *harness.Node, socket string, args ...string) *tmux {
	n.T.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		n.T.Skip("this host has no tmux")
	}
	x := &tmux{n.T, n.Build}
	self, err := os.Executable()
	if err != nil {
		n.T.Fatal(err)
	}
	command := fmt.Sprintf("%s cli %s %s; code=$?; echo; echo code $code; exec cat", self, socket, strings.Join(args, " "))
	n.T.Cleanup(func() { _ = x.command("kill-server").Run() }) // it may have ended
	if out, err := x.command("-f", "/dev/null", "new-session", "-d", "-x", "90", "-y", "25", command).CombinedOutput(); err != nil {
		n.T.Fatalf("start tmux: %v: %s", err, out)
	}
	return x
}

func (x *tmux) command(args ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-L", x.name}, args...)...)
}

// keys types, as tmux's send-keys does: "Enter" and "C-c" are keys.
func (x *tmux) keys(keys ...string) {
	x.t.Helper()
	if out, err := x.command(append([]string{"send-keys"}, keys...)...).CombinedOutput(); err != nil {
		x.t.Fatalf("type %q: %v: %s", keys, err, out)
	}
}

// sees waits until a line of the screen matches pattern.
func (x *tmux) sees(pattern string) {
	x.t.Helper()
	x.screen(pattern, true)
}

// seesNo waits until no line of the screen matches pattern.
func (x *tmux) seesNo(pattern string) {
	x.t.Helper()
	x.screen(pattern, false)
}

func (x *tmux) screen(pattern string, want bool) {
	x.t.Helper()
	line := regexp.MustCompile("(?m)" + pattern)
	harness.Eventually(x.t, "screen", func() error {
		out, err := x.command("capture-pane", "-p").Output()
		if err != nil {
			return err
		}
		if line.Match(out) != want {
			return errors.New("it does not show " + pattern + " as it should:\n" + string(bytes.TrimSpace(out)))
		}
		return nil
	})
	if x.t.Failed() {
		x.t.FailNow()
	}
}

// TestPersonAtATerminal uses a sandbox's shell as one would over ssh, with a real
// terminal between.
func TestPersonAtATerminal(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	importTools(n)
	if _, err := n.Machine.Create(ctx, api.CreateRequest{Image: "tools", Name: "box"}); err != nil {
		t.Fatal(err)
	}
	socket := n.Serve()
	x := newTmux(n, socket, "exec", "-it", "box", "--", "bash", "--norc")
	x.sees(`^bash-.*[#$] *$`)

	x.keys("stty size; echo $TERM", "Enter")
	x.sees(`^25 90$`)
	x.sees(`^xterm-256color$`)
	if out, err := x.command("resize-window", "-x", "100", "-y", "30").CombinedOutput(); err != nil {
		t.Fatalf("resize: %v: %s", err, out)
	}
	harness.Eventually(t, "size", func() error {
		x.keys("stty size", "Enter")
		out, err := x.command("capture-pane", "-p").Output()
		if err == nil && !bytes.Contains(out, []byte("\n30 100\n")) {
			err = fmt.Errorf("the screen shows\n%s", out)
		}
		return err
	})

	x.keys("clear; sleep 1000", "Enter")
	x.seesNo(`^30 100$`)
	awaitCommand(n, "box", "sleep 1000")
	x.keys("C-z")
	x.sees(`Stopped +sleep 1000`)
	x.keys("jobs; fg", "Enter")
	x.sees(`^sleep 1000$`)
	x.keys("C-c")
	x.keys("echo status $?", "Enter")
	x.sees(`^status 130$`)

	x.keys("clear; vim -u NONE /tmp/text", "Enter")
	x.sees(`^~ *$`)
	x.keys("iwritten in vim", "Escape", ":wq", "Enter")
	x.seesNo(`^~ *$`)
	x.keys("clear; cat /tmp/text", "Enter")
	x.sees(`^written in vim$`)

	x.keys("clear; seq 1000 > /tmp/numbers; less /tmp/numbers", "Enter")
	x.sees(`^17$`)
	x.keys("G")
	x.sees(`^1000$`)
	x.keys("q")
	x.seesNo(`^999$`)

	x.keys("clear; top", "Enter")
	x.sees(`PID USER|PID +USER|Tasks:`)
	x.keys("q")
	x.sees(`^bash-.*[#$] *$`) // what is typed before is for top
	x.keys("clear; x=kept", "Enter")
	x.seesNo(`Tasks:`)

	x.keys("C-p", "C-q")
	x.sees(`the process runs on; 'ramet attach box [0-9]+' connects again`)
	x.sees(`^code 0$`)
	reattach(n, socket, shell(n, "box"))
}

// TestTerminalIsClosed closes the window that a shell is in, as one over ssh would be: what
// runs there ends, unless it ignores that. dash, other than bash, tells its jobs nothing.
func TestTerminalIsClosed(t *testing.T) {
	n := harness.NewNode(t)
	importTools(n)
	if _, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "tools", Name: "box"}); err != nil {
		t.Fatal(err)
	}
	socket := n.Serve()
	bash := []string{"bash", "--norc"}
	for _, c := range []struct {
		shell []string
		job   string
		stay  []string
	}{
		{bash, "sleep 1000", nil},
		{bash, "sleep 1001 & cat", nil},
		{[]string{"dash"}, "sleep 1002", nil},
		{bash, "dash", nil},
		{[]string{"dash"}, "dash -c 'sleep 1003; exit'", nil},
		{bash, "(trap '' HUP; exec sleep 1004) & vim -u NONE /tmp/text", []string{"sleep 1004"}},
	} {
		n.Build += "x" // for another terminal
		x := newTmux(n, socket, append([]string{"exec", "-it", "box", "--"}, c.shell...)...)
		x.sees(`[#$] *$`)
		x.keys(c.job, "Enter")
		for _, command := range regexp.MustCompile(`^dash$|sleep \d+|cat|vim .*`).FindAllString(c.job, -1) {
			awaitCommand(n, "box", command)
		}
		if out, err := x.command("kill-server").CombinedOutput(); err != nil {
			t.Fatalf("close the window: %v: %s", err, out)
		}
		harness.Eventually(t, c.job, func() error {
			list, err := n.Machine.Processes(harness.AsOwner, "box", true)
			var left []string
			for _, p := range list {
				left = append(left, p.Command)
			}
			if err != nil || !slices.Equal(left, c.stay) {
				return fmt.Errorf("there are %q, %v", left, err)
			}
			return nil
		})
		if t.Failed() {
			return
		}
	}
}

// awaitCommand waits until a command runs in ref.
func awaitCommand(n *harness.Node, ref, command string) {
	n.T.Helper()
	harness.Eventually(n.T, command, func() error {
		list, err := n.Machine.Processes(harness.AsOwner, ref, false)
		for _, p := range list {
			if p.Command == command {
				return nil
			}
		}
		return fmt.Errorf("it is not among %+v, %v", list, err)
	})
}

// shell returns the process id of the one terminal in ref.
func shell(n *harness.Node, ref string) int {
	n.T.Helper()
	list, err := n.Machine.Processes(harness.AsOwner, ref, false)
	if err != nil {
		n.T.Fatal(err)
	}
	for _, p := range list {
		if p.Kept != nil && p.Kept.Terminal {
			return p.PID
		}
	}
	n.T.Fatalf("there is no terminal: %+v", list)
	return 0
}

// reattach connects again with the terminal in a child of box.
func reattach(n *harness.Node, socket string, pid int) {
	n.T.Helper()
	child := n.Fork("box", 1)[0].ID
	n.Build += "x" // for another terminal
	defer func() { n.Build = strings.TrimSuffix(n.Build, "x") }()
	y := newTmux(n, socket, "attach", child, fmt.Sprint(pid))
	y.sees(`^bash-.*[#$]`) // drawn again
	y.keys("echo x is $x", "Enter")
	y.sees(`^x is kept$`)
	y.keys("exit 7", "Enter")
	y.sees(`^code 7$`)
	if err := n.NoProcesses(child); err != nil {
		n.T.Error(err)
	}
	if shell(n, "box") != pid {
		n.T.Error("the parent's shell is another one")
	}
}
