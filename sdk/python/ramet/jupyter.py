"""A kernel for Jupyter whose cells run in a sandbox, which can be forked and rolled back.

    python -m ramet.jupyter install [--user | --sys-prefix | --prefix DIR] [--image IMAGE]

The sandbox is made with the first cell and ends with the kernel. Lines that begin with % are about
sandboxes; see `%ramet` in a notebook for all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from ipykernel.kernelbase import Kernel

from . import __version__
from ._errors import RametError, Timeout
from ._sync._sandbox import Sandbox, Snapshot
from ._types import Chunk

IMAGE = "RAMET_JUPYTER_IMAGE"
NETWORK = "RAMET_JUPYTER_NETWORK"
IDLE = 3600.0  # seconds until a notebook that nobody uses rests on disk
TTL = 7 * 24 * 3600.0  # seconds after which the sandbox of a kernel that was killed ends

HELP = """\
%fork NAME            fork the sandbox of the notebook; NAME is the fork
%use NAME             the cells that follow run there; base is the first sandbox
%diff NAME [NAME]     what differs: files and variables
%promote NAME         the parent goes on with the state of its fork
%merge NAME...        bring the files that forks changed to the sandbox in use
%snapshot [NAME]      keep the state of the sandbox in use
%rollback NAME        return it to a snapshot
%tree                 the lineage
%destroy NAME         end a fork
%%on NAME             run this cell in NAME
%%bash, %%node        run this cell in another interpreter
"""

COMPLETE = (
    "[m for m in (lambda c, t: [c.complete(t, i) for i in range(200)])"
    "(__import__('rlcompleter').Completer(globals()), {text!r}) if m]"
)


class UsageError(Exception):
    """A line that begins with % and is none of those that there are."""


class RametKernel(Kernel):
    """A kernel with a sandbox."""

    implementation = "ramet"
    implementation_version = __version__
    language_info = {
        "name": "python",
        "mimetype": "text/x-python",
        "file_extension": ".py",
        "pygments_lexer": "ipython3",
        "codemirror_mode": {"name": "ipython", "version": 3},
    }
    banner = "Cells run in a sandbox that can be forked; %ramet shows how."

    def __init__(self, **options: Any) -> None:
        base: Any = super()
        base.__init__(**options)
        self._sandboxes: Dict[str, Sandbox] = {}  # those of this notebook; base comes first
        self._snapshots: Dict[str, Snapshot] = {}
        self._use = "base"

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: Optional[Dict[str, Any]] = None,
        allow_stdin: bool = False,
        *,
        cell_meta: Any = None,
        cell_id: Any = None,
    ) -> Dict[str, Any]:
        """Run a cell: lines about sandboxes first, and then the code behind them."""
        try:
            language, where, code = self._lines(code, silent)
            failed = self._run(code, language, where, silent) if code.strip() else None
        except KeyboardInterrupt:
            return self._failed("KeyboardInterrupt", "the cell was interrupted", [], silent)
        except (RametError, UsageError) as error:
            return self._failed(type(error).__name__, str(error), [f"{type(error).__name__}: {error}"], silent)
        if failed is not None:
            return failed
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}

    def _run(self, code: str, language: str, where: str, silent: bool) -> Optional[Dict[str, Any]]:
        stream = self._find(where).run_code(code, language=language, stream=True)
        with stream:  # leaving it interrupts the cell
            for piece in stream:
                if silent:
                    continue
                if isinstance(piece, Chunk):
                    self._say("stream", {"name": piece.stream, "text": piece.text})
                else:
                    self._show(piece._repr_mimebundle_())
        error = stream.execution.error if stream.execution is not None else None
        if error is None:
            return None
        return self._failed(error.name, error.value, str(error).splitlines(), silent)

    def _failed(self, name: str, value: str, traceback: List[str], silent: bool) -> Dict[str, Any]:
        content = {"ename": name, "evalue": value, "traceback": traceback or [f"{name}: {value}"]}
        if not silent:
            self._say("error", content)
        return {"status": "error", "execution_count": self.execution_count, **content}

    def _show(self, forms: Dict[str, Any]) -> None:
        forms = {kind: json.loads(form) if kind == "application/json" and isinstance(form, str) else form for kind, form in forms.items()}
        self._say("display_data", {"data": forms, "metadata": {}})

    def _say(self, kind: str, content: Dict[str, Any]) -> None:
        send: Any = self.send_response
        send(self.iopub_socket, kind, content)

    def _lines(self, code: str, silent: bool) -> Tuple[str, str, str]:
        """Do what the lines at the head of a cell say; return language, sandbox and the rest."""
        language, where = "python", self._use
        lines = code.split("\n")
        while lines and (not lines[0].strip() or lines[0].lstrip().startswith("%")):
            line = lines.pop(0).strip()
            if not line:
                continue
            words = shlex.split(line)
            if words[0] in ("%%bash", "%%node", "%%python") and len(words) == 1:
                language = words[0][2:]
            elif words[0] == "%%on" and len(words) == 2:
                where = words[1]
            else:
                shown = self._line(words[0], words[1:])
                where = self._use
                if shown is not None and not silent:
                    self._show({"text/plain": str(shown)})
        return language, where, "\n".join(lines)

    def _line(self, verb: str, words: List[str]) -> Any:
        verbs: Dict[str, Tuple[Callable[..., Any], int, int]] = {
            "%ramet": (lambda: HELP, 0, 0),
            "%fork": (self._fork, 1, 1),
            "%use": (self._begin_to_use, 1, 1),
            "%diff": (self._diff, 1, 2),
            "%promote": (self._promote, 1, 1),
            "%merge": (lambda *names: self._find(self._use).merge(*map(self._find, names)), 1, 64),
            "%snapshot": (self._snapshot, 0, 1),
            "%rollback": (self._rollback, 1, 1),
            "%tree": (lambda: self._find("base").tree(), 0, 0),
            "%destroy": (self._destroy, 1, 1),
        }
        if verb not in verbs:
            raise UsageError(f"there is no {verb}:\n{HELP}")
        run, least, most = verbs[verb]
        if not least <= len(words) <= most:
            usage = [line for line in HELP.splitlines() if line.split()[0] == verb]
            raise UsageError("\n".join(usage) or HELP)
        return run(*words)

    def _fork(self, name: str) -> str:
        if name in self._sandboxes or name == "base":
            raise UsageError(f"there is a sandbox {name} already: %destroy {name} ends it")
        (child,) = self._find(self._use).fork()
        self._sandboxes[name] = child
        return f"{name} is {child.id}, a fork of {self._use}"

    def _begin_to_use(self, name: str) -> str:
        self._find(name)
        self._use = name
        return f"cells run in {name}"

    def _diff(self, first: str, second: Optional[str] = None) -> Any:
        one, other = (self._use, first) if second is None else (first, second)
        return self._find(one).diff(self._find(other), variables=True)

    def _promote(self, name: str) -> str:
        child = self._find(name)
        parents = [known for known, sandbox in self._sandboxes.items() if sandbox.id == child.parent]
        if not parents:
            raise UsageError(f"{name} is no fork of this notebook")
        self._find(parents[0]).promote(child)
        del self._sandboxes[name]
        if self._use == name:
            self._use = parents[0]
        return f"{parents[0]} goes on as {name} was"

    def _snapshot(self, name: Optional[str] = None) -> str:
        snapshot = self._find(self._use).snapshot()
        name = name or snapshot.id
        if name in self._snapshots:
            self._snapshots[name].delete()
        self._snapshots[name] = snapshot
        return f"%rollback {name} returns to this state"

    def _rollback(self, name: str) -> str:
        if name not in self._snapshots:
            known = ", ".join(self._snapshots) or "there are none"
            raise UsageError(f"there is no snapshot {name} in this notebook: {known}")
        self._find(self._use).rollback(self._snapshots[name])
        return f"{self._use} is as it was at {name}"

    def _destroy(self, name: str) -> str:
        sandbox = self._find(name)
        if name == "base":
            raise UsageError("base ends with the kernel")
        del self._sandboxes[name]
        if self._use == name:
            self._use = "base"
        sandbox.destroy()
        return f"{name} is gone"

    def _find(self, name: str) -> Sandbox:
        if name in self._sandboxes:
            return self._sandboxes[name]
        if name != "base":
            raise UsageError(f"there is no sandbox {name} in this notebook: {', '.join(self._sandboxes) or 'there are none'}")
        network = os.environ.get(NETWORK)
        sandbox = Sandbox.create(
            os.environ.get(IMAGE) or "python", network=network or None, metadata={"made-by": "jupyter"},
            ttl=TTL, idle_timeout=IDLE, idle_action="hibernate",
        )
        self._sandboxes["base"] = sandbox
        return sandbox

    async def do_complete(self, code: str, cursor_pos: int) -> Dict[str, Any]:
        """Complete names of the interpreter."""
        begin = cursor_pos
        while begin > 0 and (code[begin - 1].isalnum() or code[begin - 1] in "_."):
            begin -= 1
        matches: List[str] = []
        if begin < cursor_pos and self._use in self._sandboxes and "\n%%" not in "\n" + code:
            try:
                value = self._find(self._use).run_code(COMPLETE.format(text=code[begin:cursor_pos]), timeout=2).value
                matches = [str(match) for match in value] if isinstance(value, list) else []
            except (RametError, Timeout):
                pass  # no completion is no error
        return {"status": "ok", "matches": matches, "cursor_start": begin, "cursor_end": cursor_pos, "metadata": {}}

    async def do_shutdown(self, restart: bool) -> Dict[str, Any]:
        """End the sandboxes of the notebook, children first."""
        for snapshot in self._snapshots.values():
            _without_error(snapshot.delete)
        for sandbox in reversed(list(self._sandboxes.values())):
            _without_error(sandbox.destroy)
        self._sandboxes, self._snapshots, self._use = {}, {}, "base"
        return {"status": "ok", "restart": restart}


def _without_error(end: Callable[[], Any]) -> None:
    try:
        end()
    except RametError:
        pass  # it has ended already, or the daemon has


def install(arguments: List[str]) -> None:
    """Install the kernel, so that Jupyter lists it."""
    from jupyter_client.kernelspec import KernelSpecManager

    parser = argparse.ArgumentParser(prog="ramet jupyter install", description="Install a kernel for Jupyter whose cells run in a sandbox.")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user (the default)")
    where.add_argument("--sys-prefix", action="store_true", help="into the environment of this Python")
    where.add_argument("--prefix", help="into the environment in this directory")
    parser.add_argument("--name", default="ramet", help="name of the kernel (default ramet)")
    parser.add_argument("--display-name", help="name that notebooks show")
    parser.add_argument("--image", default="python", help="image of the sandboxes (default python)")
    parser.add_argument("--network", help="profile of their network (default none)")
    options = parser.parse_args(arguments)
    environment = {IMAGE: options.image}
    if options.network:
        environment[NETWORK] = options.network
    environment.update({name: os.environ[name] for name in ("RAMET_HOST", "RAMET_CA", "RAMET_TOKEN_FILE", "RAMET_BIN") if name in os.environ})
    spec = {
        "argv": [sys.executable, "-m", "ramet.jupyter", "-f", "{connection_file}"],
        "display_name": options.display_name or f"Ramet ({options.image})",
        "language": "python",
        "interrupt_mode": "signal",
        "env": environment,
    }
    prefix = sys.prefix if options.sys_prefix else options.prefix
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "kernel.json").write_text(json.dumps(spec, indent=1))
        place = KernelSpecManager().install_kernel_spec(directory, options.name, user=prefix is None, prefix=prefix)
    print(f"kernel {options.name} is in {place}")


def main(arguments: List[str]) -> None:
    """Be the kernel, or install it."""
    if arguments[:1] == ["install"]:
        install(arguments[1:])
        return
    from ipykernel.kernelapp import IPKernelApp

    IPKernelApp.launch_instance(arguments, kernel_class=RametKernel)


if __name__ == "__main__":
    main(sys.argv[1:])
