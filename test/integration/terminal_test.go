package integration

import (
	"fmt"
	"strings"
	"testing"

	"ramet.dev/ramet/api"
)

var terminal = api.StartRequest{Terminal: &api.TerminalSize{Cols: 100, Rows: 30}}

// shows waits until the follower's output ends with lines, as a terminal ends
// them.
func (f *follower) shows(lines ...string) {
	f.t.Helper()
	want := strings.Join(lines, "\r\n") + "\r\n"
	eventually(f.t, "screen", func() error {
		if got, _ := f.text(); !strings.HasSuffix(got, want) {
			return fmt.Errorf("it shows %q, not %q", got, want)
		}
		return nil
	})
}

// TestTerminal uses a terminal as a person does.
func TestTerminal(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	pid := n.start("box", terminal, "screen")
	f := n.follow("box", pid, 0)
	f.shows("100 x 30")
	resize := func(ref string, cols, rows uint16) {
		t.Helper()
		if err := n.m.ResizeProcess(ctx, ref, pid, api.TerminalSize{Cols: cols, Rows: rows}); err != nil {
			t.Error(err)
		}
	}
	resize("box", 120, 40)
	f.shows("120 x 40")
	f.say("hello\r") // what the key for a new line sends
	f.shows("hello", `read "hello"`)
	f.say("\x03")
	f.shows("interrupted")
	f.detach()
	again := n.follow("box", pid, -1)
	again.say("it waited\r")
	again.shows(`read "it waited"`)

	child := n.fork("box", 1)[0].ID
	theirs := n.follow(child, pid, -1)
	resize(child, 90, 20)
	theirs.shows("90 x 20")
	theirs.say("in the child\r")
	theirs.shows(`read "in the child"`)
	resize("box", 130, 50)
	again.shows("130 x 50")
	theirs.say("\x03")
	theirs.shows("interrupted")
	theirs.say("\x04") // end of input
	if x := theirs.exit(); !x.OK {
		t.Errorf("in the child it ended with %+v", *x)
	}
	if out, _ := again.text(); strings.Contains(out, "child") || strings.Contains(out, "interrupted") {
		t.Errorf("the parent noticed the child: %q", out)
	}
	again.say("\x04")
	if x := again.exit(); !x.OK {
		t.Errorf("it ended with %+v", *x)
	}
	wantCode(t, n.m.ResizeProcess(ctx, child, pid, *terminal.Terminal), api.CodeWrongState)
}

// TestTerminalIsTheUsers lets an ordinary user have a terminal, and removes it
// under him.
func TestTerminalIsTheUsers(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	req := terminal
	req.User = "worker"
	pid := n.start("box", req, "screen")
	n.follow("box", pid, 0).shows("100 x 30")
	child := n.fork("box", 1)[0].ID
	for _, ref := range []string{child, "box"} {
		if err := n.m.RemoveProcess(ctx, ref, pid); err != nil {
			t.Error(err)
		}
		eventually(t, "processes", func() error { return n.noProcesses(ref) })
	}
}

// TestTerminalManyAtOnce has many terminals, one after the other used up.
func TestTerminalManyAtOnce(t *testing.T) {
	n := newNode(t)
	n.create("box")
	for range 5 {
		var all []*follower
		for range 10 {
			all = append(all, n.follow("box", n.start("box", terminal, "screen"), 0))
		}
		for i, f := range all {
			f.shows("100 x 30")
			f.say(fmt.Sprint(i, "\r\x04"))
		}
		for i, f := range all {
			f.exit()
			f.shows(fmt.Sprintf("read %q", fmt.Sprint(i)))
		}
	}
	eventually(t, "processes", func() error { return n.noProcesses("box") })
}
