package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ramet.dev/ramet/api"
	"ramet.dev/ramet/test/harness"
)

// contextTest is a node with a sandbox that has Python and Bash.
type contextTest struct{ *harness.Node }

func newContextTest(t *testing.T) *contextTest {
	return newContextTestOf(t, "/usr/bin/python3", "/bin/bash")
}

func newContextTestOf(t *testing.T, needs ...string) *contextTest {
	n := harness.NewDatabaseNode(t, needs)
	if _, err := n.Machine.Create(harness.AsOwner, api.CreateRequest{Image: "databases", Name: "box"}); err != nil {
		t.Fatal(err)
	}
	return &contextTest{n}
}

// ran is what came of a cell.
type ran struct {
	*api.RunResult
	stdout, stderr bytes.Buffer
}

func (x *contextTest) try(ref string, req api.RunCodeRequest) (*ran, error) {
	ctx, cancel := context.WithTimeout(harness.AsOwner, harness.LongTimeout)
	defer cancel()
	r := &ran{}
	var shown []map[string]json.RawMessage
	var err error
	r.RunResult, err = x.Machine.RunCode(ctx, ref, req, api.RunIO{Stdout: &r.stdout, Stderr: &r.stderr, Result: func(forms map[string]json.RawMessage) error {
		shown = append(shown, forms)
		return nil
	}})
	if err == nil {
		r.Results = shown
	}
	return r, err
}

// cell runs Python code, whatever comes of it.
func (x *contextTest) cell(ref, code string) *ran {
	x.T.Helper()
	r, err := x.try(ref, api.RunCodeRequest{Code: code})
	if err != nil {
		x.T.Fatalf("%s: %s: %v", ref, code, err)
	}
	return r
}

// value runs Python code, which must succeed, and returns its result.
func (x *contextTest) value(ref, code string) string {
	x.T.Helper()
	r := x.cell(ref, code)
	if !r.OK {
		x.T.Fatalf("%s: %s: %+v %s", ref, code, r.Error, r.stderr.String())
	}
	return r.Result
}

func (x *contextTest) shell(ref, code string) *ran {
	x.T.Helper()
	r, err := x.try(ref, api.RunCodeRequest{Code: code, Language: "bash"})
	if err != nil {
		x.T.Fatalf("%s: %s: %v", ref, code, err)
	}
	return r
}

// wantError checks the error of a cell.
func (r *ran) wantError(t *testing.T, name string, exitCode int) {
	t.Helper()
	if r.Error == nil || r.Error.Name != name || r.ExitCode != exitCode || r.OK {
		t.Errorf("error %+v with exit code %d, not %s with %d", r.Error, r.ExitCode, name, exitCode)
	}
}

func TestContextCells(t *testing.T) {
	x := newContextTest(t)
	if r := x.cell("box", "print('out')\nimport sys\nprint('err', file=sys.stderr)\n40 + 2"); r.Result != "42" || r.stdout.String() != "out\n" || r.stderr.String() != "err\n" ||
		string(r.Results[0]["text/plain"]) != `"42"` || r.ExecutionCount != 1 || r.Context != "python" {
		t.Errorf("%+v %q %q", r.RunResult, r.stdout.String(), r.stderr.String())
	}
	x.cell("box", "1/0").wantError(t, "ZeroDivisionError", 1)
	x.cell("box", "import os; os.write(1, bytes(range(256)) * 1000); os.close(1); os.open('/dev/null', 1); None")
	x.cell("box", "input()").wantError(t, "EOFError", 1)
	if r := x.shell("box", "cd /tmp; v=1; echo $v >&2; false"); r.ExitCode != 1 || r.stderr.String() != "1\n" {
		t.Errorf("%+v", r.RunResult)
	}
	if r := x.shell("box", "echo $v $PWD"); r.stdout.String() != "1 /tmp\n" {
		t.Errorf("%q", r.stdout.String())
	}
	if out, err := x.Run("box", api.ExecRequest{Shell: "mv /usr/bin/node /usr/bin/no-node; true"}, ""); err != nil || out.ExitCode != 0 {
		t.Fatal(err)
	}
	_, err := x.try("box", api.RunCodeRequest{Code: "1", Language: "node"})
	harness.WantCode(t, err, api.CodeUnsupported)
	if err == nil || !strings.Contains(err.Error(), "no node") {
		t.Error(err)
	}
	for _, req := range []api.RunCodeRequest{{Language: "ruby"}, {Context: "python", Language: "bash"}, {Context: "No Name"}, {Code: "a\x00b"}, {Code: strings.Repeat("#", 5<<20)}, {TimeoutMS: -1}} {
		_, err := x.try("box", req)
		harness.WantCode(t, err, api.CodeInvalid)
	}
	_, err = x.try("box", api.RunCodeRequest{Context: "nobody"})
	harness.WantCode(t, err, api.CodeNotFound)
	list, err := x.Machine.Contexts(harness.AsOwner, "box")
	if err != nil || len(list) != 2 || list[0].Name != "python" || list[0].State != api.ContextIdle || !strings.HasPrefix(list[0].Version, "3.") || list[1].Name != "bash" {
		t.Errorf("%+v, %v", list, err)
	}
	for _, req := range []api.RunCodeRequest{{Context: "mine", Language: "bash", Code: "v=2"}, {Context: "mine", Language: "bash", Code: "test $v = 2"}, {Context: "mine", Code: "test $v = 2"}} {
		if r, err := x.try("box", req); err != nil || r.Context != "mine" || r.ExitCode != 0 {
			t.Errorf("%+v: %+v, %v", req, r, err)
		}
	}
	_, err = x.try("box", api.RunCodeRequest{Context: "mine", Language: "python", Code: "1"})
	harness.WantCode(t, err, api.CodeInvalid)
	_, err = x.try("box", api.RunCodeRequest{Context: "nobody", Language: "node", Code: "1"})
	harness.WantCode(t, err, api.CodeUnsupported)
	_, err = x.try("box", api.RunCodeRequest{Context: "No Name", Language: "bash", Code: "1"})
	harness.WantCode(t, err, api.CodeInvalid)
	if list, err = x.Machine.Contexts(harness.AsOwner, "box"); err != nil || len(list) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestContextOutput has more output than fits any pipe, binary and in order.
func TestContextOutput(t *testing.T) {
	x := newContextTest(t)
	r := x.cell("box", "import os\nfor i in range(200): os.write(1, bytes(range(256)) * 64); os.write(2, b'%d\\n' % i)")
	if want := bytes.Repeat(func() (all []byte) {
		for i := range 256 {
			all = append(all, byte(i))
		}
		return
	}(), 64*200); !bytes.Equal(r.stdout.Bytes(), want) {
		t.Errorf("%d bytes of output, not the %d that were written", r.stdout.Len(), len(want))
	}
	if lines := strings.Fields(r.stderr.String()); len(lines) != 200 || lines[199] != "199" {
		t.Errorf("%d lines", len(lines))
	}
	// What is shown is bounded, whatever the interpreter does itself.
	r = x.cell("box", "class Big:\n    def _repr_html_(self): return 'x' * (3 << 20)\nfor _ in range(20): display(Big())")
	if n := len(r.Results); !r.Truncated || n < 5 || n > 12 || r.Error != nil {
		t.Errorf("%d results, %+v", n, r.Error)
	}
	if r := x.cell("box", "'x' * (2 << 20)"); !r.Truncated || !r.OK || len(r.Result) > 2<<20 {
		t.Errorf("truncated is %t, with %d bytes of a result and error %+v", r.Truncated, len(r.Result), r.Error)
	}
	// Output between cells is nobody's.
	x.cell("box", "import threading, time\nstop = threading.Event()\ndef noise():\n    while not stop.is_set():\n        print('noise' * 1000)\n        time.sleep(0.001)\nthread = threading.Thread(target=noise)\nthread.start()")
	x.value("box", "time.sleep(0.3)")
	x.value("box", "stop.set(); thread.join()")
	if r := x.cell("box", "print('quiet')"); !strings.HasSuffix(r.stdout.String(), "quiet\n") {
		t.Errorf("%q", r.stdout.String())
	}
}

func TestContextForks(t *testing.T) {
	x := newContextTest(t)
	x.value("box", "import random\ndata = ['parent']\nclass C: pass\nc = C()\nrandom.seed(1)")
	x.shell("box", "v=parent; cd /srv; f() { echo $v $PWD; }")
	r, err := x.Machine.Fork(harness.AsOwner, "box", api.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	children := x.Children(r)
	for _, c := range r.Children {
		told, err := json.Marshal(c.Identity.Reseeded)
		want := `[{"context":"python","language":"python","generators":["random"]},{"context":"bash","language":"bash","generators":["RANDOM"]}]`
		if err != nil || string(told) != want {
			t.Errorf("identity says %s (%v)", told, err)
		}
	}
	drawn, shells := map[string]string{}, map[string]string{}
	for _, ref := range []string{"box", children[0].ID, children[1].ID} {
		drawn[x.value(ref, "random.random()")] = ref
		shells[x.shell(ref, "echo $RANDOM$RANDOM").stdout.String()] = ref
		x.value(ref, fmt.Sprintf("data.append(%q)", ref))
		if got, want := x.value(ref, "data, type(c) is C"), fmt.Sprintf("(['parent', '%s'], True)", ref); got != want {
			t.Errorf("%s: %s, not %s", ref, got, want)
		}
		if out := x.shell(ref, "f").stdout.String(); out != "parent /srv\n" {
			t.Errorf("%s: %q", ref, out)
		}
	}
	if len(drawn) != 3 || len(shells) != 3 {
		t.Errorf("numbers are the same: %v %v", drawn, shells)
	}
	// Of a child, of a snapshot on disk, and after the daemon was another one.
	grandchild := x.Fork(children[0].ID, 1)[0].ID
	if _, err := x.Machine.Snapshot(harness.AsOwner, children[1].ID, api.SnapshotRequest{Name: "kept"}); err != nil {
		t.Fatal(err)
	}
	x.Reopen()
	restored, err := x.Machine.Restore(harness.AsOwner, "kept", api.RestoreRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for ref, last := range map[string]string{grandchild: children[0].ID, x.Children(restored)[0].ID: children[1].ID, "box": "box"} {
		if got := x.value(ref, "data[-1]"); got != "'"+last+"'" {
			t.Errorf("%s: %s", ref, got)
		}
	}
}

// TestContextForkDuringRun forks while a cell runs: it goes on in parent and child,
// and the child's next cell comes after it.
func TestContextForkDuringRun(t *testing.T) {
	x := newContextTest(t)
	x.value("box", "import time, os, random, random as r2\nrandom.seed(1)")
	done := harness.InBackground(func() error {
		r, err := x.try("box", api.RunCodeRequest{Code: "open('/tmp/begun', 'w').close()\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nprint('over')\nresult = 'over'\nresult"})
		if err == nil && (r.Result != "'over'" || r.stdout.String() != "over\n") {
			err = fmt.Errorf("%+v %q", r.RunResult, r.stdout.String())
		}
		return err
	})
	harness.Eventually(t, "the cell runs", func() error { return x.hasFile("box", "/tmp/begun") })
	r, err := x.Machine.Fork(harness.AsOwner, "box", api.ForkRequest{Count: 2})
	if err != nil {
		t.Fatal(err)
	}
	x.Children(r)
	goesOn, interrupted := r.Children[0].Sandbox.ID, r.Children[1].Sandbox.ID
	if s := r.Children[0].Identity.Reseeded; len(s) != 1 || !s[0].Pending {
		t.Errorf("identity says %+v", s)
	}
	next := harness.InBackground(func() error {
		r, err := x.try(goesOn, api.RunCodeRequest{Code: "result, random.random()"})
		if err == nil && !strings.HasPrefix(r.Result, "('over', ") {
			err = fmt.Errorf("%+v", r.RunResult)
		}
		if err == nil && strings.HasPrefix(r.Result, "('over', 0.13436424411240122") {
			err = errors.New("the generator is the parent's")
		}
		return err
	})
	if was, err := x.Machine.InterruptContext(harness.AsOwner, interrupted, "python"); err != nil || !was {
		t.Errorf("interrupted: %v, %v", was, err)
	}
	x.cell(interrupted, "result").wantError(t, "NameError", 1)
	for _, ref := range []string{goesOn, "box"} {
		if out, err := x.Run(ref, api.ExecRequest{Shell: "touch /tmp/go"}, ""); err != nil || out.ExitCode != 0 {
			t.Fatal(err)
		}
	}
	for _, err := range []error{<-next, <-done} {
		if err != nil {
			t.Error(err)
		}
	}
}

func (x *contextTest) hasFile(ref, path string) error {
	out, err := x.Run(ref, api.ExecRequest{Argv: []string{"test", "-e", path}}, "")
	if err == nil && out.ExitCode != 0 {
		err = fmt.Errorf("%s is missing", path)
	}
	return err
}

func TestContextInterruptAndTimeout(t *testing.T) {
	x := newContextTest(t)
	x.value("box", "kept = 1; import time, signal")
	r, err := x.try("box", api.RunCodeRequest{Code: "while True: pass", TimeoutMS: 300})
	if err != nil {
		t.Fatal(err)
	}
	if r.wantError(t, "KeyboardInterrupt", 130); !r.TimedOut {
		t.Error("it did not time out")
	}
	if got := x.value("box", "kept"); got != "1" {
		t.Error(got)
	}
	// A caller who goes away interrupts.
	ctx, cancel := context.WithCancel(harness.AsOwner)
	gone := harness.InBackground(func() error {
		_, err := x.Machine.RunCode(ctx, "box", api.RunCodeRequest{Code: "try:\n    open('/tmp/begun', 'w').close()\n    time.sleep(1000)\nfinally:\n    kept = 2"}, harness.DiscardRun())
		return err
	})
	harness.Eventually(t, "the cell runs", func() error { return x.hasFile("box", "/tmp/begun") })
	cancel()
	harness.WantCode(t, <-gone, api.CodeCanceled)
	if got := x.value("box", "kept"); got != "2" {
		t.Error(got)
	}
	if was, err := x.Machine.InterruptContext(harness.AsOwner, "box", "python"); err != nil || was {
		t.Errorf("nothing runs: %v, %v", was, err)
	}
	// What does not end by an interrupt is killed.
	r, err = x.try("box", api.RunCodeRequest{Code: "print('last', flush=True)\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)", TimeoutMS: 3000})
	if err != nil {
		t.Fatal(err)
	}
	if r.wantError(t, api.ContextDied, 137); !r.TimedOut || r.Signal != "SIGKILL" || r.stdout.String() != "last\n" {
		t.Errorf("%+v %q", r.RunResult, r.stdout.String())
	}
	x.cell("box", "kept").wantError(t, "NameError", 1)
	if r := x.shell("box", "kept=1"); !r.OK {
		t.Errorf("%+v", r.RunResult)
	}
	if r, err := x.try("box", api.RunCodeRequest{Code: "sleep 1000", Language: "bash", TimeoutMS: 200}); err != nil || !r.TimedOut || r.ExitCode != 130 {
		t.Errorf("%+v, %v", r.RunResult, err)
	}
	if r := x.shell("box", "echo $kept"); r.stdout.String() != "1\n" {
		t.Errorf("%q", r.stdout.String())
	}
}

func TestContextEnds(t *testing.T) {
	ctx := harness.AsOwner
	x := newContextTest(t)
	x.cell("box", "import os; print('x'); os._exit(3)").wantError(t, api.ContextDied, 3)
	if got := x.value("box", "import os; os.getpid() > 1"); got != "True" {
		t.Error(got)
	}
	x.cell("box", "os.kill(os.getpid(), 9)").wantError(t, api.ContextDied, 137)
	x.cell("box", "import os; os.write(201, b'no frame, and more than a head has')").wantError(t, api.ContextDied, 137)
	list, err := x.Machine.Contexts(ctx, "box")
	if err != nil || len(list) != 1 || list[0].State != api.ContextEnded || list[0].Restarts != 2 {
		t.Errorf("%+v, %v", list, err)
	}
	x.value("box", "kept = 1")
	c, err := x.Machine.RestartContext(ctx, "box", "python")
	if err != nil || c.Restarts != 4 || c.State != api.ContextIdle {
		t.Errorf("%+v, %v", c, err)
	}
	x.cell("box", "kept").wantError(t, "NameError", 1)
	made, err := x.Machine.CreateContext(ctx, "box", api.ContextRequest{Language: "python", Cwd: "/srv", Env: map[string]string{"K": "v"}})
	if err != nil || made.Name != "python-1" {
		t.Fatalf("%+v, %v", made, err)
	}
	r, err := x.try("box", api.RunCodeRequest{Context: made.Name, Code: "import os; os.getcwd(), os.environ['K']"})
	if err != nil || r.Result != "('/srv', 'v')" {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = x.Machine.CreateContext(ctx, "box", api.ContextRequest{Language: "python", Name: made.Name})
	harness.WantCode(t, err, api.CodeNameTaken)
	_, err = x.Machine.CreateContext(ctx, "box", api.ContextRequest{Language: "python", Cwd: "/nowhere"})
	harness.WantCode(t, err, api.CodeInvalid)
	// Who runs something when a context is ended, is told.
	running := harness.InBackground(func() error {
		r, err := x.try("box", api.RunCodeRequest{Context: made.Name, Code: "open('/tmp/begun', 'w').close()\nimport time; time.sleep(1000)"})
		if err == nil && (r.Error == nil || r.Error.Name != api.ContextDied) {
			err = fmt.Errorf("%+v", r.RunResult)
		}
		return err
	})
	harness.Eventually(t, "the cell runs", func() error { return x.hasFile("box", "/tmp/begun") })
	if err := x.Machine.DestroyContext(ctx, "box", made.Name); err != nil {
		t.Error(err)
	}
	if err := <-running; err != nil {
		t.Error(err)
	}
	harness.WantCode(t, x.Machine.DestroyContext(ctx, "box", made.Name), api.CodeNotFound)
	// An ended context is inherited as one.
	x.cell("box", "import os; os._exit(0)").wantError(t, api.ContextDied, 0)
	child := x.Fork("box", 1)[0].ID
	if got := x.value(child, "1 + 1"); got != "2" {
		t.Error(got)
	}
}

// TestContextQueue has many run at once: one context serves them in order, two
// contexts at the same time.
func TestContextQueue(t *testing.T) {
	ctx := harness.AsOwner
	x := newContextTest(t)
	x.value("box", "order = []; import time, os")
	first := harness.InBackground(func() error {
		_, err := x.try("box", api.RunCodeRequest{Code: "while not os.path.exists('/tmp/go'): time.sleep(0.01)"})
		return err
	})
	waiting := func(n int) {
		t.Helper()
		harness.Eventually(t, "runs wait", func() error {
			list, err := x.Machine.Contexts(ctx, "box")
			if err != nil {
				return err
			}
			if list[0].Waiting != n || list[0].State != api.ContextBusy {
				return fmt.Errorf("%+v", list[0])
			}
			return nil
		})
	}
	waiting(0)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			if r, err := x.try("box", api.RunCodeRequest{Code: fmt.Sprintf("order.append(%d)\nprint(%d)", i, i)}); err != nil || r.stdout.String() != fmt.Sprintln(i) {
				t.Errorf("%d: %+v, %v", i, r, err)
			}
		})
		waiting(i + 1)
	}
	// One who does not wait any more has no turn.
	impatient, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err := x.Machine.RunCode(impatient, "box", api.RunCodeRequest{Code: "order.append('impatient')"}, harness.DiscardRun())
	if err == nil {
		t.Error("it was run")
	}
	other, err := x.Machine.CreateContext(ctx, "box", api.ContextRequest{Language: "python", Name: "other"})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := x.try("box", api.RunCodeRequest{Context: other.Name, Code: "open('/tmp/go', 'w').close()\n1"}); err != nil || r.Result != "1" {
		t.Errorf("%+v, %v", r, err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	all.Wait()
	if got := x.value("box", "order"); got != "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]" {
		t.Error(got)
	}
}

func TestContextVariables(t *testing.T) {
	ctx := harness.AsOwner
	x := newContextTest(t)
	x.value("box", "import random\nsame, changed, gone = 1, [1], 'x'\ndef f(): return 1")
	x.shell("box", "v=1")
	children := x.Fork("box", 2)
	a, b := children[0].ID, children[1].ID
	x.value(b, "changed.append(2)\ndel gone\nnew = {'k': 1}\ndef f(): return 2")
	if _, err := x.Machine.CreateContext(ctx, b, api.ContextRequest{Language: "python", Name: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, err := x.try(b, api.RunCodeRequest{Context: "other", Code: "only = 1"}); err != nil {
		t.Fatal(err)
	}
	d, err := x.Machine.Diff(ctx, a, b, api.DiffRequest{Variables: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range d.Variables {
		got = append(got, fmt.Sprintf("%s %s %s %s %s", v.Context, v.Kind, v.Name, v.Type, v.Repr))
	}
	want := "other added only int 1\npython modified changed list [1, 2]\npython modified f function <function f\npython deleted gone str 'x'\npython added new dict {'k': 1}"
	for i, line := range got {
		got[i], _, _ = strings.Cut(line, " at ") // an address
	}
	if strings.Join(got, "\n") != want {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if d, err := x.Machine.Diff(ctx, a, a, api.DiffRequest{Variables: true}); err != nil || len(d.Variables) != 0 {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := x.Machine.Diff(ctx, a, b, api.DiffRequest{}); err != nil || d.Variables != nil {
		t.Errorf("%+v, %v", d, err)
	}
	s, err := x.Machine.Snapshot(ctx, a, api.SnapshotRequest{Memory: true})
	if err != nil {
		t.Fatal(err)
	}
	_, err = x.Machine.Diff(ctx, s.ID, b, api.DiffRequest{Variables: true})
	harness.WantCode(t, err, api.CodeInvalid)
}

func TestContextNode(t *testing.T) {
	ctx := harness.AsOwner
	x := newContextTestOf(t, "/usr/bin/node")
	node := func(ref, code string, timeoutMS int64) *ran {
		t.Helper()
		r, err := x.try(ref, api.RunCodeRequest{Code: code, Language: "node", TimeoutMS: timeoutMS})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := node("box", "const crypto = require('crypto'); let list = [1]; console.log('out'); list", 0); r.Result != "[ 1 ]" || r.stdout.String() != "out\n" || string(r.Results[0]["application/json"]) != "[1]" {
		t.Errorf("%+v %q", r.RunResult, r.stdout.String())
	}
	for _, code := range []string{"while (true) {}", "await new Promise(() => {})"} {
		r := node("box", code, 300)
		if r.wantError(t, "Interrupt", 130); !r.TimedOut {
			t.Errorf("%s did not time out", code)
		}
	}
	node("box", "crypto.randomBytes(1)", 0)
	children := x.Fork("box", 2)
	a, b := children[0].ID, children[1].ID
	if told := children[0].Identity.Reseeded; len(told) != 1 || told[0].Generators[0] != "Math.random" {
		t.Errorf("identity says %+v", told)
	}
	for _, code := range []string{"Math.random()", "crypto.randomBytes(8).toString('hex')", "crypto.randomUUID()", "globalThis.crypto ? globalThis.crypto.randomUUID() : crypto.randomUUID()"} {
		drawn := map[string]bool{}
		for _, ref := range []string{"box", a, b} {
			drawn[node(ref, code, 0).Result] = true
		}
		if len(drawn) != 3 {
			t.Errorf("%s: %v", code, drawn)
		}
	}
	node(b, "list.push(2); let fresh = 'x'; 0", 0)
	d, err := x.Machine.Diff(ctx, a, b, api.DiffRequest{Variables: true})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range d.Variables {
		got = append(got, fmt.Sprintf("%s %s %s %s", v.Context, v.Kind, v.Name, v.Repr))
	}
	if want := "node added fresh 'x'\nnode modified list [ 1, 2 ]"; strings.Join(got, "\n") != want {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	node("box", "process.kill(process.pid, 'SIGKILL'); await new Promise(() => {})", 0).wantError(t, api.ContextDied, 137)
}

// TestContextAfterDaemon kills nothing but takes the daemon from under a cell: its
// late answer must not be taken for that of the next one.
func TestContextAfterDaemon(t *testing.T) {
	x := newContextTest(t)
	x.value("box", "import time, os")
	ctx, cancel := context.WithCancel(harness.AsOwner)
	left := harness.InBackground(func() error {
		_, err := x.Machine.RunCode(ctx, "box", api.RunCodeRequest{Code: "while True:\n    try:\n        open('/tmp/begun', 'w').close()\n        while not os.path.exists('/tmp/go'): time.sleep(0.01)\n        break\n    except KeyboardInterrupt:\n        print('late')\n'late answer'"}, harness.DiscardRun())
		return err
	})
	harness.Eventually(t, "the cell runs", func() error { return x.hasFile("box", "/tmp/begun") })
	cancel()
	if err := <-left; err == nil {
		t.Error("the cell was answered")
	}
	// It has not much time left, now that its caller is gone, but that stands still.
	if _, err := x.Machine.Pause(harness.AsOwner, "box"); err != nil {
		t.Fatal(err)
	}
	x.Reopen()
	if _, err := x.Machine.Resume(harness.AsOwner, "box"); err != nil {
		t.Fatal(err)
	}
	next := harness.InBackground(func() error {
		r, err := x.try("box", api.RunCodeRequest{Code: "print('next')\n'next answer'"})
		if err == nil && (r.Result != "'next answer'" || r.stdout.String() != "next\n" || r.ExecutionCount != 3) {
			err = fmt.Errorf("%+v %q", r.RunResult, r.stdout.String())
		}
		return err
	})
	harness.Eventually(t, "it waits", func() error {
		list, err := x.Machine.Contexts(harness.AsOwner, "box")
		if err == nil && (list[0].State != api.ContextBusy || list[0].Waiting != 1) {
			err = fmt.Errorf("%+v", list[0])
		}
		return err
	})
	if out, err := x.Run("box", api.ExecRequest{Shell: "touch /tmp/go"}, ""); err != nil || out.ExitCode != 0 {
		t.Fatal(err)
	}
	if err := <-next; err != nil {
		t.Error(err)
	}
}
