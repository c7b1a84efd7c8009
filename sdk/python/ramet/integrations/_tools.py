"""Tools that give a model a sandbox, in no framework's form."""

from __future__ import annotations

import asyncio
import codecs
import dataclasses
from typing import Any, Awaitable, Callable, Dict, List, Mapping, Optional, Type

import ramet

from . import _owned
from ._run import TIMEOUT, Output, Ran, run, run_async

MAX_OUTPUT = 24_000
"""Characters of an answer: it goes to a model."""

MAX_FORKS = 8
"""Children that a model may have at once."""


@dataclasses.dataclass(frozen=True)
class Parameter:
    """An argument of a tool; required if it has no default."""

    name: str
    type: Type[Any]
    description: str
    default: Any = ...


@dataclasses.dataclass(frozen=True)
class Tool:
    """What a framework makes a tool of. Both calls take the parameters by their names."""

    name: str
    description: str
    parameters: List[Parameter]
    call: Callable[..., str]
    acall: Callable[..., Awaitable[str]]

    def model(self) -> Any:
        """The parameters as a model of Pydantic."""
        import pydantic

        fields = {p.name: (p.type, pydantic.Field(default=p.default, description=p.description)) for p in self.parameters}
        return pydantic.create_model(self.name, **fields)  # type: ignore[call-overload]


class Tools:
    """The tools of one sandbox, and of the children that the model forks from it.

    A tool takes the ids of these children, and of no other sandboxes. What a model can mend is an answer that says
    so; other errors are the program's. Outputs are cut in their middle.
    """

    def __init__(
        self,
        sandbox: "ramet.Sandbox",
        *,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
        timeout: float = TIMEOUT,
        max_output: int = MAX_OUTPUT,
        max_forks: int = MAX_FORKS,
    ) -> None:
        if not 0 <= max_forks <= 100:
            raise ValueError(f"max_forks: {max_forks} is not a number from 0 to 100")
        self.sandbox = sandbox
        self.options: Dict[str, Any] = {
            "cwd": cwd, "env": env, "user": user, "timeout": timeout, "max_output": max_output, "max_forks": max_forks,
        }  # fmt: skip
        self._commands: Dict[str, Any] = {"cwd": cwd, "env": env, "user": user, "timeout": timeout, "limit": max_output}
        self._timeout = timeout or None
        self._user = user
        self._limit = max_output
        self._max_forks = max_forks
        self._children: "Dict[str, ramet.Sandbox]" = {}

    def end_children(self) -> None:
        """Destroy the children that the model made."""
        left, self._children = self._children, {}
        for child in left.values():
            child.__exit__(None, None, None)

    def list(self) -> List[Tool]:
        """The tools. Those of forks are left out if there may be none."""
        which = Parameter("sandbox", str, "Id of a child that ramet_fork returned; the main sandbox if it is empty", "")
        path = Parameter("path", str, "Absolute path")
        tools = [
            self._tool(
                "ramet_exec", "Runs a shell command in the sandbox, and returns its exit code and output.",
                [Parameter("command", str, "Command for /bin/sh"), which], self._exec, self._exec_async,
            ),
            self._tool(
                "ramet_run_code",
                "Runs Python code in an interpreter whose variables stay from call to call, and returns what it prints and the value of the last expression.",
                [Parameter("code", str, "Python code"), which], self._run_code, self._run_code_async,
            ),
            self._tool("ramet_read_file", "Returns the text of a file.", [path, which], self._read_file),
            self._tool(
                "ramet_write_file", "Writes a text file, and the directories above it.",
                [path, Parameter("content", str, "Text of the file"), which], self._write_file,
            ),
        ]  # fmt: skip
        if self._max_forks == 0:
            return tools
        child = Parameter("sandbox", str, "Id of a child that ramet_fork returned")
        return tools + [
            self._tool(
                "ramet_fork",
                "Makes children of the main sandbox that go on from its present state, with its files, memory and processes, to try several ways. Returns their ids for the other tools.",
                [Parameter("count", int, f"How many, 1 to {self._max_forks}", 1)], self._fork,
            ),
            self._tool(
                "ramet_compare", "Shows which files differ between the main sandbox and a child, as a unified diff.",
                [child], self._compare,
            ),
            self._tool(
                "ramet_promote",
                "Makes the main sandbox go on with the state of a child. The other children stay until they are destroyed.",
                [child], self._promote,
            ),
            self._tool("ramet_destroy", "Ends a child that is not needed any more.", [child], self._destroy),
        ]  # fmt: skip

    def _tool(
        self,
        name: str,
        description: str,
        parameters: List[Parameter],
        act: Callable[..., str],
        aact: Optional[Callable[..., Awaitable[str]]] = None,
    ) -> Tool:
        def call(**arguments: Any) -> str:
            try:
                return act(**arguments)
            except ramet.RametError as e:
                return self._told(e, arguments)

        async def acall(**arguments: Any) -> str:
            if aact is None:
                return await asyncio.to_thread(call, **arguments)
            try:
                return await aact(**arguments)
            except ramet.RametError as e:
                return self._told(e, arguments)

        return Tool(name, description, parameters, call, acall)

    def _told(self, e: "ramet.RametError", arguments: Dict[str, Any]) -> str:
        """The error as an answer. Without the main sandbox or the daemon there is nothing to be mended."""
        if isinstance(e, ramet.Unavailable):
            raise e
        if isinstance(e, ramet.SandboxGone) and self._children.pop(arguments.get("sandbox", ""), None) is None:
            raise e
        return f"{e.code}: {e}" + (f" ({e.remedy})" if e.remedy and e.remedy not in str(e) else "")

    def _find(self, ref: str) -> "ramet.Sandbox":
        if ref in ("", self.sandbox.id):
            return self.sandbox
        if ref in self._children:
            return self._children[ref]
        known = ", ".join(self._children) or "none"
        raise ramet.InvalidRequest(
            f"{ref!r} is no child of this sandbox; there are: {known}", code="invalid_argument", field="sandbox"
        )

    def _child(self, ref: str) -> "ramet.Sandbox":
        found = self._find(ref)
        if found is self.sandbox:
            raise ramet.InvalidRequest(
                "this is the main sandbox: give the id of a child", code="invalid_argument", field="sandbox"
            )
        return found

    def _cut(self, text: str) -> str:
        output = Output(self._limit)
        output.add(text)
        return output.text()

    def _exec(self, command: str, sandbox: str = "") -> str:
        return self._ran(run(self._find(sandbox), command, merged=True, **self._commands))

    async def _exec_async(self, command: str, sandbox: str = "") -> str:
        async with _owned.asynchronous(self._find(sandbox)) as there:
            return self._ran(await run_async(there, command, merged=True, **self._commands))

    def _ran(self, ran: Ran) -> str:
        late = f" (killed after {self._timeout:g} s)" if ran.timed_out else ""
        return f"exit code {ran.exit_code}{late}\n{ran.stdout}"

    def _run_code(self, code: str, sandbox: str = "") -> str:
        output = Output(self._limit)
        done = self._find(sandbox).run_code(code, timeout=self._timeout, on_stdout=output.add, on_stderr=output.add)
        return self._said(output, done)

    async def _run_code_async(self, code: str, sandbox: str = "") -> str:
        output = Output(self._limit)
        async with _owned.asynchronous(self._find(sandbox)) as there:
            done = await there.run_code(code, timeout=self._timeout, on_stdout=output.add, on_stderr=output.add)
        return self._said(output, done)

    def _said(self, output: Output, done: Any) -> str:
        shown = "\n".join(result.text for result in done.results if result.text is not None)
        failed = f"{done.error.name}: {done.error.value}\n" if done.error else ""
        return self._cut(output.text() + (shown and shown + "\n") + failed) or "done, without output"

    def _read_file(self, path: str, sandbox: str = "") -> str:
        output, decoder = Output(self._limit), codecs.getincrementaldecoder("utf-8")("replace")
        for piece in self._find(sandbox).files.stream(path, user=self._user):
            output.add(decoder.decode(piece))
        output.add(decoder.decode(b"", True))
        return output.text()

    def _write_file(self, path: str, content: str, sandbox: str = "") -> str:
        self._find(sandbox).files.write(path, content, user=self._user)
        return f"wrote {len(content.encode())} bytes to {path}"

    def _fork(self, count: int = 1) -> str:
        if len(self._children) + count > self._max_forks:
            raise ramet.LimitExceeded(
                f"there are {len(self._children)} children, and there may be {self._max_forks}: "
                "promote one of them with ramet_promote, or end some with ramet_destroy",
                code="limit_exceeded",
            )
        made = self.sandbox.fork(count)
        self._children.update((child.id, child) for child in made)
        return "\n".join(child.id for child in made)

    def _compare(self, sandbox: str) -> str:
        diff = self.sandbox.diff(self._child(sandbox), hunks=True)
        return self._cut("".join(f"{c.kind} {c.path}\n{c.hunks or ''}" for c in diff.changes)) or "no file differs"

    def _promote(self, sandbox: str) -> str:
        child = self._child(sandbox)
        self.sandbox.promote(child)
        del self._children[child.id]
        return f"the main sandbox has the state of {child.id}"

    def _destroy(self, sandbox: str) -> str:
        child = self._child(sandbox)
        child.destroy()
        del self._children[child.id]
        return f"{child.id} is gone"
