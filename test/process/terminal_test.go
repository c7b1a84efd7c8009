package process

import (
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

var terminal = api.StartRequest{Terminal: &api.TerminalSize{Cols: 100, Rows: 30}}

// shows waits until the follower's output ends with lines, as a terminal ends
// them.
func shows(f *harness.Follower, lines ...string) {
	f.T.Helper()
	want := strings.Join(lines, "\r\n") + "\r\n"
	harness.Eventually(f.T, "screen", func() error {
		if got, _ := f.Text(); !strings.HasSuffix(got, want) {
			return fmt.Errorf("it shows %q, not %q", got, want)
		}
		return nil
	})
}

// TestTerminal uses a terminal as a person does.
func TestTerminal(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	pid := n.Start("box", terminal, "screen")
	f := n.Follow("box", pid, 0)
	shows(f, "100 x 30")
	resize := func(ref string, cols, rows uint16) {
		t.Helper()
		if err := n.Machine.ResizeProcess(ctx, ref, pid, api.TerminalSize{Cols: cols, Rows: rows}); err != nil {
			t.Error(err)
		}
	}
	resize("box", 120, 40)
	shows(f, "120 x 40")
	f.Say("hello\r") // what the key for a new line sends
	shows(f, "hello", `read "hello"`)
	f.Say("\x03")
	shows(f, "interrupted")
	f.Detach()
	again := n.Follow("box", pid, -1)
	again.Say("it waited\r")
	shows(again, `read "it waited"`)

	child := n.Fork("box", 1)[0].ID
	theirs := n.Follow(child, pid, -1)
	resize(child, 90, 20)
	shows(theirs, "90 x 20")
	theirs.Say("in the child\r")
	shows(theirs, `read "in the child"`)
	resize("box", 130, 50)
	shows(again, "130 x 50")
	theirs.Say("\x03")
	shows(theirs, "interrupted")
	theirs.Say("\x04") // end of input
	if x := theirs.Exit(); !x.OK {
		t.Errorf("in the child it ended with %+v", *x)
	}
	if out, _ := again.Text(); strings.Contains(out, "child") || strings.Contains(out, "interrupted") {
		t.Errorf("the parent noticed the child: %q", out)
	}
	again.Say("\x04")
	if x := again.Exit(); !x.OK {
		t.Errorf("it ended with %+v", *x)
	}
	harness.WantCode(t, n.Machine.ResizeProcess(ctx, child, pid, *terminal.Terminal), api.CodeWrongState)
}

// TestTerminalIsTheUsers lets an ordinary user have a terminal, and removes it
// under him.
func TestTerminalIsTheUsers(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	req := terminal
	req.User = "worker"
	pid := n.Start("box", req, "screen")
	shows(n.Follow("box", pid, 0), "100 x 30")
	child := n.Fork("box", 1)[0].ID
	for _, ref := range []string{child, "box"} {
		if err := n.Machine.RemoveProcess(ctx, ref, pid); err != nil {
			t.Error(err)
		}
		harness.Eventually(t, "processes", func() error { return n.NoProcesses(ref) })
	}
}

// TestTerminalManyAtOnce has many terminals, one after the other used up.
func TestTerminalManyAtOnce(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	for range 5 {
		var all []*harness.Follower
		for range 10 {
			all = append(all, n.Follow("box", n.Start("box", terminal, "screen"), 0))
		}
		for i, f := range all {
			shows(f, "100 x 30")
			f.Say(fmt.Sprint(i, "\r\x04"))
		}
		for i, f := range all {
			f.Exit()
			shows(f, fmt.Sprintf("read %q", fmt.Sprint(i)))
		}
	}
	harness.Eventually(t, "processes", func() error { return n.NoProcesses("box") })
}
