package interp_test

import (
	"strings"
	"testing"

	"ramet.dev/ramet/internal/engine/interp"
	"ramet.dev/ramet/internal/polltest"
)

// TestPythonNotebooks has cells as notebooks have them, with IPython where the interpreter has it.
func TestPythonNotebooks(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		h.want("\n    x = 20\n    x + 1\n    ", "21")
		h.want("%matplotlib inline\nimport math\nmath.floor(2.5)", "2")
		h.want("!echo hi", "")
		h.printed("hi\n")
		h.want("name = 'x y'\n!echo {name} $name $HOME_OF_NOBODY", "")
		h.printed("x y x y\n")
		h.want("out = !echo a; echo b\nlist(out)", "['a', 'b']")
		h.want("for i in range(2):\n    !echo $i\n'end'", "'end'")
		h.printed("0\n1\n")
		h.want("%cd -q /\nimport os\nos.getcwd()", "'/'")
		h.want("%%bash\nx=1\necho $((x+1))", "")
		h.printed("2\n")
		h.want("%timeit -n 1 -r 1 1+1", "")
		h.out.take()
		h.want("%time y = 3\ny", "3")
		h.out.take()
		h.want("'%d !x' % 3", "'3 !x'")
		h.want("z = (7\n% 4)\nz", "3")
		h.want("'''\n%cd /tmp\n!echo no\n'''", `'\n%cd /tmp\n!echo no\n'`)
		h.want("%%capture said\nprint('hidden')", "")
		h.want("said.stdout", `'hidden\n'`)
		h.want("x?", "")
		polltest.Eventually(t, patience, "help", func() bool { return strings.Contains(h.out.String(), "int") })
		h.out.take()
		h.want("_exit_code", "0")
		h.want("exit(0)", "")
		h.fails("%%bash\nexit 3", "subprocess.CalledProcessError", 1, "exit status 3")
		h.fails("if x\n    1", "SyntaxError", 1, "if x\n")
		h.fails("!false\nraise KeyError(_exit_code)", "KeyError", 1, "raise KeyError")
	})
}

// TestPythonLoop has cells that await run in their loop from the first line.
func TestPythonLoop(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		h.want("import asyncio\nasync def f(i):\n    await asyncio.sleep(0.01); return i\ntasks = [asyncio.create_task(f(i)) for i in range(3)]\nawait asyncio.gather(*tasks)", "[0, 1, 2]")
		h.want("t = asyncio.create_task(f(1)); await t", "1")
		h.want("loop = asyncio.get_running_loop()\nawait loop.run_in_executor(None, sum, [1, 2])", "3")
		h.want("x = await f(7)\ny = asyncio.create_task(f(8))\nawait y + x", "15")
		h.want("l2 = asyncio.get_running_loop()\nawait asyncio.sleep(0)\nloop is l2", "True")
		h.want("z = asyncio.create_task(asyncio.sleep(0.2, 'done'))\nawait asyncio.sleep(0)", "")
		h.want("await z", "'done'")
		h.want("asyncio.run(f(5))", "5")
		h.fails("await f(1)\n1/0", "ZeroDivisionError", 1, `File "<cell 9>", line 2`)
	})
}

// TestPythonShell asks for IPython where the interpreter has it.
func TestPythonShell(t *testing.T) {
	each(t, interp.Python, func(h *host) {
		if h.cell("import importlib.util; importlib.util.find_spec('IPython') is not None").result() == "False" {
			h.want("get_ipython()", "")
			return
		}
		h.want("get_ipython() is not None", "True")
		h.want("import IPython; IPython.get_ipython() is get_ipython()", "True")
		h.want("%lsmagic\n1", "1")
		h.out.take()
		h.want("from IPython.display import display, HTML\ndisplay(HTML('<b>x</b>'))", "")
		h.want("%%html\n<i>y</i>", "")
		h.want("1;", "")
		h.want("2", "2")
		h.want("import sys; sys.excepthook is sys.__excepthook__", "True")
	})
}
