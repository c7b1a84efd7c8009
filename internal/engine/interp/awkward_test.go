package interp_test

import (
	"bytes"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"ramet.dev/ramet/internal/engine/interp"
)

// TestPythonIsOld has the programs read as the oldest Python would, with whatever
// Python there is.
func TestPythonIsOld(t *testing.T) {
	program, _ := interp.ProgramOf(interp.Python)
	for _, path := range interpreters(t, interp.Python) {
		cmd := exec.Command(path, "-c", "import ast, sys; ast.parse(sys.stdin.read(), feature_version=(3, 8))")
		cmd.Stdin = bytes.NewReader(program.Text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", path, err, out)
		}
	}
}

// TestPythonAwkwardValues has cells whose values say something unusual of
// themselves. None may end the interpreter.
func TestPythonAwkwardValues(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		h.want("class Says:\n    def __init__(self, text): self.text = text\n    def __repr__(self): return 'plain'\n    def _repr_mimebundle_(self, **_): return {'text/plain': self.text}", "")
		for _, code := range []string{"Says(object())", "Says(None)", "Says(b'bytes')", "Says(float('nan'))", "Says({'a': 1})"} {
			if a := h.cell(code); a.Error != nil || a.result() != "plain" || len(a.results) != 1 {
				t.Errorf("%s: %+v %s", code, a.Done, a.results)
			}
		}
		h.want("Says('said')", "said")
		if a := h.cell("Says('x' * (20 << 20))"); a.Error != nil || len(a.result()) > 2<<20 || len(a.results) != 1 {
			t.Errorf("%+v: a result of %d bytes, and %d shown", a.Error, len(a.result()), len(a.results))
		}
		h.wantTruncated(map[string]bool{
			"Says('x' * (2 << 20))":                             true,
			"'x' * (2 << 20)":                                   true,
			"Says('\\x01' * 500_000)":                           true, // as JSON
			"display('x' * (2 << 20))":                          true,
			"display({'text/html': 'x' * (5 << 20)}, raw=True)": true,
			"display('x' * (2 << 20)); raise ValueError()":      true,
			"'x' * (2 << 20);":                                  false,
			"'x' * 500_000":                                     false,
		})
		long := "raise type('E' * (10 << 20), (Exception,), {})"
		if a := h.cell(long); a.Error == nil || !strings.HasPrefix(a.Error.Name, "EEE") || len(a.Error.Name) > 2000 {
			t.Errorf("%s: an error with a name of %d bytes", long, len(a.Error.Name))
		}
		h.want("1", "1")
	})
}

// TestPythonThreads has threads of the user show things, make variables and be there
// when the cell is interrupted.
func TestPythonThreads(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		a := h.cell(`
import threading
def several(n, size):
    for _ in range(n): display(('%d' % size) * size)
threads = [threading.Thread(target=several, args=(20, 3000 + i)) for i in range(4)]
[t.start() for t in threads]
several(20, 2000)
[t.join() for t in threads]; None`)
		if len(a.results) != 100 || a.Error != nil {
			t.Errorf("%d results, %+v", len(a.results), a.Error)
		}
		// Any thread may get the signal: the interpreter's own does not block it then.
		h.want("stop = threading.Event()\nthreading.Thread(target=stop.wait).start()", "")
		for range 2 {
			h.interruptShowing()
		}
		h.want("def churn():\n    n = 0\n    while not stop.is_set():\n        n += 1; globals()['name%d' % (n % 500)] = n; globals().pop('name%d' % ((n + 250) % 500), None)\nchurning = threading.Thread(target=churn); churning.start()", "")
		for range 8 {
			if _, ok := h.variables()["stop"]; !ok {
				t.Error("a variable is missing")
			}
		}
		h.want("stop.set(); churning.join(); 2", "2")
	})
}

// interruptShowing interrupts a cell that shows things all the time.
func (h *host) interruptShowing() {
	h.t.Helper()
	h.begin(interp.KindCell, "while True: display('x' * 100000)")
	if kind, _, _ := h.frame(); kind != interp.KindResult {
		h.t.Fatalf("a frame of kind %c", kind)
	}
	h.signal()
	if a := h.end(); a.Error == nil || a.Error.Name != "KeyboardInterrupt" {
		h.t.Errorf("%+v", a.Done)
	}
}

// TestNodeAwkwardValues is TestPythonAwkwardValues.
func TestNodeAwkwardValues(t *testing.T) {
	each(t, interp.Node, func(h *host) {
		h.want("class Says { constructor(text) { this.text = text; } _repr_mimebundle_() { return { 'text/plain': this.text }; } [Symbol.for('nodejs.util.inspect.custom')]() { return 'plain'; } }; undefined", "")
		for _, code := range []string{"new Says(10n)", "new Says({ a: 1 })", "new Says(() => 1)", "new Says(null)", "new Says(Buffer.from('x'))"} {
			if a := h.cell(code); a.Error != nil || a.result() != "plain" || len(a.results) != 1 {
				t.Errorf("%s: %+v %s", code, a.Done, a.results)
			}
		}
		h.want("new Says('said')", "said")
		if a := h.cell("new Says('x'.repeat(20 << 20))"); a.Error != nil || len(a.result()) > 2<<20 || len(a.results) != 1 {
			t.Errorf("%+v: a result of %d bytes, and %d shown", a.Error, len(a.result()), len(a.results))
		}
		h.wantTruncated(map[string]bool{
			"new Says('x'.repeat(2 << 20))":                                        true,
			"Array(90).fill(Array(90).fill('x'.repeat(5000)))":                     true,
			"display(new Says('x'.repeat(2 << 20))); throw 1":                      true,
			"display({ _repr_html_() { return 'x'.repeat(5 << 20) } }); undefined": true,
			"new Says('x'.repeat(500_000))":                                        false,
			"'x'.repeat(20 << 20).length":                                          false,
		})
		for _, code := range []string{
			"const e = new Error('m'); e.name = 'E'.repeat(10 << 20); throw e",
			"throw Object.assign(new Error('m'), { name: Symbol('n') })",
			"throw Object.defineProperty(new Error('m'), 'name', { get() { throw 1 } })",
			"throw Object.defineProperty(new Error('m'), 'message', { get() { throw 1 } })",
			"throw Object.assign(new Error('m'), { message: { toString: null } })",
			"throw Object.defineProperty(new Error('m'), 'stack', { get() { throw 1 } })",
			"throw new Proxy({}, { getPrototypeOf() { throw 1 } })",
			"throw null", "throw undefined", "throw Object.create(null)",
		} {
			if a := h.cell(code); a.Error == nil || len(a.Error.Name) > 2000 {
				t.Errorf("%s: %+v", code, a.Done)
			}
		}
		for _, code := range []string{
			"new Proxy({}, { get() { throw 1 }, getPrototypeOf() { throw 2 }, ownKeys() { throw 3 } })",
			"Object.create(null)", "({ get _repr_html_() { throw 1 } })", "({ toJSON() { throw 1 } })", "({ toJSON() { return 10n } })",
			"Object.defineProperty([], 'length', { writable: false })",
		} {
			if a := h.cell(code); a.Error != nil && a.Error.Name == "" {
				t.Errorf("%s: %+v", code, a.Done)
			}
		}
		h.want("1", "1")
		h.variables()
	})
}

// TestInterruptBeforeTheCell interrupts a cell that the interpreter has not read yet,
// and one that has ended: the first ends by it, what comes after the second does not.
func TestInterruptBeforeTheCell(t *testing.T) {
	for l, name := range map[interp.Language]string{interp.Python: "KeyboardInterrupt", interp.Node: "Interrupt"} {
		t.Run(string(l), func(t *testing.T) {
			each(t, l, func(h *host) {
				group := func(sig syscall.Signal) { _ = syscall.Kill(-h.cmd.Process.Pid, sig) } // ours until Wait
				before := func(frames ...[]byte) {
					group(syscall.SIGSTOP)
					h.write(bytes.Join(frames, nil))
					if l == interp.Python {
						h.signal()
					}
					group(syscall.SIGCONT)
				}
				want := func(kind interp.Kind) {
					t.Helper()
					h.run++
					before(interp.AppendFrame(nil, kind, h.run, []byte("1")), interp.AppendFrame(nil, interp.KindInterrupt, h.run, nil))
					if a := h.end(); a.Error == nil || a.Error.Name != name || a.ExitCode != 130 {
						t.Errorf("%c: %+v", kind, a.Done)
					}
				}
				for range 3 {
					h.want("1 + 1", "2")
					want(interp.KindCell)
					h.want("1 + 1", "2")
					before(interp.AppendFrame(nil, interp.KindInterrupt, h.run, nil)) // of a cell that has ended
					h.want("1 + 1", "2")
					if l == interp.Python {
						want(interp.KindVariables)
						h.signal() // which nobody asked for
						h.want("1 + 1", "2")
					}
				}
			})
		})
	}
}

// wantTruncated checks which cells say that they have shown less than they wanted.
func (h *host) wantTruncated(of map[string]bool) {
	h.t.Helper()
	for code, want := range of {
		if a := h.cell(code); a.Truncated != want {
			h.t.Errorf("%s: truncated is %t, with a result of %d bytes and error %+v", code, a.Truncated, len(a.result()), a.Error)
		}
	}
}
