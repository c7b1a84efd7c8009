package process

import (
	"fmt"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// TestContextsAreApart interrupts and restarts one context while another one runs.
func TestContextsAreApart(t *testing.T) {
	ctx := harness.AsOwner
	x := newContextTest(t)
	for _, name := range []string{"left", "right"} {
		if _, err := x.Machine.CreateContext(ctx, "box", api.ContextRequest{Language: "python", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(name, until string) chan *ran {
		t.Helper()
		out := make(chan *ran, 1)
		go func() {
			r, err := x.try("box", api.RunCodeRequest{Context: name, Code: fmt.Sprintf(
				"import os, time\nopen('/tmp/begun-%s', 'w').close()\nwhile not os.path.exists('/tmp/%s'): time.sleep(0.01)\nos.remove('/tmp/begun-%[1]s'); '%[1]s is done'", name, until)})
			if err != nil {
				t.Error(err)
			}
			out <- r
		}()
		harness.Eventually(t, name+" runs", func() error { return x.hasFile("box", "/tmp/begun-"+name) })
		return out
	}
	right := begin("right", "go")
	left := begin("left", "never")
	if was, err := x.Machine.InterruptContext(ctx, "box", "left"); err != nil || !was {
		t.Errorf("interrupted: %v, %v", was, err)
	}
	(<-left).wantError(t, "KeyboardInterrupt", 130)
	if out, err := x.Run("box", api.ExecRequest{Argv: []string{"rm", "/tmp/begun-left"}}, ""); err != nil || out.ExitCode != 0 {
		t.Fatal(err)
	}
	left = begin("left", "never")
	old, err := x.Machine.Contexts(ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	c, err := x.Machine.RestartContext(ctx, "box", "left")
	if err != nil || c.State != api.ContextIdle || c.PID == old[0].PID {
		t.Errorf("restarted: %+v, %v", c, err)
	}
	(<-left).wantError(t, api.ContextDied, 137)
	now, err := x.Machine.Contexts(ctx, "box")
	if err != nil || len(now) != 2 || now[1].State != api.ContextBusy || now[1].PID != old[1].PID || now[1].Restarts != 0 {
		t.Errorf("the other one: %+v, %v", now, err)
	}
	if out, err := x.Run("box", api.ExecRequest{Argv: []string{"touch", "/tmp/go"}}, ""); err != nil || out.ExitCode != 0 {
		t.Fatal(err)
	}
	if r := <-right; r.Result != "'right is done'" {
		t.Errorf("the other one: %+v", r.RunResult)
	}
}
