# The Python interpreter of a context: it runs the cells that it is sent, in the
# module __main__, and keeps what they define. Python 3.8 and later; nothing but
# the standard library. See the package comment of internal/engine/interp for the frames.
# variables.py comes before this text in the same module.

import _thread
import ast
import builtins
import fcntl
import io
import json
import linecache
import os
import signal
import sys
import traceback
import types

HOST = "<ramet>"  # the file name of this text, to leave it out of tracebacks
get_ident = _thread.get_ident  # user code may replace that of the module
MAX_FRAME = 8 << 20  # bytes of a frame's payload
MAX_TEXT = 1 << 20  # characters of a text representation, and twice as many bytes of JSON
MAX_TRACEBACK = 256 << 10  # characters


class Host:
    """The state of the interpreter besides what the user's code has."""

    def __init__(self):
        # Programs that close descriptors close low ones.
        self.requests, self.answers = move_up(3), move_up(4)
        self.pid = os.getpid()
        self.run = 0  # the number of the request that is served
        self.running = False  # user code runs, which an interrupt may end
        self.early = False  # an interrupt came while none did
        self.lock = _thread.allocate_lock()  # held by who writes an answer
        self.writer = 0  # the thread that holds it
        self.waiting = []  # frames that come while that thread writes another one
        self.main_thread = get_ident()
        self.sending = False  # the main thread sends a frame
        self.late = False  # and an interrupt came meanwhile
        self.count = 0
        self.flags = 0  # of "from __future__" statements so far
        self.rested = None  # what was last said of it
        self.loop = None
        self.shown = set()  # ids of the figures that the cell has shown
        self.cut = False  # the cell has shown more than was sent
        self.cells = Cells(self)
        main = types.ModuleType("__main__")
        main.__builtins__ = builtins
        sys.modules["__main__"] = main
        self.main = main
        self.names = main.__dict__
        self.own = set(self.names)

    def receive(self):
        header = self.read(20)
        kind, run, size = header[:1], int(header[2:10], 16), int(header[11:19], 16)
        return kind, run, self.read(size)

    def request(self):
        """Returns the next request. What an interrupt asks for on the way has ended."""
        kind = b"i"
        while kind == b"i":
            kind, run, payload = self.receive()
        return kind, run, payload

    def read(self, size):
        parts = []
        while size:
            part = os.read(self.requests, min(size, 1 << 16))
            if not part:
                os._exit(0)  # nobody is left to ask for anything
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def send(self, kind, message):
        """Sends one frame, unless this is a process that user code forked. Threads of
        the user's may call it, and what runs between any two steps of this: handlers
        of signals and finalizers."""
        if os.getpid() != self.pid:
            return
        frame = self.frame(kind, message)
        me = get_ident()
        if self.writer == me:
            self.waiting.append(frame)  # after the one that is being written
            return
        if me != self.main_thread:
            self.write(me, frame)
            return
        if kind in b"hd":
            rest = self.rest()
            if rest != self.rested:
                frame, self.rested = self.frame(b"r"[0], rest) + frame, rest
        # An interrupt must not leave half a frame. It cannot be blocked, as another
        # thread may get the signal.
        before, self.sending = self.sending, True
        try:
            self.write(me, frame)
        finally:
            self.sending = before
        if self.late and not self.sending:
            self.late = False
            raise KeyboardInterrupt

    def write(self, me, frame):
        with self.lock:
            self.writer = me
            try:
                self.waiting.append(frame)
                while self.waiting:
                    left = memoryview(self.waiting.pop(0))
                    while left:
                        left = left[os.write(self.answers, left):]
            finally:
                self.writer = 0

    def frame(self, kind, message):
        payload = json.dumps(message, allow_nan=False).encode()
        return b"%c %08x %08x\n%s" % (kind, self.run, len(payload), payload)

    def rest(self):
        """How this is until the next request, see Rest in message.go."""
        try:
            # Timers need a handler to run code.
            handlers = [signal.getsignal(number) for number in signal.valid_signals()]
            handled = any(callable(handler) and handler != self.interrupt for handler in handlers)
            return {"handled": handled, "generators": [name for name, _ in generators()]}
        except Exception:
            return {"handled": True, "generators": []}  # user code has changed what is asked here

    def serve(self):
        while True:
            kind, self.run, payload = self.request()
            try:
                if kind == b"x":
                    done = self.execute(payload.decode("utf-8", "replace"))
                elif kind == b"q":
                    done = self.execute(payload.decode("utf-8", "replace"))
                    self.count -= 1
                elif kind == b"v":
                    self.begin()
                    done = {"variables": Variables(self).all()}
                elif kind == b"s":
                    done = reseed(int(payload, 16))
                else:
                    done = failure(ValueError("unknown request"))
            except BaseException as e:  # an interrupt, or what threads of the user's did meanwhile
                done = failure(e)
            self.running = False
            if os.getpid() != self.pid:
                flush()
                os._exit(0)  # a process that user code forked and did not end
            self.send(b"d"[0], done)
            self.run = 0

    def begin(self):
        """Has interrupts end what follows. The signal of one comes after it was asked
        for: so one that came before this is for this if it is asked for behind it."""
        self.running = True
        if self.early:
            import termios

            self.early = False
            unread = fcntl.ioctl(self.requests, termios.FIONREAD, bytes(4))
            if any(unread) and self.receive()[:2] == (b"i", self.run):
                raise KeyboardInterrupt

    def interrupt(self, *_):
        if os.getpid() != self.pid:  # forked by user code
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        elif self.running and self.sending:
            self.late = True
        elif self.running:
            raise KeyboardInterrupt
        else:
            self.early = True

    # Cells

    def execute(self, source):
        self.count += 1
        self.shown.clear()
        self.cut = False
        done = {"execution_count": self.count, "exit_code": 0}
        try:
            self.begin()
            value = self.evaluate(source, "<cell %d>" % self.count)
            if value is not None:
                done["result"] = self.show_value(value)
            self.show_figures()
            self.running = False
        except SystemExit as e:
            self.running = False
            done["exit_code"] = exit_code(e)
            if done["exit_code"]:
                done.update(failure(e, done["exit_code"]))
        except BaseException as e:
            self.running = False
            done.update(failure(e))
        if self.cut:
            done["truncated"] = True
        flush()
        return done

    def evaluate(self, source, name):
        """Runs a cell and returns the value of its last expression, or None."""
        shown, source = self.cells.python(source)
        lines = shown.splitlines(True)
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"  # as those of files: tracebacks of 3.11 and 3.12 point beside the mark without it
        linecache.cache[name] = (len(shown), None, lines, name)
        flags = self.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        tree = compile(source, name, "exec", ast.PyCF_ONLY_AST | flags, True)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not is_silenced(source):
            last = ast.Expression(tree.body.pop().value)
        codes = []
        if tree.body:
            codes.append(compile(tree, name, "exec", flags, True))
            self.remember_future(codes[0])
        if last is not None:
            codes.append(compile(last, name, "eval", self.flags | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, True))
        if any(code.co_flags & 0x80 for code in codes):  # CO_COROUTINE
            value = self.wait(self.in_loop(codes))  # from its first line on
        else:
            for code in codes:
                value = eval(code, self.names)
        return None if last is None else value

    async def in_loop(self, codes):
        """Runs the codes of a cell that awaits, and returns the value of the last one."""
        for code in codes:
            value = eval(code, self.names)
            if code.co_flags & 0x80:
                value = await value
        return value

    def remember_future(self, code):
        import __future__

        for feature in __future__.all_feature_names:
            flag = getattr(__future__, feature).compiler_flag
            self.flags |= code.co_flags & flag

    def wait(self, value):
        """Waits for a coroutine, in a loop that lives as long as the context."""
        if not isinstance(value, types.CoroutineType):
            return value
        import asyncio

        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(value)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                try:
                    self.loop.run_until_complete(task)
                except BaseException:
                    pass  # what matters is what ended the cell
            raise

    # Results

    def show_value(self, value):
        """Shows the value of a cell's last expression and returns its text."""
        builtins._ = value
        bundle = self.bundle(value)
        self.show(bundle)
        return bundle["text/plain"]

    def display(self, *objects, **options):
        """Shows objects in their richest form: HTML, images and so on."""
        for o in objects:
            if options.get("raw") and isinstance(o, dict):
                self.show(o)
            else:
                self.show(self.bundle(o))

    def show(self, bundle):
        clean, left, note = {}, MAX_FRAME // 2, ""
        for mime, data in bundle.items():
            if isinstance(data, (bytes, bytearray)):
                data = base64_of(data)
            try:
                size = len(json.dumps(data, allow_nan=False))
            except (TypeError, ValueError, RecursionError):
                continue  # it cannot be sent as JSON
            if size > left:
                note += "[%s of %d bytes was left out: results are limited]" % (mime, size)
                self.cut = True
                continue
            left -= size
            clean[str(mime)] = data
        if note:
            clean["text/plain"] = str(clean.get("text/plain", "")) + note
        if clean:
            flush(Exception)  # what was printed before, and has no end of line, comes first
            self.send(b"m"[0], clean)

    def bundle(self, value):
        """Returns an object's forms, by media type."""
        found = {}
        method = method_of(value, "_repr_mimebundle_")
        if method:
            try:
                got = method(include=None, exclude=None)
            except Exception:
                got = None  # as Jupyter does, the other forms are tried
            if isinstance(got, tuple):
                got = got[0] if got else None
            if isinstance(got, dict):
                found.update(got)
        for name, mime in REPRS:
            if mime in found or mime == "image/jpeg" and "image/png" in found:
                continue
            method = method_of(value, name)
            if not method:
                continue
            try:
                got = method()
            except Exception:
                continue
            if isinstance(got, tuple):  # with metadata
                got = got[0] if got else None
            if got is not None:
                found[mime] = got
        if is_figure(value) and "image/png" not in found:
            found["image/png"] = png_of(value)
            self.shown.add(id(value))
        found.update(described(value))
        text = found.get("text/plain")
        if not isinstance(text, str):
            text = repr(value)
        found["text/plain"] = fitting(text)
        if found["text/plain"] is not text:
            self.cut = True
        return found

    def show_figures(self):
        """Shows and closes the figures that are open in pyplot."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None:
            return
        from matplotlib._pylab_helpers import Gcf

        for manager in Gcf.get_all_fig_managers():
            figure = manager.canvas.figure
            if id(figure) not in self.shown:
                self.show(dict(described(figure), **{"image/png": png_of(figure), "text/plain": repr(figure)}))
        pyplot.close("all")


REPRS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_latex_", "text/latex"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
    ("_repr_pdf_", "application/pdf"),
)


def method_of(value, name):
    """Returns a method of an object that is no class, and does not invent methods."""
    if isinstance(value, type):
        return None
    try:
        if callable(getattr(value, "_ramet_does_not_exist_", None)):
            return None  # a mock object has everything
        method = getattr(value, name, None)
    except Exception:
        return None
    return method if callable(method) else None


def fitting(text):
    """Cuts a text such that a frame has room for it, however its JSON is escaped."""
    text = short(text, MAX_TEXT)
    while len(json.dumps(text)) > 2 * MAX_TEXT:
        text = short(text, len(text) // 2)
    return text


def base64_of(data):
    import base64

    return base64.b64encode(bytes(data)).decode()


def is_figure(value):
    figure = sys.modules.get("matplotlib.figure")
    return figure is not None and isinstance(value, figure.Figure)


def png_of(figure):
    out = io.BytesIO()
    figure.savefig(out, format="png", bbox_inches="tight")
    return out.getvalue()


def is_silenced(source):
    """Reports whether a cell ends with a semicolon, which hides its value."""
    text = source.rstrip()
    if "#" not in text.rsplit("\n", 1)[-1]:
        return text.endswith(";")
    import tokenize

    last = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type not in (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER):
                last = token.string
    except (tokenize.TokenError, SyntaxError):
        return False
    return last == ";"


def exit_code(e):
    if e.code is None:
        return 0
    if isinstance(e.code, int):
        return e.code & 0xFF
    return 1


def failure(e, code=1):
    """Returns what is told of an exception."""
    if isinstance(e, KeyboardInterrupt):
        code = 130
    try:
        value = fitting(str(e))
    except BaseException:
        value = "<its text cannot be made>"
    return {"exit_code": code, "error": {"name": name_of(type(e)), "value": value, "traceback": traceback_of(e)}}


def traceback_of(e):
    # What comes before the cell is ours, or that of the event loop.
    first, tb = None, e.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename.startswith("<cell "):
            first = tb
            break
        tb = tb.tb_next
    if first is None:
        tb = e.__traceback__
        while tb is not None and tb.tb_frame.f_code.co_filename == HOST:
            tb = tb.tb_next
        first = tb
    try:
        told = traceback.TracebackException(type(e), e, first)
        told.stack = traceback.StackSummary.from_list([f for f in told.stack if f.filename != HOST])
        text = "".join(told.format())
    except BaseException:
        return type(e).__name__ + "\n"
    if len(text) > MAX_TRACEBACK:
        half = MAX_TRACEBACK // 2
        text = text[:half] + "\n…\n" + text[-half:]
    return text


def flush(passing=BaseException):
    """Flushes both streams. In the middle of a cell an interrupt must get through."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except passing:
            pass  # the user's code has closed or replaced it


# Random generators

def generators():
    """The generators that are loaded, each with what seeds it with eight words."""
    # Each takes words of its own: random and numpy.random are the same algorithm, and
    # would draw the same numbers from the same seed.
    loaded = []
    if "random" in sys.modules:
        loaded.append(("random", lambda words: sys.modules["random"].seed(words[5] | words[6] << 32 | words[7] << 64)))
    np = sys.modules.get("numpy")
    if np is not None and "numpy.random" in sys.modules:
        loaded.append(("numpy.random", lambda words: np.random.seed(words[2:5])))
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "manual_seed"):
        loaded.append(("torch", lambda words: torch.manual_seed(words[0] | (words[1] & 0x7FFFFFFF) << 32)))
    if "_ssl" in sys.modules:
        loaded.append(("ssl", lambda words: sys.modules["_ssl"].RAND_add(os.urandom(48), 48.0)))
    return loaded


def reseed(seed):
    """Reseeds the generators that are loaded: a fork has those of its siblings."""
    done, failed = [], []
    words = [seed >> (32 * i) & 0xFFFFFFFF for i in range(8)]
    for name, give in generators():
        try:
            give(words)
            done.append(name)
        except Exception as e:
            failed.append("%s: %s" % (name, short(str(e), MAX_REPR)))
    return {"reseeded": done, "failed": failed}


# What the user's code finds


class Patches:
    """Changes modules when they are imported, and imports none itself."""

    def __init__(self, host):
        self.patches = {"matplotlib.pyplot": self.pyplot, "IPython.display": self.ipython, "IPython": self.shell}
        self.host = host

    def find_spec(self, name, path=None, target=None):
        patch = self.patches.pop(name, None)
        if patch is None:
            return None
        import importlib.util

        spec = importlib.util.find_spec(name)  # asks the others, as the name is popped
        if spec is None or spec.loader is None or not hasattr(spec.loader, "exec_module"):
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec

    def pyplot(self, pyplot):
        import functools

        original = pyplot.show

        @functools.wraps(original)
        def show(*args, **kwargs):
            if sys.modules["matplotlib"].get_backend().lower() != "agg":
                return original(*args, **kwargs)
            self.host.show_figures()

        pyplot.show = show

    def ipython(self, module):
        module.display = self.host.display

    def shell(self, module):
        self.host.cells.shell()  # libraries ask IPython whether there is one


def no_input(prompt="", *_):
    raise EOFError("input() has nobody to ask: code in a context has no standard input")


def move_up(fd):
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200)
    except OSError:  # not so many are allowed
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 50)
    os.close(fd)
    return high


def prepare(host):
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    os.environ.setdefault("MPLBACKEND", "Agg")
    os.environ.setdefault("PYTHONIOENCODING", "utf-8")  # of subprocesses
    builtins.input = no_input
    builtins.display = host.display
    builtins.get_ipython = host.cells.shell
    builtins.__ramet_cells__ = host.cells
    sys.argv = [""]
    sys.meta_path.insert(0, Patches(host))
    signal.signal(signal.SIGINT, host.interrupt)
    sys.displayhook = lambda value: value is None or host.show_value(value)


host = Host()
prepare(host)
host.send(b"h"[0], {"version": "%d.%d.%d" % sys.version_info[:3], "pid": host.pid})
host.serve()
