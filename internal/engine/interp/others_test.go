package interp_test

import (
	"os/exec"
	"strings"
	"testing"

	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/polltest"
)

func TestNodeCells(t *testing.T) {
	each(t, interp.Node, func(h *host) {
		h.want("1 + 1", "2")
		h.want("const x = 5; let y = 1; x * 2", "10")
		h.want("const x = 6; class K { constructor() { this.a = 1 } }", "")
		h.want("new K()", "K { a: 1 }")
		h.want("x", "6")
		h.want("{ a: 1 }", "{ a: 1 }")
		h.want("{ let z = 3; z }", "3")
		h.want("await new Promise((r) => setTimeout(() => r(x), 1))", "6")
		h.want("import path, { join, basename as b } from 'path'; import * as os from 'node:os'\nb('/x/y') + typeof os.cpus + typeof path.join + typeof join", "'yfunctionfunctionfunction'")
		h.want("(await import('url')).URL.name", "'URL'")
		h.want("const s = 'import(1)'; /import(a)/.test(s) + `${'import x from \"y\"'}`.length // import x from 'z'", "17")
		h.want("10n ** 20n", "100000000000000000000n")
		h.want("-0", "-0")
		h.want("null", "null")
		h.want("new Promise(() => {})", "Promise { <pending> }")
		h.want("undefined", "")
		h.want("process.exit()", "")
		h.want("require('child_process').execSync('echo sub; [ -e /proc/$$/fd/3 ] || [ -e /proc/$$/fd/4 ]; echo $?', { encoding: 'utf8' })", "'sub\\n1\\n'")
		h.want("console.log('a'); console.error('b')", "")
		h.printed("a\nb\n")
		h.want("setTimeout(() => { throw new Error('late') }, 1); await new Promise((r) => setTimeout(r, 20)); 1", "1")
		if got := h.out.take(); !strings.Contains(got, "Uncaught Error: late") {
			t.Errorf("printed %q", got)
		}
	})
}

func TestNodeErrors(t *testing.T) {
	each(t, interp.Node, func(h *host) {
		h.fails("function f() { throw new RangeError('r') }\nf()", "RangeError", 1, "at f (cell-1.js:1:22)")
		h.fails("throw 5", "number", 1, "Uncaught 5")
		h.fails("let =", "SyntaxError", 1, "cell-3.js:")
		h.fails("await Promise.reject(new TypeError('t'))", "TypeError", 1, "TypeError: t")
		h.fails("process.exit(3)", "Exit", 3, "")
		h.fails("setTimeout(() => process.exit(4), 1); await new Promise(() => {})", "Exit", 4, "")
		h.fails("notDefined", "ReferenceError", 1, "notDefined is not defined")
		h.want("1", "1")
	})
}

func TestNodeInterrupt(t *testing.T) {
	each(t, interp.Node, func(h *host) {
		h.asks = true
		h.want("const kept = 1", "")
		for _, code := range []string{
			"console.log('begun'); while (true) {}",
			"console.log('begun'); await new Promise(() => {})",
		} {
			if a := h.interrupt(code); a.Error == nil || a.Error.Name != "Interrupt" || a.ExitCode != 130 {
				t.Errorf("%s: %+v", code, a.Done)
			}
		}
		h.want("kept", "1")
	})
}

func TestNodeRich(t *testing.T) {
	each(t, interp.Node, func(h *host) {
		a := h.cell("display({ _repr_html_() { return '<b>' } }); ({ a: [1, null], b: 'x' })")
		if len(a.results) != 2 || string(a.results[0]["text/html"]) != `"<b>"` || string(a.results[1]["application/json"]) != `{"a":[1,null],"b":"x"}` {
			t.Errorf("%s", a.results)
		}
		a = h.cell("const cycle = {}; cycle.c = cycle; cycle")
		if _, ok := a.results[0]["application/json"]; ok || a.Error != nil {
			t.Errorf("%+v", a)
		}
	})
}

func TestNodeVariablesAndSeed(t *testing.T) {
	each(t, interp.Node, func(h *host) {
		h.want("const a = 1; let o = { x: [1, 2], m: new Map([[1, 2]]) }; var v = new Uint8Array(9); const same = [1]; function f() { return 1 }; globalThis.p = Promise.resolve(); undefined", "")
		before := h.variables()
		if before["a"].Type != "number" || before["v"].Type != "Uint8Array" || before["v"].Size < 9 || !before["p"].Opaque || before["same"].Repr != "[ 1 ]" {
			t.Errorf("%+v", before)
		}
		h.want("void o.x.push(3); v[8] = 1; function f() { return 2 }; let fresh = 0; undefined", "")
		after := h.variables()
		for _, name := range []string{"o", "v", "f"} {
			if after[name].Digest == before[name].Digest {
				t.Errorf("%s has changed, its digest has not", name)
			}
		}
		if after["same"] != before["same"] || after["fresh"].Repr != "0" {
			t.Errorf("%+v", after)
		}
		for _, name := range []string{"display", "fs", "require"} {
			if _, ok := before[name]; ok {
				t.Errorf("%s is listed", name)
			}
		}
		seed := strings.Repeat("0123456789abcdef", 4)
		h.begin(interp.KindSeed, seed)
		if d := h.end().Done; !strings.HasPrefix(strings.Join(d.Reseeded, " "), "Math.random crypto.randomBytes ") {
			t.Errorf("%+v %+v", d, d.Error)
		}
		h.want("const numbers = Array.from({ length: 1000 }, Math.random); new Set(numbers).size === 1000 && numbers.every((n) => n >= 0 && n < 1)", "true")
		h.begin(interp.KindSeed, seed)
		h.end()
		h.want("Math.random() === numbers[0]", "true")
		// What takes the place of crypto's functions does what they did.
		h.want("const c = require('crypto'); [c.randomBytes(3).length, c.randomBytes(0).length, c.randomUUID().length, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/.test(c.randomUUID())].join()", "'3,0,36,true'")
		h.want("c.randomUUID() === c.randomUUID() || c.randomBytes(9).equals(c.randomBytes(9))", "false")
		h.want("const ints = Array.from({ length: 200 }, () => c.randomInt(3, 6)); [Math.min(...ints), Math.max(...ints), c.randomInt(1)].join()", "'3,5,0'")
		h.want("const filled = c.randomFillSync(new Uint16Array(8), 2, 4); [filled[0], filled[7], filled.subarray(2, 6).some((n) => n)].join()", "'0,0,true'")
		h.want("await new Promise((r) => c.randomBytes(4, (err, b) => r([err, b.length])))", "[ null, 4 ]")
		h.want("await require('util').promisify(c.randomInt)(1)", "0")
		h.want("const { webcrypto } = c; webcrypto.getRandomValues(new Uint8Array(64)).some((n) => n) && c.getRandomValues(new Uint32Array(9)).some((n) => n) && webcrypto.randomUUID().length", "36")
		h.want("import { randomBytes } from 'crypto'; randomBytes === c.randomBytes", "true")
		h.fails("c.randomBytes(-1)", "RangeError", 1, "out of range")
		h.fails("c.randomInt(5, 5)", "RangeError", 1, "out of range")
		h.fails("c.randomFillSync(new Uint8Array(4), 5)", "RangeError", 1, "out of range")
	})
}

// wantPrinted runs code in the shell and checks what it prints and how it ends.
func (h *host) wantPrinted(code, printed string, exitCode int) {
	h.t.Helper()
	a := h.cell(code)
	if a.ExitCode != exitCode || a.Error != nil {
		h.t.Errorf("%s\nexit code %d, not %d; %+v", code, a.ExitCode, exitCode, a.Error)
	}
	h.printed(printed)
}

func TestBashCells(t *testing.T) {
	each(t, interp.Bash, func(h *host) {
		h.wantPrinted("echo hi; false", "hi\n", 1)
		h.wantPrinted("a=5; f() { echo \"f $a\"; }; declare -A m=([x]='1 2'); arr=(a 'b c'); export E=é; alias ll='echo alias'; mkdir sub; cd sub", "", 0)
		const state = "f; basename $PWD; echo ${m[x]} \"${arr[1]}\" $E $(bash -c 'echo $E'); ll"
		const want = "f 5\nsub\n1 2 b c é é\nalias\n"
		h.wantPrinted(state, want, 0)
		// What ends the shell ends the cell only.
		h.wantPrinted("exit 3; echo no", "", 3)
		h.wantPrinted(state, want, 0)
		h.wantPrinted("set -euo pipefail; set -o noclobber\nfalse\necho no", "", 1)
		h.wantPrinted("[[ $- == *e* && $- == *u* && $- == *C* ]] && shopt -qo pipefail && echo kept; set +euC +o pipefail", "kept\n", 0)
		h.wantPrinted(state, want, 0)
		h.wantPrinted("readonly R=1; sleep 1000 & s=$!; exit 0", "", 0)
		h.wantPrinted("echo $R; kill $s; wait $s 2>&-; echo $?", "1\n127\n", 0)
		h.wantPrinted("(exit 4)", "", 4)
		h.wantPrinted("cat", "", 0) // there is no input
		h.wantPrinted(strings.Repeat("#", 200000)+"\necho long", "long\n", 0)
		h.wantPrinted("\necho $LINENO; exec 2>&1\nnosuch; set -u\n\necho $nothing", "2\nbash: line 3: nosuch: command not found\nbash: line 5: nothing: unbound variable\n", 127)
		h.wantPrinted("\necho $LINENO; break", "2\n", 0) // after what ended the shell as well
		h.wantPrinted("continue; echo no", "", 0)
		// What is a cell's own is left alone when the shell is executed anew.
		h.wantPrinted("echo() { printf '> %s\\n' \"$*\"; }; exec 3>own; exit 3", "", 3)
		h.wantPrinted("echo hi; builtin echo to 3 >&3; exec 3>&-; cat own; unset -f echo; rm own", "> hi\nto 3\n", 0)
		h.wantPrinted(state, want, 0)
		a := h.cell("if then")
		if a.ExitCode != 2 {
			t.Errorf("%+v", a.Done)
		}
	})
}

func TestBashInterrupt(t *testing.T) {
	each(t, interp.Bash, func(h *host) {
		h.wantPrinted("kept=1", "", 0)
		for _, code := range []string{
			"echo begun; sleep 1000; echo no",
			"echo begun; while :; do :; done",
			"f() { while :; do sleep 0.1; done; }; echo begun; f; echo no",
		} {
			if a := h.interrupt(code); a.Error == nil || a.Error.Name != "Interrupt" || a.ExitCode != 130 {
				t.Errorf("%s: %+v", code, a.Done)
			}
		}
		h.wantPrinted("echo $kept", "1\n", 0)
	})
}

func TestBashSeed(t *testing.T) {
	each(t, interp.Bash, func(h *host) {
		seed := strings.Repeat("0123456789abcdef", 4)
		for range 2 {
			h.begin(interp.KindSeed, seed)
			if d := h.end().Done; strings.Join(d.Reseeded, " ") != "RANDOM" {
				t.Errorf("%+v", d)
			}
			h.cell("echo $RANDOM")
		}
		polltest.Eventually(t, patience, "two numbers", func() bool { return strings.Count(h.out.String(), "\n") == 2 })
		if lines := strings.Fields(h.out.take()); lines[0] != lines[1] {
			t.Errorf("one seed gives %s", lines)
		}
		h.begin(interp.KindVariables, "")
		if a := h.end(); a.Error == nil || a.Error.Name != "Unsupported" {
			t.Errorf("%+v", a.Done)
		}
	})
}

// TestFewOpenFiles starts interpreters with the fewest open files that a sandbox can
// be limited to: cells must run, and keep the interpreter's own descriptors.
func TestFewOpenFiles(t *testing.T) {
	for l, cell := range map[interp.Language]string{
		interp.Python: "import os; os.closerange(3, 40); print(len([os.open('/dev/null', 0) for _ in range(20)]))",
		interp.Node:   "console.log(Array.from({ length: 20 }, () => require('fs').openSync('/dev/null')).length)",
		interp.Bash:   "for fd in {3..40}; do eval \"exec $fd>&-\"; done; exec 45</dev/null; echo 20",
	} {
		t.Run(string(l), func(t *testing.T) {
			for _, path := range interpreters(t, l) {
				program, _ := interp.ProgramOf(l)
				limited := append([]string{"-c", `ulimit -n 64; exec "$0" "$@"`, path}, program.Args...)
				h := startCommand(t, program.Text, exec.Command("sh", limited...))
				for range 2 {
					h.want(cell, "")
					h.printed("20\n")
				}
			}
		})
	}
}
