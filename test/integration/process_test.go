package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
)

// start starts a command of the guest program in the background.
func (n *testNode) start(ref string, req api.StartRequest, args ...string) int {
	n.t.Helper()
	req.Argv = append([]string{"guest"}, args...)
	p, err := n.m.StartProcess(asOwner, ref, req)
	if err != nil {
		n.t.Fatalf("start %v: %v", args, err)
	}
	if p.Kept == nil || p.Command != strings.Join(req.Argv, " ") && p.Kept.Exit == nil {
		n.t.Fatalf("started %+v", *p)
	}
	return p.PID
}

// follower is a client that is attached to a process.
type follower struct {
	t      testing.TB
	cancel context.CancelFunc
	in     *io.PipeWriter
	mu     sync.Mutex
	chunks []api.Chunk
	next   int64
	ended  chan struct{}
	pos    *api.Position
	err    error
}

// follow attaches to the output from a sequence number on; -1 is the output that is
// written after follow has returned.
func (n *testNode) follow(ref string, pid int, from int64) *follower {
	n.t.Helper()
	if from < 0 {
		p, err := n.m.Process(asOwner, ref, pid)
		if err != nil {
			n.t.Fatal(err)
		}
		from = p.Kept.NextSeq
	}
	return n.attach(ref, pid, from)
}

// attach attaches in the background. With -1 the sandbox says where the output begins, at
// some moment after attach has been called.
func (n *testNode) attach(ref string, pid int, from int64) *follower {
	ctx, cancel := context.WithTimeout(asOwner, 2*patience)
	r, w := io.Pipe()
	f := &follower{t: n.t, cancel: cancel, in: w, next: from, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		f.pos, f.err = n.m.Attach(ctx, ref, pid, api.AttachRequest{From: from, Follow: true}, api.AttachIO{Stdin: r, Output: f.take})
		r.CloseWithError(errors.New("detached"))
	}()
	n.t.Cleanup(f.detach)
	return f
}

func (f *follower) take(c api.Chunk) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Seq != f.next && f.next >= 0 {
		f.t.Errorf("a chunk at %d, not at %d", c.Seq, f.next)
	}
	c.Data = bytes.Clone(c.Data)
	f.chunks = append(f.chunks, c)
	f.next = c.Seq + c.Lost + int64(len(c.Data))
	return nil
}

// text returns what arrived, and how many bytes were lost.
func (f *follower) text() (out string, lost int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, c := range f.chunks {
		b.Write(c.Data)
		lost += c.Lost
	}
	return b.String(), lost
}

// first returns when the first output was written.
func (f *follower) first() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.chunks[0].Time
}

// await waits until what arrived is want.
func (f *follower) await(want string) {
	f.t.Helper()
	eventually(f.t, "output", func() error {
		if got, _ := f.text(); got != want {
			return fmt.Errorf("it is %q, not %q", got, want)
		}
		return nil
	})
}

func (f *follower) say(text string) {
	f.t.Helper()
	if _, err := io.WriteString(f.in, text); err != nil {
		f.t.Fatal(err)
	}
}

// detach ends the connection and waits for that.
func (f *follower) detach() {
	f.cancel()
	<-f.ended
	f.in.Close()
}

// exit waits for the process to end by itself.
func (f *follower) exit() *api.ExecResult {
	f.t.Helper()
	<-f.ended
	if f.err != nil || f.pos == nil || f.pos.Exit == nil {
		f.t.Fatalf("the process did not end: %+v, %v", f.pos, f.err)
	}
	if f.pos.NextSeq != f.next && f.next >= 0 {
		f.t.Errorf("output ends at %d, and %d arrived", f.pos.NextSeq, f.next)
	}
	return f.pos.Exit
}

// TestProcessOutlivesItsClients starts a process and talks to it by several
// connections, one after the other and at once.
func TestProcessOutlivesItsClients(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	pid := n.start("box", api.StartRequest{Stdin: true}, "count")
	a := n.follow("box", pid, 0)
	a.say("one\n")
	a.await("1 one\n")
	b := n.follow("box", pid, 2)
	b.await("one\n")
	a.detach()
	if err := n.m.WriteProcess(ctx, "box", pid, strings.NewReader("two\n"), false); err != nil {
		t.Fatal(err)
	}
	b.await("one\n2 two\n")
	b.detach()
	n.reopen()
	c := n.follow("box", pid, b.next)
	late := n.attach("box", pid, -1)
	c.say("three\n")
	c.await("3 three\n")
	late.in.Close()
	eventually(t, "end", func() error {
		p, err := n.m.Process(ctx, "box", pid)
		if err != nil || p.Kept.Exit == nil {
			return fmt.Errorf("%+v, %v", p, err)
		}
		return nil
	})
	for _, f := range []*follower{c, late} {
		if x := f.exit(); x.ExitCode != 0 || !x.OK {
			t.Errorf("it ended with %+v", *x)
		}
	}
	again := n.follow("box", pid, 0)
	again.exit()
	again.await("1 one\n2 two\n3 three\n")
	if x, err := n.m.WaitProcess(ctx, "box", pid); err != nil || !x.OK {
		t.Errorf("wait: %+v, %v", x, err)
	}
	wantCode(t, n.m.WriteProcess(ctx, "box", pid, strings.NewReader("x"), false), api.CodeWrongState)
	if err := n.m.RemoveProcess(ctx, "box", pid); err != nil {
		t.Error(err)
	}
	_, err := n.m.Process(ctx, "box", pid)
	if wantCode(t, err, api.CodeNotFound); !strings.HasPrefix(err.Error(), "no process ") {
		t.Errorf("it says: %v", err)
	}
}

// TestProcessesInChildren forks while processes run. Both sides must have what
// was written before, and go on apart.
func TestProcessesInChildren(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	began := time.Now()
	pid := n.start("box", api.StartRequest{Stdin: true}, "count")
	mine := n.follow("box", pid, 0)
	mine.say("before\n")
	mine.await("1 before\n")
	exec := n.converse("box")
	exec.next()
	over := n.start("box", api.StartRequest{}, "say", "over")
	if _, err := n.m.WaitProcess(ctx, "box", over); err != nil {
		t.Fatal(err)
	}

	child := n.fork("box", 1)[0].ID
	theirs := n.follow(child, pid, 0)
	theirs.await("1 before\n")
	// What was written before the fork was written when it was.
	if a, b := mine.first(), theirs.first(); !a.Equal(b) || a.Before(began) || a.After(time.Now()) {
		t.Errorf("the first output is of %v in the parent and of %v in the child, and the test began at %v", a, b, began)
	}
	theirs.say("child\n")
	mine.say("parent\n")
	theirs.await("1 before\n2 child\n")
	mine.await("1 before\n2 parent\n")
	exec.next()

	list, err := n.m.Processes(ctx, child, true)
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
	old := n.follow(child, over, 0)
	if x := old.exit(); !x.OK {
		t.Errorf("what had ended before the fork ended with %+v", *x)
	}
	old.await("over\n")

	grandchild := n.fork(child, 1)[0].ID
	last := n.follow(grandchild, pid, 0)
	last.say("grandchild\n")
	last.await("1 before\n2 child\n3 grandchild\n")
	last.in.Close()
	if x := last.exit(); !x.OK {
		t.Errorf("it ended with %+v", *x)
	}
	theirs.say("child again\n")
	theirs.await("1 before\n2 child\n3 child again\n")
	exec.end()
}

// TestProcessesInSnapshots takes a snapshot on disk, ends the daemon and restores.
func TestProcessesInSnapshots(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	pid := n.start("box", api.StartRequest{Stdin: true}, "count")
	f := n.follow("box", pid, 0)
	f.say("before\n")
	f.await("1 before\n")
	if _, err := n.m.Snapshot(ctx, "box", api.SnapshotRequest{Name: "s"}); err != nil {
		t.Fatal(err)
	}
	f.detach()
	n.destroy("box")
	n.reopen()
	r, err := n.m.Restore(ctx, "s", api.RestoreRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	back := n.follow(n.children(r)[0].ID, pid, 0)
	back.say("after\n")
	back.await("1 before\n2 after\n")
}

// TestProcessKeepsTheEnd lets a process write more than is kept.
func TestProcessKeepsTheEnd(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	const size = 3 << 20
	for _, keep := range []int64{64, 0, 16384} {
		pid := n.start("box", api.StartRequest{KeepKiB: keep}, "spew", fmt.Sprint(size))
		if x, err := n.m.WaitProcess(ctx, "box", pid); err != nil || !x.OK {
			t.Fatalf("%+v, %v", x, err)
		}
		f := n.follow("box", pid, 0)
		f.exit()
		out, lost := f.text()
		want := int64(1 << 20)
		if keep > 0 {
			want = keep << 10
		}
		if want = min(want, size); lost+int64(len(out)) != size || int64(len(out)) < want || int64(len(out)) > want+128<<10 {
			t.Errorf("of %d bytes %d arrived and %d were lost; %d KiB were to be kept", size, len(out), lost, keep)
		}
		for _, from := range []int64{size, size - 1, size - want} {
			f := n.follow("box", pid, from)
			f.exit()
			if out, lost := f.text(); lost != 0 || int64(len(out)) != size-from {
				t.Errorf("from %d: %d bytes, %d lost", from, len(out), lost)
			}
		}
	}
	child := n.fork("box", 1)[0].ID
	list, err := n.m.Processes(ctx, child, true)
	if err != nil || len(list) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	f := n.follow(child, list[2].PID, 0)
	f.exit()
	if out, lost := f.text(); lost != 0 || len(out) != size {
		t.Errorf("in the child: %d bytes, %d lost", len(out), lost)
	}
}

// TestProcessSlowClient attaches a client that reads nothing. The process must not
// wait for it.
func TestProcessSlowClient(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	const size = 32 << 20
	pid := n.start("box", api.StartRequest{}, "spew", fmt.Sprint(size))
	waiting, open := make(chan struct{}), make(chan struct{})
	var once sync.Once
	f := &follower{t: t}
	done := make(chan error, 1)
	go func() {
		_, err := n.m.Attach(ctx, "box", pid, api.AttachRequest{Follow: true}, api.AttachIO{Output: func(c api.Chunk) error {
			once.Do(func() { close(waiting) })
			<-open
			return f.take(c)
		}})
		done <- err
	}()
	<-waiting
	if x, err := n.m.WaitProcess(ctx, "box", pid); err != nil || !x.OK {
		t.Fatalf("%+v, %v", x, err)
	}
	close(open)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if out, lost := f.text(); lost == 0 || lost+int64(len(out)) != size {
		t.Errorf("%d bytes arrived, %d were lost", len(out), lost)
	}
}

// TestProcessEnds ends processes in the ways there are.
func TestProcessEnds(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
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
				f := n.follow("box", pid, 0)
				eventually(t, "its children", func() error {
					if out, _ := f.text(); strings.Count(out, "\n") < 2 {
						return fmt.Errorf("only %q", out)
					}
					return nil
				})
				return n.m.SignalProcess(ctx, "box", pid, api.SignalRequest{Signal: "term", Group: true})
			}},
		"number": {args: []string{"sleep", "1h"}, signal: "SIGKILL",
			do: func(pid int) error {
				return n.m.SignalProcess(ctx, "box", pid, api.SignalRequest{Signal: "9"})
			}},
		"timeout": {req: api.StartRequest{TimeoutMS: 300}, args: []string{"sleep", "1h"}, signal: "SIGKILL", timed: true},
		"idle":    {req: api.StartRequest{IdleTimeoutMS: 300}, args: []string{"say", "x", "sleep:1h"}, signal: "SIGKILL", timed: true, idle: true},
	} {
		t.Run(name, func(t *testing.T) {
			pid := n.start("box", c.req, c.args...)
			if c.do != nil {
				if err := c.do(pid); err != nil {
					t.Fatal(err)
				}
			}
			x, err := n.m.WaitProcess(ctx, "box", pid)
			if err != nil {
				t.Fatal(err)
			}
			if x.Signal != c.signal || x.TimedOut != c.timed || x.Idle != c.idle || x.OK {
				t.Errorf("it ended with %+v", *x)
			}
			eventually(t, "processes", func() error { return n.noProcesses("box") })
		})
	}
	busy := n.start("box", api.StartRequest{IdleTimeoutMS: 4000}, "say", "sleep:1500ms", "a", "sleep:1500ms", "b", "sleep:1500ms")
	if x, err := n.m.WaitProcess(ctx, "box", busy); err != nil || !x.OK {
		t.Errorf("one that writes now and then ended with %+v, %v", x, err)
	}
}

// TestProcessTimeoutIsInherited forks a process that has a timeout.
func TestProcessTimeoutIsInherited(t *testing.T) {
	n := newNode(t)
	n.create("box")
	pid := n.start("box", api.StartRequest{TimeoutMS: 3000}, "sleep", "1h")
	child := n.fork("box", 1)[0].ID
	began := time.Now()
	for _, ref := range []string{"box", child} {
		if x, err := n.m.WaitProcess(asOwner, ref, pid); err != nil || !x.TimedOut {
			t.Errorf("%s: %+v, %v", ref, x, err)
		}
	}
	if d := time.Since(began); d > patience/2 {
		t.Errorf("it took %v", d)
	}
}

// TestProcessRefuses asks for what cannot be.
func TestProcessRefuses(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	pid := n.start("box", api.StartRequest{}, "sleep", "1h")
	attach := func(pid int, from int64) error {
		_, err := n.m.Attach(ctx, "box", pid, api.AttachRequest{From: from}, api.AttachIO{Output: func(api.Chunk) error { return nil }})
		return err
	}
	launch := func(req api.StartRequest) error {
		_, err := n.m.StartProcess(ctx, "box", req)
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
		"input without stdin": {n.m.WriteProcess(ctx, "box", pid, strings.NewReader("x"), false), api.CodeWrongState},
		"resize without tty":  {n.m.ResizeProcess(ctx, "box", pid, api.TerminalSize{Cols: 1, Rows: 1}), api.CodeWrongState},
		"no such signal":      {n.m.SignalProcess(ctx, "box", pid, api.SignalRequest{Signal: "NO"}), api.CodeInvalid},
		"signal 65":           {n.m.SignalProcess(ctx, "box", pid, api.SignalRequest{Signal: "65"}), api.CodeInvalid},
		"signal 0":            {n.m.SignalProcess(ctx, "box", pid, api.SignalRequest{Signal: "0"}), api.CodeInvalid},
		"signal to init":      {n.m.SignalProcess(ctx, "box", 1, api.SignalRequest{Signal: "9"}), api.CodeNotFound},
		"signal to nothing":   {n.m.SignalProcess(ctx, "box", 4242, api.SignalRequest{Signal: "9"}), api.CodeNotFound},
		"no command":          {launch(api.StartRequest{}), api.CodeInvalid},
		"unknown command":     {launch(api.StartRequest{Argv: []string{"nosuch"}}), api.CodeNoCommand},
		"a directory":         {launch(api.StartRequest{Argv: []string{"/tmp"}}), api.CodeNotExecutable},
		"too much output":     {launch(api.StartRequest{Argv: sleep, KeepKiB: 1 << 20}), api.CodeInvalid},
		"endless timeout":     {launch(api.StartRequest{Argv: sleep, TimeoutMS: 1 << 62}), api.CodeInvalid},
		"negative idle":       {launch(api.StartRequest{Argv: sleep, IdleTimeoutMS: -1}), api.CodeInvalid},
		"terminal and stdin":  {launch(api.StartRequest{Argv: sleep, Stdin: true, Terminal: &api.TerminalSize{Cols: 1, Rows: 1}}), api.CodeInvalid},
		"no such sandbox":     {n.m.RemoveProcess(ctx, "nosuch", pid), api.CodeNotFound},
		"remove what was not": {n.m.RemoveProcess(ctx, "box", 4242), api.CodeNotFound},
		"remove what runs":    {n.m.RemoveProcess(ctx, "box", pid), ""},
		"remove what is gone": {n.m.RemoveProcess(ctx, "box", pid), api.CodeNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			if c.code == "" && c.err != nil || c.code != "" && api.CodeOf(c.err) != c.code {
				t.Errorf("error is %v, not of code %q", c.err, c.code)
			}
		})
	}
	eventually(t, "processes", func() error { return n.noProcesses("box") })
}

// TestForkWhileOutputFlows forks while a process writes as fast as it can. Neither
// side may lose a byte.
func TestForkWhileOutputFlows(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	const size = 12 << 20
	pid := n.start("box", api.StartRequest{KeepKiB: 16384}, "spew", fmt.Sprint(size))
	refs := []string{"box"}
	for range 3 {
		refs = append(refs, n.fork("box", 1)[0].ID)
	}
	for _, ref := range refs {
		if x, err := n.m.WaitProcess(ctx, ref, pid); err != nil || !x.OK {
			t.Fatalf("%s: %+v, %v", ref, x, err)
		}
		f := n.follow(ref, pid, 0)
		f.exit()
		out, lost := f.text()
		if lost != 0 || out != strings.Repeat("0123456789abcde\n", size/16) {
			t.Errorf("%s: %d bytes, %d lost, or some are wrong", ref, len(out), lost)
		}
	}
}

// TestManyShortCommands runs commands in a row. Nothing of them may stay.
func TestManyShortCommands(t *testing.T) {
	ctx := asOwner
	n := newNode(t)
	n.create("box")
	// Those of the pool come and go, so it is the sentry with the most that counts.
	descriptors := func() int {
		most := 0
		for _, pid := range n.processes() {
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
			if _, err := n.run("box", api.ExecRequest{Argv: []string{"guest", "true"}}, "input that nobody reads"); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(20)
	before := descriptors()
	run(500)
	eventually(t, "descriptors", func() error {
		if now := descriptors(); now > before+5 {
			return fmt.Errorf("there are %d, and were %d", now, before)
		}
		return nil
	})
	if list, err := n.m.Processes(ctx, "box", true); err != nil || len(list) > 0 {
		t.Errorf("still listed: %+v, %v", list, err)
	}
	for range 150 { // more than fit one answer
		n.start("box", api.StartRequest{}, "true")
	}
	eventually(t, "processes", func() error { return n.noProcesses("box") })
	if list, err := n.m.Processes(ctx, "box", true); err != nil || len(list) != 150 {
		t.Errorf("%d are listed, %v", len(list), err)
	}
}
