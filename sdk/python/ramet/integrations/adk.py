"""An environment and a code executor of the Agent Development Kit: `pip install 'ramet[adk]'`."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any, Dict, List, Optional, Union

from google.adk.code_executors.base_code_executor import BaseCodeExecutor
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, CodeExecutionResult, File
from google.adk.environment import BaseEnvironment
from google.adk.environment._base_environment import ExecutionResult
from pydantic import PrivateAttr

import ramet

from . import _owned
from ._run import TIMEOUT, Output, run_async

MAX_OUTPUT = 1024 * 1024
"""Characters of an output that are kept: the beginning and the end."""


class RametEnvironment(BaseEnvironment):
    """A sandbox as the environment of an agent's tools.

    It is made by `initialize`, and ends with `close`, or a minute after its program if that is killed. A command
    whose time is over, or whose task is cancelled, is killed with its process group.

    ```python
    from google.adk.tools.environment import EnvironmentToolset
    from ramet.integrations.adk import RametEnvironment

    environment = RametEnvironment("python")
    agent = Agent(model=model, name="coder", tools=[EnvironmentToolset(environment=environment)])
    first, second = await environment.fork(2)  # with all that the agent has done, for two agents
    ```
    """

    def __init__(
        self,
        image: str = "python",
        *,
        sandbox: "Optional[ramet.AsyncSandbox]" = None,
        working_dir: str = "/workspace",
        **options: Any,
    ) -> None:
        """Take a sandbox that the caller ends, or make one. options are those of `ramet.Sandbox.create`."""
        self._image = image
        self._given = sandbox
        self._dir = posixpath.normpath(working_dir)
        self._options = options
        self._sandbox: Optional[ramet.AsyncSandbox] = None
        self._client: Optional[ramet.AsyncClient] = None

    @property
    def sandbox(self) -> "ramet.AsyncSandbox":
        """The sandbox, between `initialize` and `close`."""
        if self._sandbox is None:
            raise RuntimeError("the environment is not initialized: call initialize()")
        return self._sandbox

    async def initialize(self) -> None:
        if self._sandbox is not None:
            return
        if self._given is not None:
            self._sandbox = self._given
        else:
            self._client, self._sandbox = await _owned.create_async("adk", self._image, **self._options)
        try:
            await self._sandbox.files.mkdir(self._dir)
        except BaseException:
            await self.close()
            raise
        self.is_initialized = True

    async def close(self) -> None:
        self.is_initialized = False
        sandbox, self._sandbox = self._sandbox, None
        client, self._client = self._client, None
        await _owned.end_async(client, sandbox if self._given is None else None)

    @property
    def working_dir(self) -> Path:
        return Path(self._dir)

    async def execute(self, command: str, *, timeout: Optional[float] = None) -> ExecutionResult:
        ran = await run_async(self.sandbox, command, cwd=self._dir, timeout=timeout, limit=MAX_OUTPUT)
        return ExecutionResult(exit_code=ran.exit_code, stdout=ran.stdout, stderr=ran.stderr, timed_out=ran.timed_out)

    async def read_file(self, path: Path) -> bytes:
        try:
            return await self.sandbox.files.read_bytes(self._path(path))
        except ramet.SandboxGone:
            raise
        except ramet.NotFound as e:
            raise FileNotFoundError(str(path)) from e

    async def write_file(self, path: Path, content: Union[str, bytes]) -> None:
        await self.sandbox.files.write(self._path(path), content)

    def _path(self, path: Path) -> str:
        return posixpath.join(self._dir, str(path))

    async def fork(self, n: int = 1, **options: Any) -> "List[RametEnvironment]":
        """Make environments, initialized already, whose sandboxes have all of this one. They end with it."""
        out = []
        for child in await self.sandbox.fork(n, **options):
            made = RametEnvironment(sandbox=child, working_dir=self._dir)
            await made.initialize()
            out.append(made)
        return out

    async def promote(self, child: "RametEnvironment") -> None:
        """Go on with the state of a fork, which is gone then."""
        await self.sandbox.promote(child.sandbox)


class RametCodeExecutor(BaseCodeExecutor):
    """Runs the code blocks of a model's answers in a sandbox, whose interpreter keeps variables.

    Executions with different `execution_id` have interpreters of their own. Images that the code shows are output
    files. Code that takes longer than `timeout_seconds` (half an hour unless it is given) is interrupted. The sandbox
    is made by the first execution, and ends with `close`, or a minute after its program.
    """

    image: str = "python"
    options: Dict[str, Any] = {}  # of ramet.Sandbox.create
    stateful: bool = True
    working_dir: str = "/workspace"

    _sandbox: Any = PrivateAttr(default=None)
    _client: Any = PrivateAttr(default=None)

    @property
    def sandbox(self) -> "ramet.Sandbox":
        """The sandbox, which is made if there is none yet."""
        if self._sandbox is None:
            self._client, self._sandbox = _owned.create("adk", self.image, **self.options)
            self._sandbox.files.mkdir(self.working_dir)
        found: ramet.Sandbox = self._sandbox
        return found

    def execute_code(self, invocation_context: Any, code_execution_input: CodeExecutionInput) -> CodeExecutionResult:
        for file in code_execution_input.input_files:
            self.sandbox.files.write(posixpath.join(self.working_dir, file.name), file.content)
        out, err = Output(MAX_OUTPUT), Output(MAX_OUTPUT)
        try:
            done = self.sandbox.run_code(
                code_execution_input.code,
                context=self._context(code_execution_input.execution_id),
                timeout=self.timeout_seconds or TIMEOUT,
                on_stdout=out.add,
                on_stderr=err.add,
            )
        except ramet.Timeout as e:
            err.add(f"{e}\n")
            return CodeExecutionResult(stdout=out.text(), stderr=err.text(), exit_code=124)
        if done.text:
            out.add(done.text + "\n")
        if done.error is not None:
            err.add(f"{done.error}\n")
        shown = [
            File(name=f"shown-{i}.png", content=result.png, mime_type="image/png")
            for i, result in enumerate(done.results)
            if result.png is not None
        ]
        return CodeExecutionResult(stdout=out.text(), stderr=err.text(), output_files=shown, exit_code=int(not done.ok))

    def _context(self, execution: Optional[str]) -> str:
        """The name of an interpreter, which starts in the working directory."""
        name = "adk" + "".join(c if c.isalnum() else f"-{ord(c):x}" for c in execution or "")
        if all(c.name != name for c in self.sandbox.contexts.list()):
            self.sandbox.contexts.create("python", name=name, cwd=self.working_dir)
        return name

    def fork(self, n: int = 1, **options: Any) -> "List[RametCodeExecutor]":
        """Make executors whose sandboxes have all of this one: variables, files, processes. They end with it."""
        out = []
        for child in self.sandbox.fork(n, **options):
            made = self.model_copy()
            made._client, made._sandbox = None, child
            out.append(made)
        return out

    def promote(self, child: "RametCodeExecutor") -> None:
        """Go on with the state of a fork, which is gone then."""
        self.sandbox.promote(child.sandbox)

    def close(self) -> None:
        """Destroy the sandbox and its forks."""
        if self._sandbox is not None:
            client, sandbox = self._client, self._sandbox
            self._client = self._sandbox = None
            _owned.end(client, sandbox)
