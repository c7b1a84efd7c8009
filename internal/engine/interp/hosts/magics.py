# What cells of notebooks have besides Python: a common indentation, !commands, %magics and
# questions (x?). They are for a cell that is not Python as it stands. With IPython, it
# transforms the cell and runs the magics. Without it, this text knows the common ones.
# python.py comes after this text in the same module.

import ast
import builtins
import io
import os
import re
import sys
import types


class Cells:
    """Makes Python of the cells of notebooks."""

    def __init__(self, host):
        self.host = host
        self.ipython = None  # the shell, when it has been made
        self.known = None  # whether there is IPython

    def shell(self):
        """Returns the shell of IPython, or None if the image has no IPython."""
        if self.ipython is None and self.known is None:
            import importlib.util

            self.known = importlib.util.find_spec("IPython") is not None
            if self.known:
                try:
                    self.ipython = ipython_shell(self.host)
                except Exception:
                    self.known = False  # too old, or broken: a few magics are better than none
        return self.ipython

    def python(self, source):
        """Returns a cell as tracebacks show it, and as Python. A cell that is Python already stays as it is."""
        try:
            compile(source, "<cell>", "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | self.host.flags, True)
            return source, source
        except (SyntaxError, ValueError):
            pass
        text = without_margin(source)
        if not NOTEBOOK.search(text):
            return text, text
        shell = self.shell()
        return text, shell.transform_cell(text) if shell is not None else transformed(text)

    # Helpers that transformed cells call.

    def magic(self, name, line):
        return self.find("%", LINE_MAGICS, name)(self, line)

    def cell_magic(self, name, line, body):
        return self.find("%%", CELL_MAGICS, name)(self, line, body)

    def find(self, mark, magics, name):
        if name not in magics:
            raise NameError("there is no magic %s%s here: IPython has more, pip install ipython" % (mark, name))
        return magics[name]

    def system(self, command):
        """Runs a command whose output is that of the cell. _exit_code is its result."""
        import subprocess

        flush(Exception)
        done = subprocess.run(expanded(command, self.host.names), shell=True, executable=SHELL, stdin=subprocess.DEVNULL)
        self.host.names["_exit_code"] = done.returncode

    def lines_of(self, command):
        """Runs a command and returns the lines of its output."""
        import subprocess

        flush(Exception)
        done = subprocess.run(
            expanded(command, self.host.names), shell=True, executable=SHELL, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.host.names["_exit_code"] = done.returncode
        return Lines(done.stdout.decode("utf-8", "backslashreplace").splitlines())

    def help(self, name, source):
        """Prints what is known of an object."""
        try:
            value = eval(name, self.host.names)
        except Exception:
            print("Object `%s` not found." % name)
            return
        import inspect

        try:
            print("Signature: %s%s" % (name, inspect.signature(value)))
        except (TypeError, ValueError):
            pass
        print("Type: %s" % type(value).__name__)
        if source:
            try:
                print("Source:\n" + inspect.getsource(value))
                return
            except (TypeError, OSError):
                pass
        print("Docstring: %s" % (inspect.getdoc(value) or "<no docstring>"))


# Lines that only notebooks have. Other cells do not need IPython, whose import takes half a second.
NOTEBOOK = re.compile(r"^\s*[%!?]|=\s*[%!]|\?\s*$", re.MULTILINE)

SHELL = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"


class Lines(list):
    """The lines of a command's output, as one text in s and n."""

    @property
    def n(self):
        return "\n".join(self)

    @property
    def s(self):
        return " ".join(self)


def expanded(command, names):
    """Puts values of variables in the place of {expression} and $name. What is no value stays, as the shell has such
    words too."""

    def braces(match):
        try:
            return str(eval(match.group(1), names))
        except Exception:
            return match.group(0)

    def dollar(match):
        if match.group(1) == "$":
            return "$"
        return str(names[match.group(1)]) if match.group(1) in names else match.group(0)

    command = re.sub(r"\{([^{}]+)\}", braces, command)
    return re.sub(r"\$(\$|[A-Za-z_][A-Za-z0-9_]*)", dollar, command)


def without_margin(source):
    """Returns a cell without the indentation of its first line."""
    lines = source.splitlines(True)
    first = next((line for line in lines if line.strip()), "")
    margin = first[: len(first) - len(first.lstrip(" \t"))]
    if not margin:
        return source
    return "".join(line[len(margin):] if line.startswith(margin) else line.lstrip(" \t") if not line.strip() else line for line in lines)


ASSIGNED = re.compile(r"^(\s*)([A-Za-z_][\w.\[\]'\", ]*?)\s*=\s*(!|%)(?!=)(.*)$")
ASKED = re.compile(r"^\s*(\?{0,2})\s*([A-Za-z_][\w.]*)\s*(\?{0,2})\s*$")


def transformed(source):
    """Returns a cell as Python, without IPython."""
    stripped = source.lstrip()
    if stripped.startswith("%%"):
        head, _, body = stripped.partition("\n")
        name, _, line = head[2:].partition(" ")
        return "__ramet_cells__.cell_magic(%r, %r, %r)\n" % (name.strip(), line.strip(), body)
    out, pending = [], ""
    for line in source.splitlines(True):
        if not pending:
            new = transformed_line(line.rstrip("\n"))
            if new is not None:
                out.append(new + "\n")
                continue
        pending += line
        if is_whole(pending):
            out.append(pending)
            pending = ""
    return "".join(out) + pending


def transformed_line(line):
    """Returns a line that begins a statement as Python, or None if it is Python already."""
    text = line.lstrip()
    indent = line[: len(line) - len(text)]
    if text.startswith("!!"):
        return "%s__ramet_cells__.lines_of(%r)" % (indent, text[2:])
    if text.startswith("!"):
        return "%s__ramet_cells__.system(%r)" % (indent, text[1:])
    if text.startswith("%"):
        name, _, rest = text[1:].partition(" ")
        return "%s__ramet_cells__.magic(%r, %r)" % (indent, name, rest.strip())
    match = ASSIGNED.match(line)
    if match:
        indent, target, mark, rest = match.groups()
        if mark == "!":
            return "%s%s = __ramet_cells__.lines_of(%r)" % (indent, target, rest)
        name, _, rest = rest.partition(" ")
        return "%s%s = __ramet_cells__.magic(%r, %r)" % (indent, target, name, rest.strip())
    match = ASKED.match(line)
    if match and (match.group(1) or match.group(3)):
        return "%s__ramet_cells__.help(%r, %r)" % (indent, match.group(2), "??" in (match.group(1), match.group(3)))
    return None


def is_whole(text):
    """Reports whether no bracket, string or line goes on behind a text."""
    import tokenize

    if text.rstrip("\n").endswith("\\"):
        return False
    try:
        for _ in tokenize.generate_tokens(io.StringIO(text.lstrip(" \t")).readline):
            pass
    except tokenize.TokenError as e:
        return "EOF in multi-line" not in str(e) and "unterminated triple" not in str(e) and "unexpected EOF" not in str(e)
    except (SyntaxError, ValueError):
        pass
    return True


# The magics that are known without IPython.


def run_python(cells, source):
    return cells.host.evaluate(source, "<cell %d>" % cells.host.count)


def magic_pip(cells, line):
    cells.system("%s -m pip %s" % (quoted(sys.executable), line))
    import importlib

    importlib.invalidate_caches()


def magic_cd(cells, line):
    quiet = line.startswith("-q")
    where = expanded((line[2:] if quiet else line).strip().strip("'\""), cells.host.names)
    os.chdir(os.path.expanduser(where or "~"))
    if not quiet:
        print(os.getcwd())


def magic_env(cells, line):
    if not line:
        return dict(os.environ)
    name, mark, value = line.partition("=")
    if not mark:
        return os.environ[name.strip()]
    os.environ[name.strip()] = expanded(value.strip(), cells.host.names)
    print("env: %s=%s" % (name.strip(), os.environ[name.strip()]))


def magic_time(cells, line, body=None):
    import time

    cpu, wall = time.process_time(), time.perf_counter()
    value = run_python(cells, line if body is None else body)
    print("CPU times: %.3g s\nWall time: %.3g s" % (time.process_time() - cpu, time.perf_counter() - wall))
    return value


def magic_timeit(cells, line, body=None):
    import timeit

    options = {"n": 0, "r": 7}
    option = re.match(r"-([nr])\s*(\d+)\s*", line)
    while option:
        options[option.group(1)], line = int(option.group(2)), line[option.end():]
        option = re.match(r"-([nr])\s*(\d+)\s*", line)
    timer = timeit.Timer(line if body is None else body, globals=cells.host.names)
    number = options["n"] or timer.autorange()[0]
    best = min(timer.repeat(options["r"], number)) / number
    print("best of %d runs, %d loops each: %.3g s per loop" % (options["r"], number, best))


def magic_nothing(cells, line, body=None):
    """Is for settings that have no meaning here: figures are always shown."""


def magic_who(cells, line):
    print("   ".join(name for name in cells.host.names if name not in cells.host.own and not name.startswith("_")))


def cell_shell(program):
    def run(cells, line, body):
        import subprocess

        flush(Exception)
        done = subprocess.run([program, "-c", body], stdin=subprocess.DEVNULL)
        cells.host.names["_exit_code"] = done.returncode
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, program)

    return run


def cell_writefile(cells, line, body):
    name = line.split()[-1] if line else ""
    mode = "a" if line.startswith("-a") else "w"
    with open(name, mode) as f:
        f.write(body)
    print("Writing %s" % name)


def cell_capture(cells, line, body):
    import contextlib

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        run_python(cells, body)
    if line:
        cells.host.names[line.split()[0]] = types.SimpleNamespace(stdout=out.getvalue(), stderr=err.getvalue())


def quoted(word):
    import shlex

    return shlex.quote(word)


LINE_MAGICS = {
    "pip": magic_pip, "cd": magic_cd, "env": magic_env, "time": magic_time, "timeit": magic_timeit, "who": magic_who,
    "pwd": lambda cells, line: os.getcwd(), "ls": lambda cells, line: cells.system("ls " + line), "sx": lambda cells, line: cells.lines_of(line),
    "matplotlib": magic_nothing, "config": magic_nothing, "load_ext": magic_nothing, "reload_ext": magic_nothing, "autoreload": magic_nothing,
}
CELL_MAGICS = {
    "bash": cell_shell("bash"), "sh": cell_shell("sh"), "script": lambda cells, line, body: cell_shell(line.split()[0])(cells, "", body),
    "time": magic_time, "timeit": magic_timeit, "writefile": cell_writefile, "file": cell_writefile, "capture": cell_capture,
}


def ipython_shell(host):
    """Makes the shell of IPython, whose names are those of the cells."""
    from IPython.core.displaypub import DisplayPublisher
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    class Publisher(DisplayPublisher):
        def publish(self, data, metadata=None, *args, **options):
            host.show(data)

    class Shell(InteractiveShell):
        def showtraceback(self, *args, **options):
            raise  # the exception that a magic would only print

        def system(self, command):
            host.cells.system(self.var_expand(command, depth=1))

        def enable_gui(self, gui=None):
            pass

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.autoindent = False
    config.InteractiveShell.cache_size = 0
    before = sys.displayhook, sys.excepthook, builtins.display
    names = {name: host.names.get(name) for name in ("exit", "quit", "open")}
    shell = Shell.instance(config=config, user_module=host.main, user_ns=host.names, display_pub_class=Publisher)
    sys.displayhook, sys.excepthook, builtins.display = before
    for name, value in names.items():  # its own are for a terminal
        if value is None:
            host.names.pop(name, None)
        else:
            host.names[name] = value
    shell.register_magic_function(lambda line: None, "line", "matplotlib")  # figures are always shown
    shell.ast_node_interactivity = "last_expr"
    host.own |= set(host.names)  # what it defined is not the user's
    return shell
