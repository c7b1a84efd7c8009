"""A code executor of AutoGen: `pip install 'ramet[autogen]'`."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, List, Mapping, Optional

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult

import ramet

from . import _owned
from ._run import MAX_OUTPUT, Output, Ran, run_async

TIMEOUT = 60.0
"""Seconds that a block may take, as with the framework's own executors."""

SHELLS = ("bash", "sh", "shell")


class RametCodeExecutor(CodeExecutor):
    """Runs the code blocks of messages in a sandbox: Python in an interpreter that keeps variables, and shell scripts.

    The sandbox is made by `start`, and ends with `stop`, or a minute after its program if that is killed. A block
    that takes longer than `timeout` seconds, or whose token is cancelled, is killed with its process group; Python
    is interrupted.

    ```python
    from autogen_agentchat.agents import CodeExecutorAgent
    from ramet.integrations.autogen import RametCodeExecutor

    async with RametCodeExecutor("python") as executor:
        agent = CodeExecutorAgent("coder", code_executor=executor)
        first, second = await executor.fork(2)  # with all variables, for two agents
    ```
    """

    component_provider_override = "ramet.integrations.autogen.RametCodeExecutor"

    def __init__(
        self,
        image: str = "python",
        *,
        sandbox: "Optional[ramet.AsyncSandbox]" = None,
        cwd: str = "/workspace",
        env: Optional[Mapping[str, str]] = None,
        timeout: float = TIMEOUT,
        **options: Any,
    ) -> None:
        """Take a sandbox that the caller ends, or make one. options are those of `ramet.Sandbox.create`."""
        if timeout <= 0:
            raise ValueError(f"timeout: {timeout:g} s is not a time")
        self._image = image
        self._given = sandbox
        self._sandbox: Optional[ramet.AsyncSandbox] = None
        self._client: Optional[ramet.AsyncClient] = None
        self._cwd = cwd
        self._env = env
        self._timeout = timeout
        self._options = options

    @property
    def sandbox(self) -> "ramet.AsyncSandbox":
        """The sandbox, between `start` and `stop`."""
        if self._sandbox is None:
            raise RuntimeError("the executor is not started: use it with `async with`, or call start()")
        return self._sandbox

    async def start(self) -> None:
        if self._sandbox is not None:
            return
        if self._given is not None:
            self._sandbox = self._given
        else:
            self._client, self._sandbox = await _owned.create_async("autogen", self._image, **self._options)
        try:
            await self._sandbox.files.mkdir(self._cwd)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        sandbox, self._sandbox = self._sandbox, None
        client, self._client = self._client, None
        await _owned.end_async(client, sandbox if self._given is None else None)

    async def restart(self) -> None:
        """End what runs, the interpreter with its variables too. Files stay."""
        await self.start()
        for context in await self.sandbox.contexts.list():
            await (await self.sandbox.contexts.get(context.name)).destroy()
        for process in await self.sandbox.processes.list():
            if process.pid != 1:
                with contextlib.suppress(ramet.NotFound):  # it has ended
                    await self.sandbox.processes.kill(process.pid)

    async def execute_code_blocks(self, code_blocks: List[CodeBlock], cancellation_token: CancellationToken) -> CodeResult:
        output = Output(MAX_OUTPUT)
        code = 0
        for block in code_blocks:
            task = asyncio.ensure_future(self._block(block, output))
            cancellation_token.link_future(task)
            code = await task
            if code != 0:
                break
        return CodeResult(exit_code=code, output=output.text())

    async def _block(self, block: CodeBlock, output: Output) -> int:
        language = block.language.lower()
        if language in SHELLS:
            shell = "/bin/bash" if language == "bash" else "/bin/sh"
            ran: Ran = await run_async(
                self.sandbox, [shell, "-c", block.code], cwd=self._cwd, env=self._env, timeout=self._timeout, merged=True
            )
            output.add(ran.stdout)
            return self._late(output) if ran.timed_out else ran.exit_code
        if language not in ("python", "py", ""):
            output.add(f"a block in {block.language} cannot be run: the languages are python, bash and sh\n")
            return 1
        return await self._python(block.code, output)

    async def _python(self, code: str, output: Output) -> int:
        contexts = {c.name for c in await self.sandbox.contexts.list()}
        if "autogen" not in contexts:
            await self.sandbox.contexts.create("python", name="autogen", cwd=self._cwd, env=self._env)
        try:
            done = await self.sandbox.run_code(
                code, context="autogen", timeout=self._timeout, on_stdout=output.add, on_stderr=output.add
            )
        except ramet.Timeout:
            return self._late(output)
        if done.text:
            output.add(done.text + "\n")
        if done.error is not None:
            output.add(f"{done.error}\n")
            return 1
        return 0

    def _late(self, output: Output) -> int:
        output.add(f"\nThe code was ended after {self._timeout:g} s.")
        return 124

    async def fork(self, n: int = 1, **options: Any) -> "List[RametCodeExecutor]":
        """Make executors, started already, whose sandboxes have all of this one. They end with it."""
        out = []
        for child in await self.sandbox.fork(n, **options):
            made = RametCodeExecutor(sandbox=child, cwd=self._cwd, env=self._env, timeout=self._timeout)
            await made.start()
            out.append(made)
        return out

    async def promote(self, child: "RametCodeExecutor") -> None:
        """Go on with the state of a fork, which is gone then."""
        await self.sandbox.promote(child.sandbox)
