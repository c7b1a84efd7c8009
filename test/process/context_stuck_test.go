package process

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// endless is a cell that prints until nobody reads it, and says how far it got.
const endless = `import os
kept, printed = 1, os.open('/tmp/%s', os.O_CREAT | os.O_RDWR)
for i in range(1 << 40):
    print('x' * 1000)
    os.pwrite(printed, b'%%d' %% i, 0)`

// unread runs an endless cell whose output nobody reads until open is called, and
// returns when it waits for that.
func (x *contextTest) unread(name string, timeoutMS int64) (ended <-chan error, open func()) {
	x.T.Helper()
	g := harness.NewGatedWriter()
	ended = harness.InBackground(func() error {
		req := api.RunCodeRequest{Context: name, Code: fmt.Sprintf(endless, name), TimeoutMS: timeoutMS}
		_, err := x.Machine.RunCode(harness.AsOwner, "box", req, api.RunIO{
			Stdout: g, Stderr: g, Result: func(map[string]json.RawMessage) error { return nil },
		})
		return err
	})
	<-g.Waiting
	const while = 300 * time.Millisecond
	last, since := "", time.Now()
	harness.Eventually(x.T, "all buffers are full", func() error {
		now, err := x.Read("box", harness.At("/tmp/"+name))
		if now != last {
			last, since = now, time.Now()
		}
		if err == nil && time.Since(since) < while {
			err = fmt.Errorf("it has just printed line %s", now)
		}
		return err
	})
	return ended, func() { close(g.Open) }
}

// TestContextUnread has callers who do not read what their cells print. They get no
// more after their timeout, when somebody wants the context to do something else, or
// when others wait for long, and the interpreter keeps what it has.
func TestContextUnread(t *testing.T) {
	ctx := harness.AsOwner
	x := newContextTest(t)
	for name, c := range map[string]struct {
		timeoutMS int64
		free      func(name string) error // what makes others get their turn
		died      bool
	}{
		"timeout":   {timeoutMS: 8000}, // all buffers are to be full before
		"interrupt": {free: func(name string) error { _, err := x.Machine.InterruptContext(ctx, "box", name); return err }},
		"restart":   {free: func(name string) error { _, err := x.Machine.RestartContext(ctx, "box", name); return err }, died: true},
		"others":    {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := x.Machine.CreateContext(ctx, "box", api.ContextRequest{Language: "python", Name: name}); err != nil {
				t.Fatal(err)
			}
			ended, open := x.unread(name, c.timeoutMS)
			if c.free != nil {
				if err := c.free(name); err != nil {
					t.Error(err)
				}
			}
			r, err := x.try("box", api.RunCodeRequest{Context: name, Code: "kept"})
			switch {
			case err != nil:
				t.Error(err)
			case c.died:
				r.wantError(t, "NameError", 1)
			case r.Result != "1":
				t.Errorf("%+v", r.RunResult)
			}
			open()
			if err := <-ended; !c.died {
				harness.WantCode(t, err, api.CodeTimeout)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestContextRemovedUnread ends a context whose caller does not read.
func TestContextRemovedUnread(t *testing.T) {
	x := newContextTest(t)
	ended, open := x.unread("python", 0)
	if err := x.Machine.DestroyContext(harness.AsOwner, "box", "python"); err != nil {
		t.Error(err)
	}
	open()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestContextLeavesWriters ends an interpreter that leaves processes behind which
// write without end.
func TestContextLeavesWriters(t *testing.T) {
	x := newContextTest(t)
	ctx, cancel := context.WithTimeout(harness.AsOwner, harness.Timeout)
	defer cancel()
	out := &slowReader{}
	r, err := x.Machine.RunCode(ctx, "box", api.RunCodeRequest{Code: `import os, subprocess
for stream in 1, 2, 1, 2: subprocess.Popen(['yes'], start_new_session=True, stdout=stream)
os._exit(3)`}, api.RunIO{Stdout: out, Stderr: out, Result: func(map[string]json.RawMessage) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	(&ran{RunResult: r}).wantError(t, api.ContextDied, 3)
	if got := x.value("box", "1 + 1"); got != "2" {
		t.Error(got)
	}
}

// TestContextSeedsLate forks while an interpreter stands still. Who uses it in the
// child waits for it no longer than he wants to, and it has new seeds when it goes on.
func TestContextSeedsLate(t *testing.T) {
	t.Run("with a thread", func(t *testing.T) {
		testContextSeedsLate(t, "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n", true)
	})
	t.Run("asleep", func(t *testing.T) { testContextSeedsLate(t, "", false) })
}

func testContextSeedsLate(t *testing.T, first string, pending bool) {
	x := newContextTest(t)
	pid := x.value("box", first+"import os, random\nrandom.seed(1)\nos.getpid()")
	signal := func(ref, name string) {
		t.Helper()
		if out, err := x.Run(ref, api.ExecRequest{Shell: "kill -" + name + " " + pid}, ""); err != nil || out.ExitCode != 0 {
			t.Fatalf("%v, %v", out, err)
		}
	}
	signal("box", "STOP")
	r, err := x.Machine.Fork(harness.AsOwner, "box", api.ForkRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	child := x.Children(r)[0].ID
	if s := r.Children[0].Identity.Reseeded; len(s) != 1 || s[0].Pending != pending {
		t.Errorf("identity says %+v", s)
	}
	for range 2 {
		began := time.Now()
		_, err = x.try(child, api.RunCodeRequest{Code: "random.random()", TimeoutMS: 300})
		harness.WantCode(t, err, api.CodeTimeout)
		if d := time.Since(began); d > harness.Timeout {
			t.Errorf("it took %v", d)
		}
	}
	signal(child, "CONT")
	signal("box", "CONT")
	if a, b := x.value("box", "random.random()"), x.value(child, "random.random()"); a == b {
		t.Errorf("both are %s", a)
	}
	if got := x.value(child, "os.getpid()"); got != pid {
		t.Errorf("it is process %s, not %s", got, pid)
	}
}

// TestContextInterruptsBeforeTheCell interrupts cells that have been sent, before
// their interpreter has read them or before there is one.
func TestContextInterruptsBeforeTheCell(t *testing.T) {
	x := newContextTest(t)
	for _, c := range []struct{ language, pid, sleep, print string }{
		{"python", "import os; print(os.getpid())", "import time; time.sleep(1000)", "print('next')"},
		{"bash", "echo $$", "sleep 1000", "echo next"},
	} {
		request := func(code string) api.RunCodeRequest {
			return api.RunCodeRequest{Code: code, Language: c.language, TimeoutMS: 30_000}
		}
		interrupted := func(do func()) {
			t.Helper()
			ended := harness.InBackground(func() error {
				r, err := x.try("box", request(c.sleep))
				if err == nil && (r.TimedOut || r.ExitCode != 130) {
					err = fmt.Errorf("%+v", r.RunResult)
				}
				return err
			})
			harness.Eventually(t, "it is about to run", func() error {
				was, err := x.Machine.InterruptContext(harness.AsOwner, "box", c.language)
				if err == nil && !was {
					err = fmt.Errorf("nothing runs")
				}
				return err
			})
			do()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			r, err := x.try("box", request(c.print))
			if err != nil || r.stdout.String() != "next\n" {
				t.Errorf("the next one: %+v, %v", r, err)
			}
		}
		interrupted(func() {}) // while it starts
		r, err := x.try("box", request(c.pid))
		if err != nil {
			t.Fatal(err)
		}
		signal := func(name string) {
			t.Helper()
			if out, err := x.Run("box", api.ExecRequest{Shell: "kill -" + name + " " + r.stdout.String()}, ""); err != nil || out.ExitCode != 0 {
				t.Fatalf("%v, %v", out, err)
			}
		}
		signal("STOP")
		interrupted(func() { signal("CONT") })
		if list, err := x.Machine.Contexts(harness.AsOwner, "box"); err != nil || list[len(list)-1].Restarts != 0 {
			t.Errorf("%+v, %v", list, err)
		}
	}
}
