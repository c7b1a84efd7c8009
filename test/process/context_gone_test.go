package process

import (
	"context"
	"fmt"
	"testing"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// longer is more than what a cell gets, in seconds, to end by an interrupt after its
// caller.
const longer = 12

// leave begins a call whose work says that it has begun by making the file begun, and
// goes away then.
func (x *contextTest) leave(begun string, call func(context.Context) error) {
	x.T.Helper()
	ctx, cancel := context.WithCancel(harness.AsOwner)
	defer cancel()
	ended := harness.InBackground(func() error { return call(ctx) })
	harness.Eventually(x.T, "it has begun", func() error { return x.hasFile("box", begun) })
	cancel()
	harness.WantCode(x.T, <-ended, api.CodeCanceled)
}

// leaveCell is leave of a cell.
func (x *contextTest) leaveCell(begun string, req api.RunCodeRequest) {
	x.T.Helper()
	x.leave(begun, func(ctx context.Context) error {
		_, err := x.Machine.RunCode(ctx, "box", req, harness.DiscardRun())
		return err
	})
}

// TestContextCallerGone has callers go away from cells that ignore interrupts: the
// context is there for others soon, with a new interpreter.
func TestContextCallerGone(t *testing.T) {
	x := newContextTest(t)
	ignores := "import time\nkept = 1\nwhile True:\n    try:\n        open('/tmp/%s', 'w').close()\n        while True: time.sleep(0.01)\n    except BaseException: pass"
	for name, c := range map[string]struct {
		language, code, next string
		timeoutMS            int64
	}{
		"python":  {"python", ignores, "'kept' in globals() or print('new')", 0},
		"timeout": {"python", ignores, "'kept' in globals() or print('new')", 3600_000}, // is later
		"bash":    {"bash", "trap '' INT; touch /tmp/%s; kept=1; while :; do sleep 0.1; done", "echo ${kept-new}", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			request := func(code string, timeoutMS int64) api.RunCodeRequest {
				return api.RunCodeRequest{Context: name, Language: c.language, Code: code, TimeoutMS: timeoutMS}
			}
			x.leaveCell("/tmp/"+name, request(fmt.Sprintf(c.code, name), c.timeoutMS))
			if r, err := x.try("box", request(c.next, 0)); err != nil || r.stdout.String() != "new\n" {
				t.Errorf("the next one: %+v, %v", r, err)
			}
			list, err := x.Machine.Contexts(harness.AsOwner, "box")
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range list {
				if one.Name == name && one.Restarts != 1 {
					t.Errorf("%+v", one)
				}
			}
		})
	}
}

// TestContextInterruptKillsNothing interrupts a cell that goes on for longer than one
// may whose time is over: it ends when it likes.
func TestContextInterruptKillsNothing(t *testing.T) {
	x := newContextTest(t)
	ended := harness.InBackground(func() error {
		r, err := x.try("box", api.RunCodeRequest{Code: fmt.Sprintf("import time\ntry: open('/tmp/begun', 'w').close(); time.sleep(1000)\nexcept KeyboardInterrupt: time.sleep(%d)\n'went on'", longer)})
		if err == nil && r.Result != "'went on'" {
			err = fmt.Errorf("%+v", r.RunResult)
		}
		return err
	})
	harness.Eventually(t, "the cell runs", func() error { return x.hasFile("box", "/tmp/begun") })
	if was, err := x.Machine.InterruptContext(harness.AsOwner, "box", "python"); err != nil || !was {
		t.Errorf("interrupted: %v, %v", was, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestContextVariablesCallerGone goes away from a comparison of variables: who only
// looks at them costs nobody what they hold, however long one takes.
func TestContextVariablesCallerGone(t *testing.T) {
	x := newContextTest(t)
	x.value("box", fmt.Sprintf(`import time
class Slow:
    def __repr__(self):
        open('/tmp/begun', 'w').close()
        until = None
        while until is None or time.monotonic() < until:
            try: time.sleep(0.01)
            except KeyboardInterrupt: until = time.monotonic() + %d
        return 'slow'
slow = Slow()`, longer))
	child := x.Fork("box", 1)[0].ID
	x.leave("/tmp/begun", func(ctx context.Context) error {
		_, err := x.Machine.Diff(ctx, "box", child, api.DiffRequest{Variables: true})
		return err
	})
	if got := x.value("box", "type(slow).__name__"); got != "'Slow'" {
		t.Error(got)
	}
}
