package interp_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/engine/interp"
)

func TestPythonCells(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		h.want("1+1", "2")
		h.want("x = [1]\nx.append(2)\nx", "[1, 2]")
		h.want("x;", "")
		h.want("x; # nothing", "")
		h.want("None", "")
		h.want("_", "[1, 2]")
		h.want("'a;b' # c;", "'a;b'")
		h.want("import asyncio\nasync def f(n):\n    await asyncio.sleep(0)\n    return n\nawait f(1)\nawait f(7)", "7")
		h.want("async with asyncio.Lock():\n    y = 4\ny", "4")
		h.want("asyncio.run(f(3))", "3")
		h.want("from __future__ import annotations", "")
		h.want("def g(a: not_defined): return 1\ng(0)", "1")
		h.want("class C:\n    pass\nimport pickle\ntype(pickle.loads(pickle.dumps(C()))) is C", "True")
		h.want("__name__", "'__main__'")
		h.want("import sys; sys.path[0] == '' and sys.argv == ['']", "True")
		if a := h.want("len('é')", "1"); a.ExecutionCount != 16 {
			t.Errorf("execution count is %d", a.ExecutionCount)
		}
	})
}

func TestPythonErrors(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		h.fails("def f(n):\n    return 1 / n\nf(0)", "ZeroDivisionError", 1, "line 2, in f\n    return 1 / n\n")
		h.fails("f(0)", "ZeroDivisionError", 1, `File "<cell 1>", line 2, in f`)
		h.fails("let me", "SyntaxError", 1, "    let me\n")
		h.fails("async def g():\n    raise KeyError('k')\nawait g()", "KeyError", 1, "raise KeyError('k')")
		h.fails("try:\n    1/0\nexcept Exception as e:\n    raise ValueError('v') from e", "ValueError", 1, "The above exception was the direct cause")
		h.fails("class E(Exception):\n    def __str__(self): raise TypeError\nraise E", "E", 1, "E")
		h.fails("class R:\n    def __repr__(self): raise OSError('r')\nR()", "OSError", 1, "raise OSError('r')")
		h.fails("def r(): r()\nr()", "RecursionError", 1, "RecursionError")
		h.fails("input('name? ')", "EOFError", 1, "standard input")
		h.fails("import sys; sys.exit(3)", "SystemExit", 3, "sys.exit(3)")
		h.fails("sys.exit('bye')", "SystemExit", 1, "bye")
		h.want("sys.exit()", "")
		h.want("exit(0)", "")
		h.want("2", "2")
	})
}

// TestPythonPointsAtTheMistake: the last line needs no end for that.
func TestPythonPointsAtTheMistake(t *testing.T) {
	cells := regexp.MustCompile(`<cell \d+>`)
	each(t, interp.Python, func(h *host) {
		var told []string
		for _, code := range []string{"x = 2\nx + 1/0 + 3", "x = 2\nx + 1/0 + 3\n"} {
			a := h.fails(code, "ZeroDivisionError", 1, "    x + 1/0 + 3\n")
			told = append(told, cells.ReplaceAllString(a.Error.Traceback, "<cell>"))
		}
		if told[0] != told[1] {
			h.t.Errorf("without an end of line:\n%s\nwith one:\n%s", told[0], told[1])
		}
		if strings.Contains(told[1], "^") && !strings.Contains(told[0], "\n        ~^~\n") { // Python 3.11 and later
			h.t.Errorf("it points elsewhere:\n%s", told[0])
		}
	})
}

func TestPythonOutput(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		h.want("import sys, os, subprocess\nprint('a'); print('b', file=sys.stderr); os.write(1, b'c\\n'); sys.stdout.write('d')", "1")
		h.printed("a\nb\nc\nd")
		h.want("subprocess.run(['sh', '-c', 'echo sub; echo err >&2; ls /proc/self/fd | wc -l']).returncode", "0")
		h.printed("sub\nerr\n4\n") // it has none of our descriptors: those are 0, 1, 2 and the directory
		h.want("if os.fork() == 0:\n    print('child')\n    display(1)\nelse:\n    os.wait()", "")
		h.printed("child\n")
		h.want("print('\\udc80ü')", "")
		h.printed("\\udc80ü\n")
		h.want("sys.stdout.close()", "")
		h.want("sys.stdout = sys.__stderr__; os.closerange(3, 100)", "")
		h.want("print('still')", "")
		h.printed("still\n")
	})
}

func TestPythonInterrupt(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		h.want("kept = 1", "")
		for _, code := range []string{
			"print('begun')\nwhile True: pass",
			"import time\nprint('begun')\ntime.sleep(1000)",
			"import asyncio\nprint('begun')\nawait asyncio.sleep(1000)",
			"print('begun')\nasyncio.run(asyncio.sleep(1000))",
			"import subprocess\nprint('begun')\nsubprocess.run(['sleep', '1000'])",
		} {
			a := h.interrupt(code)
			if a.Error == nil || a.Error.Name != "KeyboardInterrupt" || a.ExitCode != 130 {
				t.Errorf("%s: %+v", code, a.Done)
			}
		}
		h.want("kept", "1")
		// One that comes when nothing runs is nothing.
		h.want("import os, signal; os.kill(0, 0)", "")
		h.want("await asyncio.sleep(0, 5)", "5")
	})
}

// TestPythonRich needs no library: a module that has the name of one will do for
// what is done when it is imported.
func TestPythonRich(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		form := func(a *answer, i int, mime string) string {
			t.Helper()
			var s string
			if i >= len(a.results) {
				t.Fatalf("there are only %d results", len(a.results))
			}
			if raw, ok := a.results[i][mime]; ok {
				if err := json.Unmarshal(raw, &s); err != nil {
					s = string(raw)
				}
			}
			return s
		}
		a := h.cell(`
class Rich:
    def __repr__(self): return 'rich'
    def _repr_html_(self): return '<b>'
    def _repr_png_(self): return b'\x89PNG'
    def _repr_json_(self): return {'a': [1, None]}
    def _repr_latex_(self): raise ValueError
    def _repr_markdown_(self): return None
class Bundle:
    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/plain': 'b', 'image/svg+xml': '<svg/>'}, {}
display(Bundle(), 1)
Rich()`)
		if len(a.results) != 3 || a.result() != "rich" {
			t.Fatalf("%+v", a)
		}
		for _, c := range []struct {
			i          int
			mime, want string
		}{
			{0, "text/plain", "b"}, {0, "image/svg+xml", "<svg/>"}, {1, "text/plain", "1"},
			{2, "text/html", "<b>"}, {2, "image/png", "iVBORw=="[:4] + "Rw=="}, {2, "application/json", `{"a": [1, null]}`}, {2, "text/latex", ""}, {2, "text/markdown", ""},
		} {
			if got := form(a, c.i, c.mime); got != c.want {
				t.Errorf("result %d as %s is %q, not %q", c.i, c.mime, got, c.want)
			}
		}
		a = h.cell("class Nan:\n    def _repr_json_(self): return float('nan')\nNan()")
		if _, ok := a.results[0]["application/json"]; ok || a.Error != nil {
			t.Errorf("%+v", a)
		}
		a = h.cell("class Huge:\n    def _repr_html_(self): return 'x' * (20 << 20)\nHuge()")
		if got := form(a, 0, "text/plain"); form(a, 0, "text/html") != "" || !strings.Contains(got, "left out") {
			t.Errorf("plain text is %q", got)
		}
		if n := len(h.cell("'x' * (20 << 20)").result()); n > 2<<20 {
			t.Errorf("the text of a result has %d bytes", n)
		}
	})
}

func TestPythonResultsComeAfterWhatWasPrinted(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		h.want(`
import os, sys
r, w = os.pipe()
os.set_blocking(r, False)
kept, out = sys.stdout, os.fdopen(w, 'w')
sys.stdout = out
print('no end of line', end='')
display(1)
sys.stdout = kept
os.read(r, 100)`, "b'no end of line'")
	})
}

func TestPythonSeed(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		h.want("import random\nrandom.seed(1)\na = random.random()\nrandom.seed(1)", "")
		h.begin(interp.KindSeed, strings.Repeat("0123456789abcdef", 4))
		if d := h.end().Done; len(d.Reseeded) == 0 || d.Reseeded[0] != "random" || len(d.Failed) > 0 {
			t.Errorf("%+v", d)
		}
		h.want("a == random.random()", "False")
	})
}

// numpy.random is the same generator as random: with one seed for both, one of
// their numbers tells the other.
func TestPythonSeedsDiffer(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		h.want(`
import random, sys, types
numpy = types.ModuleType('numpy')
numpy.random = types.ModuleType('numpy.random')
numpy.random.seed = lambda words: globals().update(seed=sum(w << 32 * i for i, w in enumerate(words)))
sys.modules.update({'numpy': numpy, 'numpy.random': numpy.random})`, "")
		h.begin(interp.KindSeed, strings.Repeat("0123456789abcdef", 4))
		if d := h.end().Done; len(d.Reseeded) < 2 || len(d.Failed) > 0 {
			t.Errorf("%+v", d)
		}
		h.want("seed > 1 << 64, random.getstate() == random.Random(seed).getstate()", "(True, False)")
	})
}

// TestPythonRest looks at what an interpreter says of itself between cells: a fork
// leaves one asleep in which nothing of the user's can run.
func TestPythonRest(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		t := h.t
		for _, c := range []struct {
			code       string
			handled    bool
			generators string
		}{
			{"1", false, ""},
			{"import random", false, "random"},
			{"import signal\nold = signal.signal(signal.SIGALRM, lambda *_: random.random())", true, "random"},
			{"2", true, "random"},
			{"signal.signal(signal.SIGALRM, old); None", false, "random"},
			{"signal.signal(signal.SIGUSR1, signal.SIG_IGN); None", false, "random"},
			{"mine = signal.signal(signal.SIGINT, signal.default_int_handler)", true, "random"},
			{"signal.signal(signal.SIGINT, mine); None", false, "random"},
			{"import _thread; _thread.get_ident = None; signal.signal(signal.SIGALRM, lambda *_: 1); None", true, "random"},
			{"signal.signal(signal.SIGALRM, old); None", false, "random"},
			{"del signal.getsignal", true, ""},
		} {
			h.cell(c.code)
			if got := strings.Join(h.rest.Generators, " "); h.rest.Handled != c.handled || !strings.HasPrefix(got, c.generators) { // others may be loaded at the start
				t.Errorf("after %q signals are handled: %v, with %q", c.code, h.rest.Handled, got)
			}
		}
	})
}

func TestPythonVariables(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		h.want(`
import datetime, collections, threading
def f(x): return x + 1
class P:
    def __init__(self, v): self.v = v
    def go(self): return self.v
n, s, l, d = 1, 'text', [1, 2], {'a': {1, 2}}
l2 = [l]; l2.append(l2)
p, q = P(1), P(1)
when = datetime.date(2020, 1, 2)
c = collections.Counter('aab')
lock = threading.Lock()
big = list(range(1000000))
_hidden = 1`, "")
		before := h.variables()
		again := h.variables()
		for name, v := range before {
			if again[name] != v {
				t.Errorf("%s was %+v and is %+v", name, v, again[name])
			}
		}
		if v := before["s"]; v.Type != "str" || v.Repr != "'text'" || v.Size <= 4 {
			t.Errorf("s is %+v", v)
		}
		if before["p"].Digest != before["q"].Digest {
			t.Error("two equal objects differ")
		}
		if !before["lock"].Opaque || !before["big"].Partial {
			t.Errorf("%+v %+v", before["lock"], before["big"])
		}
		for _, name := range []string{"_hidden", "display", "ramet_host", "Host"} {
			if _, ok := before[name]; ok {
				t.Errorf("%s is listed", name)
			}
		}
		h.want(`
def f(x): return x + 2
class P:
    def __init__(self, v): self.v = v
    def go(self): return -self.v
n, s, l = 2, 'texT', l + [3]
d['a'].add(3)
p.v = 2
c['z'] += 1
when = datetime.date(2020, 1, 2)
q = q
new = None`, "")
		after := h.variables()
		for _, name := range []string{"f", "P", "n", "s", "l", "d", "p", "c"} {
			if after[name].Digest == before[name].Digest {
				t.Errorf("%s has changed, its digest has not", name)
			}
		}
		for _, name := range []string{"when", "q", "datetime"} {
			if after[name].Digest != before[name].Digest {
				t.Errorf("%s has not changed, its digest has", name)
			}
		}
		if _, ok := after["new"]; !ok {
			t.Error("a new variable is missing")
		}
	})
}
