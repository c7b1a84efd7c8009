package process

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestProcessOutlivesItsClients starts a process and talks to it by several
// connections, one after the other and at once.
func TestProcessOutlivesItsClients(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	pid := n.Start("box", api.StartRequest{Stdin: true}, "count")
	a := n.Follow("box", pid, 0)
	a.Say("one\n")
	a.Await("1 one\n")
	b := n.Follow("box", pid, 2)
	b.Await("one\n")
	a.Detach()
	if err := n.Machine.WriteProcess(ctx, "box", pid, strings.NewReader("two\n"), false); err != nil {
		t.Fatal(err)
	}
	b.Await("one\n2 two\n")
	b.Detach()
	n.Reopen()
	c := n.Follow("box", pid, b.Next)
	late := n.Attach("box", pid, -1)
	c.Say("three\n")
	c.Await("3 three\n")
	late.In.Close()
	harness.Eventually(t, "end", func() error {
		p, err := n.Machine.Process(ctx, "box", pid)
		if err != nil || p.Kept.Exit == nil {
			return fmt.Errorf("%+v, %v", p, err)
		}
		return nil
	})
	for _, f := range []*harness.Follower{c, late} {
		if x := f.Exit(); x.ExitCode != 0 || !x.OK {
			t.Errorf("it ended with %+v", *x)
		}
	}
	again := n.Follow("box", pid, 0)
	again.Exit()
	again.Await("1 one\n2 two\n3 three\n")
	if x, err := n.Machine.WaitProcess(ctx, "box", pid); err != nil || !x.OK {
		t.Errorf("wait: %+v, %v", x, err)
	}
	harness.WantCode(t, n.Machine.WriteProcess(ctx, "box", pid, strings.NewReader("x"), false), api.CodeWrongState)
	if err := n.Machine.RemoveProcess(ctx, "box", pid); err != nil {
		t.Error(err)
	}
	_, err := n.Machine.Process(ctx, "box", pid)
	if harness.WantCode(t, err, api.CodeNotFound); !strings.HasPrefix(err.Error(), "no process ") {
		t.Errorf("it says: %v", err)
	}
}

// TestProcessesInChildren forks while processes run. Both sides must have what
// was written before, and go on apart.
func TestProcessesInChildren(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	began := time.Now()
	pid := n.Start("box", api.StartRequest{Stdin: true}, "count")
	mine := n.Follow("box", pid, 0)
	mine.Say("before\n")
	mine.Await("1 before\n")
	exec := n.Converse("box")
	exec.Next()
	over := n.Start("box", api.StartRequest{}, "say", "over")
	if _, err := n.Machine.WaitProcess(ctx, "box", over); err != nil {
		t.Fatal(err)
	}

	child := n.Fork("box", 1)[0].ID
	theirs := n.Follow(child, pid, 0)
	theirs.Await("1 before\n")
	// What was written before the fork was written when it was.
	if a, b := mine.First(), theirs.First(); !a.Equal(b) || a.Before(began) || a.After(time.Now()) {
		t.Errorf("the first output is of %v in the parent and of %v in the child, and the test began at %v", a, b, began)
	}
	theirs.Say("child\n")
	mine.Say("parent\n")
	theirs.Await("1 before\n2 child\n")
	mine.Await("1 before\n2 parent\n")
	exec.Next()

	list, err := n.Machine.Processes(ctx, child, true)
	if err != nil {
		t.Fatal(err)
	}
	inherited := 0
	for _, p := range list {
		if p.Kept != nil && p.Kept.Inherited {
			inherited++
		}
	}
	if inherited != 3 {
		t.Errorf("the child inherited %d processes: %+v", inherited, list)
	}
	old := n.Follow(child, over, 0)
	if x := old.Exit(); !x.OK {
		t.Errorf("what had ended before the fork ended with %+v", *x)
	}
	old.Await("over\n")

	grandchild := n.Fork(child, 1)[0].ID
	last := n.Follow(grandchild, pid, 0)
	last.Say("grandchild\n")
	last.Await("1 before\n2 child\n3 grandchild\n")
	last.In.Close()
	if x := last.Exit(); !x.OK {
		t.Errorf("it ended with %+v", *x)
	}
	theirs.Say("child again\n")
	theirs.Await("1 before\n2 child\n3 child again\n")
	exec.End()
}

// TestProcessesInSnapshots takes a snapshot on disk, ends the daemon and restores.
func TestProcessesInSnapshots(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	pid := n.Start("box", api.StartRequest{Stdin: true}, "count")
	f := n.Follow("box", pid, 0)
	f.Say("before\n")
	f.Await("1 before\n")
	if _, err := n.Machine.Snapshot(ctx, "box", api.SnapshotRequest{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	f.Detach()
	n.Destroy("box")
	n.Reopen()
	r, err := n.Machine.Restore(ctx, "s", api.RestoreRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	back := n.Follow(n.Children(r)[0].ID, pid, 0)
	back.Say("after\n")
	back.Await("1 before\n2 after\n")
}

// TestProcessKeepsTheEnd lets a process write more than is kept.
func TestProcessKeepsTheEnd(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	const size = 3 << 20
	for _, keep := range []int64{64, 0, 16384} {
		pid := n.Start("box", api.StartRequest{KeepKiB: keep}, "spew", fmt.Sprint(size))
		if x, err := n.Machine.WaitProcess(ctx, "box", pid); err != nil || !x.OK {
			t.Fatalf("%+v, %v", x, err)
		}
		f := n.Follow("box", pid, 0)
		f.Exit()
		out, lost := f.Text()
		want := int64(1 << 20)
		if keep > 0 {
			want = keep << 10
		}
		if want = min(want, size); lost+int64(len(out)) != size || int64(len(out)) < want || int64(len(out)) > want+128<<10 {
			t.Errorf("of %d bytes %d arrived and %d were lost; %d KiB were to be kept", size, len(out), lost, keep)
		}
		for _, from := range []int64{size, size - 1, size - want} {
			f := n.Follow("box", pid, from)
			f.Exit()
			if out, lost := f.Text(); lost != 0 || int64(len(out)) != size-from {
				t.Errorf("from %d: %d bytes, %d lost", from, len(out), lost)
			}
		}
	}
	child := n.Fork("box", 1)[0].ID
	list, err := n.Machine.Processes(ctx, child, true)
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	f := n.Follow(child, list[2].PID, 0)
	f.Exit()
	if out, lost := f.Text(); lost != 0 || len(out) != size {
		t.Errorf("in the child: %d bytes, %d lost", len(out), lost)
	}
}

// TestProcessSlowClient attaches a client that reads nothing. The process must not
// wait for it.
func TestProcessSlowClient(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	const size = 32 << 20
	pid := n.Start("box", api.StartRequest{}, "spew", fmt.Sprint(size))
	waiting, open := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f := &harness.Follower{T: t}
	done := make(chan error, 1)
	go func() {
		_, err := n.Machine.Attach(ctx, "box", pid, api.AttachRequest{Follow: true}, api.AttachIO{Output: func(c api.Chunk) error {
			once.Do(func() { close(waiting) })
			<-open
			return f.Take(c)
		}})
		done <- err
	}()
	<-waiting
	if x, err := n.Machine.WaitProcess(ctx, "box", pid); err != nil || !x.OK {
		t.Fatalf("%+v, %v", x, err)
	}
	close(open)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if out, lost := f.Text(); lost == 0 || lost+int64(len(out)) != size {
		t.Errorf("%d bytes arrived, %d were lost", len(out), lost)
	}
}

// TestProcessEnds ends processes in the ways there are.
func TestProcessEnds(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	for name, c := range map[string]struct {
		req    api.StartRequest
		args   []string
		do     func(pid int) error
		signal string
		idle   bool
		timed  bool
	}{
		"signal": {args: []string{"brood", "2"}, signal: "SIGTERM",
			do: func(pid int) error {
				f := n.Follow("box", pid, 0)
				harness.Eventually(t, "its children", func() error {
					if out, _ := f.Text(); strings.Count(out, "\n") < 2 {
						return fmt.Errorf("only %q", out)
					}
					return nil
				})
				return n.Machine.SignalProcess(ctx, "box", pid, api.SignalRequest{Signal: "term", Group: true})
			}},
		"number": {args: []string{"sleep", "1h"}, signal: "SIGKILL",
			do: func(pid int) error {
				return n.Machine.SignalProcess(ctx, "box", pid, api.SignalRequest{Signal: "9"})
			}},
		"timeout": {req: api.StartRequest{TimeoutMS: 300}, args: []string{"sleep", "1h"}, signal: "SIGKILL", timed: true},
		"idle":    {req: api.StartRequest{IdleTimeoutMS: 300}, args: []string{"say", "x", "sleep:1h"}, signal: "SIGKILL", timed: true, idle: true},
	} {
		t.Run(name, func(t *testing.T) {
			pid := n.Start("box", c.req, c.args...)
			if c.do != nil {
				if err := c.do(pid); err != nil {
					t.Fatal(err)
				}
			}
			x, err := n.Machine.WaitProcess(ctx, "box", pid)
			if err != nil {
				t.Fatal(err)
			}
			if x.Signal != c.signal || x.TimedOut != c.timed || x.Idle != c.idle || x.OK {
				t.Errorf("it ended with %+v", *x)
			}
			harness.Eventually(t, "processes", func() error { return n.NoProcesses("box") })
		})
	}
	busy := n.Start("box", api.StartRequest{IdleTimeoutMS: 4000}, "say", "sleep:1500ms", "a", "sleep:1500ms", "b", "sleep:1500ms")
	if x, err := n.Machine.WaitProcess(ctx, "box", busy); err != nil || !x.OK {
		t.Errorf("one that writes now and then ended with %+v, %v", x, err)
	}
}

// TestProcessTimeoutIsInherited forks a process that has a timeout.
func TestProcessTimeoutIsInherited(t *testing.T) {
	n := harness.NewNode(t)
	n.Create("box")
	pid := n.Start("box", api.StartRequest{TimeoutMS: 3000}, "sleep", "1h")
	child := n.Fork("box", 1)[0].ID
	began := time.Now()
	for _, ref := range []string{"box", child} {
		if x, err := n.Machine.WaitProcess(harness.AsOwner, ref, pid); err != nil || !x.TimedOut {
			t.Errorf("%s: %+v, %v", ref, x, err)
		}
	}
	if d := time.Since(began); d > harness.Timeout/2 {
		t.Errorf("it took %v", d)
	}
}

// TestProcessRefuses asks for what cannot be.
func TestProcessRefuses(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	pid := n.Start("box", api.StartRequest{}, "sleep", "1h")
	attach := func(pid int, from int64) error {
		_, err := n.Machine.Attach(ctx, "box", pid, api.AttachRequest{From: from}, api.AttachIO{Output: func(api.Chunk) error { return nil }})
		return err
	}
	launch := func(req api.StartRequest) error {
		_, err := n.Machine.StartProcess(ctx, "box", req)
		return err
	}
	sleep := []string{"guest", "sleep", "1h"}
	for name, c := range map[string]struct {
		err  error
		code api.Code
	}{
		"attach to nothing":   {attach(4242, 0), api.CodeNotFound},
		"attach to init":      {attach(1, 0), api.CodeNotFound},
		"from the future":     {attach(pid, 1<<40), api.CodeInvalid},
		"from before":         {attach(pid, -2), api.CodeInvalid},
		"input without stdin": {n.Machine.WriteProcess(ctx, "box", pid, strings.NewReader("x"), false), api.CodeWrongState},
		"resize without tty":  {n.Machine.ResizeProcess(ctx, "box", pid, api.TerminalSize{Cols: 1, Rows: 1}), api.CodeWrongState},
		"no such signal":      {n.Machine.SignalProcess(ctx, "box", pid, api.SignalRequest{Signal: "NO"}), api.CodeInvalid},
		"signal 65":           {n.Machine.SignalProcess(ctx, "box", pid, api.SignalRequest{Signal: "65"}), api.CodeInvalid},
		"signal 0":            {n.Machine.SignalProcess(ctx, "box", pid, api.SignalRequest{Signal: "0"}), api.CodeInvalid},
		"signal to init":      {n.Machine.SignalProcess(ctx, "box", 1, api.SignalRequest{Signal: "9"}), api.CodeNotFound},
		"signal to nothing":   {n.Machine.SignalProcess(ctx, "box", 4242, api.SignalRequest{Signal: "9"}), api.CodeNotFound},
		"no command":          {launch(api.StartRequest{}), api.CodeInvalid},
		"unknown command":     {launch(api.StartRequest{Argv: []string{"nosuch"}}), api.CodeNoCommand},
		"a directory":         {launch(api.StartRequest{Argv: []string{"/tmp"}}), api.CodeNotExecutable},
		"too much output":     {launch(api.StartRequest{Argv: sleep, KeepKiB: 1 << 20}), api.CodeInvalid},
		"endless timeout":     {launch(api.StartRequest{Argv: sleep, TimeoutMS: 1 << 62}), api.CodeInvalid},
		"negative idle":       {launch(api.StartRequest{Argv: sleep, IdleTimeoutMS: -1}), api.CodeInvalid},
		"terminal and stdin":  {launch(api.StartRequest{Argv: sleep, Stdin: true, Terminal: &api.TerminalSize{Cols: 1, Rows: 1}}), api.CodeInvalid},
		"no such sandbox":     {n.Machine.RemoveProcess(ctx, "nosuch", pid), api.CodeNotFound},
		"remove what was not": {n.Machine.RemoveProcess(ctx, "box", 4242), api.CodeNotFound},
		"remove what runs":    {n.Machine.RemoveProcess(ctx, "box", pid), ""},
		"remove what is gone": {n.Machine.RemoveProcess(ctx, "box", pid), api.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if c.code == "" && c.err != nil || c.code != "" && api.CodeOf(c.err) != c.code {
				t.Errorf("error is %v, not of code %q", c.err, c.code)
			}
		})
	}
	harness.Eventually(t, "processes", func() error { return n.NoProcesses("box") })
}

// TestForkWhileOutputFlows forks while a process writes as fast as it can. Neither
// side may lose a byte.
func TestForkWhileOutputFlows(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	const size = 12 << 20
	pid := n.Start("box", api.StartRequest{KeepKiB: 16384}, "spew", fmt.Sprint(size))
	refs := []string{"box"}
	for range 3 {
		refs = append(refs, n.Fork("box", 1)[0].ID)
	}
	for _, ref := range refs {
		if x, err := n.Machine.WaitProcess(ctx, ref, pid); err != nil || !x.OK {
			t.Fatalf("%s: %+v, %v", ref, x, err)
		}
		f := n.Follow(ref, pid, 0)
		f.Exit()
		out, lost := f.Text()
		if lost != 0 || out != strings.Repeat("0123456789abcde\n", size/16) {
			t.Errorf("%s: %d bytes, %d lost, or some are wrong", ref, len(out), lost)
		}
	}
}

// TestManyShortCommands runs commands in a row. Nothing of them may stay.
func TestManyShortCommands(t *testing.T) {
	ctx := harness.AsOwner
	n := harness.NewNode(t)
	n.Create("box")
	// Those of the pool come and go, so it is the sentry with the most that counts.
	descriptors := func() int {
		most := 0
		for _, pid := range n.Processes() {
			entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			if err == nil { // else it has ended
				most = max(most, len(entries))
			}
		}
		return most
	}
	run := func(count int) {
		t.Helper()
		for range count {
			if _, err := n.Run("box", api.ExecRequest{Argv: []string{"guest", "true"}}, "input that nobody reads"); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(20)
	before := descriptors()
	run(500)
	harness.Eventually(t, "descriptors", func() error {
		if now := descriptors(); now > before+5 {
			return fmt.Errorf("there are %d, and were %d", now, before)
		}
		return nil
	})
	if list, err := n.Machine.Processes(ctx, "box", true); err != nil || len(list) > 0 {
		t.Errorf("still listed: %+v, %v", list, err)
	}
	for range 150 { // more than fit one answer
		n.Start("box", api.StartRequest{}, "true")
	}
	harness.Eventually(t, "processes", func() error { return n.NoProcesses("box") })
	if list, err := n.Machine.Processes(ctx, "box", true); err != nil || len(list) != 150 {
		t.Errorf("%d are listed, %v", len(list), err)
	}
}
