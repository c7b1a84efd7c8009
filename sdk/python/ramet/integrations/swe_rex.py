"""A deployment of SWE-ReX, as SWE-agent uses it: `pip install 'ramet[swe-rex]'`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shlex
import uuid
from pathlib import Path
from typing import Any, Dict, List, Optional

from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    Action,
    BashAction,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionResponse,
    CloseResponse,
    CloseSessionRequest,
    Command,
    CommandResponse,
    CreateBashSessionRequest,
    CreateBashSessionResponse,
    IsAliveResponse,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)
from swerex.utils.log import get_logger

import ramet

from . import _owned
from ._run import MAX_OUTPUT, Output, run_async

# What bash shows when it waits for a command. The number is the status of the last one.
_PROMPT = re.compile("\x01ramet-([0-9]+)\x02")
_PS1 = "\\001ramet-$?\\002"
_LONGEST = 64  # characters of a prompt, at most
_KILLS = 25  # rounds of kills until a command counts as one that cannot be interrupted
_UNREAD = 1 << 20  # characters that are kept while nobody waits for them
# Colours, titles and moves of the cursor.
_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b\x0c\x0e-\x1f]")


class RametDeployment(AbstractDeployment):
    """A sandbox with the sessions of an agent.

    It is made by `start`, and ends with `stop`, or a minute after its program if that is killed. Shells of forks go
    on with the variables, the directory and the jobs that they have.

    ```python
    from ramet.integrations.swe_rex import RametDeployment

    deployment = RametDeployment("python")
    await deployment.start()
    first, second = await deployment.fork(2)  # with all that the agent has done, its shells too
    ```
    """

    def __init__(self, image: str = "python", *, logger: Optional[logging.Logger] = None, **options: Any) -> None:
        """options are those of `ramet.Sandbox.create`."""
        self.logger = logger or get_logger("rex-deploy")
        self._image = image
        self._options = options
        self._hooks = CombinedDeploymentHook()
        self._client: Optional[ramet.AsyncClient] = None
        self._runtime: Optional[RametRuntime] = None

    def add_hook(self, hook: DeploymentHook) -> None:
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: Optional[float] = None) -> IsAliveResponse:
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self, *args: Any, **kwargs: Any) -> None:
        if self._runtime is not None:
            return
        self._hooks.on_custom_step("Making a sandbox")
        self._client, sandbox = await _owned.create_async("swe-rex", self._image, **self._options)
        self._runtime = RametRuntime(sandbox, logger=self.logger)

    async def stop(self, *args: Any, **kwargs: Any) -> None:
        runtime, self._runtime = self._runtime, None
        client, self._client = self._client, None
        if runtime is not None:
            await runtime.close()
            await _owned.end_async(client, runtime.sandbox)

    @property
    def runtime(self) -> "RametRuntime":
        if self._runtime is None:
            raise DeploymentNotStartedError()
        return self._runtime

    @property
    def sandbox(self) -> "ramet.AsyncSandbox":
        """The sandbox, between `start` and `stop`."""
        return self.runtime.sandbox

    async def fork(self, n: int = 1) -> "List[RametDeployment]":
        """Make deployments, started already, whose sandboxes have all of this one. They end with it."""
        out = []
        for child in await self.sandbox.fork(n):
            made = RametDeployment(self._image, logger=self.logger, **self._options)
            made._runtime = await self.runtime.in_fork(child)
            out.append(made)
        return out

    async def promote(self, child: "RametDeployment") -> None:
        """Go on with the state of a fork, which is gone then."""
        await self.runtime.become(child.runtime)
        child._runtime = None


class RametRuntime(AbstractRuntime):
    """The sessions, commands and files of a sandbox."""

    def __init__(self, sandbox: "ramet.AsyncSandbox", *, logger: Optional[logging.Logger] = None) -> None:
        self.logger = logger or get_logger("rex-runtime")
        self.sandbox = sandbox
        self._sessions: Dict[str, _Session] = {}

    async def is_alive(self, *, timeout: Optional[float] = None) -> IsAliveResponse:
        try:
            state = (await asyncio.wait_for(self.sandbox.info(), timeout)).state
        except (ramet.RametError, asyncio.TimeoutError) as e:
            return IsAliveResponse(is_alive=False, message=str(e) or "the daemon does not answer in time")
        return IsAliveResponse(is_alive=state == "running", message="" if state == "running" else f"the sandbox is {state}")

    async def create_session(self, request: CreateBashSessionRequest) -> CreateBashSessionResponse:
        if request.session in self._sessions:
            raise SessionExistsError(f"session {request.session} already exists")
        session = _Session(self.sandbox)
        output = await session.start(request.startup_source, request.startup_timeout)
        self._sessions[request.session] = session
        return CreateBashSessionResponse(output=output)

    async def run_in_session(self, action: Action) -> BashObservation:
        session = self._session(action.session)
        if isinstance(action, BashInterruptAction):
            return await session.interrupt(action)
        return await session.run(action)

    async def close_session(self, request: CloseSessionRequest) -> CloseBashSessionResponse:
        await self._session(request.session).close()
        del self._sessions[request.session]
        return CloseBashSessionResponse()

    def _session(self, name: str) -> "_Session":
        if name not in self._sessions:
            raise SessionDoesNotExistError(f"session {name!r} does not exist")
        return self._sessions[name]

    async def execute(self, command: Command) -> CommandResponse:
        argv = command.command
        if command.shell and not isinstance(argv, str):
            argv = shlex.join(argv)
        if not command.shell and isinstance(argv, str):
            argv = [argv]
        try:
            ran = await run_async(
                self.sandbox, argv, env=command.env, cwd=command.cwd, timeout=command.timeout,
                merged=command.merge_output_streams,
            )  # fmt: skip
        except ramet.CommandError as e:
            raise FileNotFoundError(str(e)) from e
        if ran.timed_out:
            raise CommandTimeoutError(f"Timeout ({command.timeout}s) exceeded while running command")
        if command.check and ran.exit_code != 0:
            said = f"{command.error_msg}: " if command.error_msg else ""
            raise NonZeroExitCodeError(
                f"{said}Command {command.command!r} failed with exit code {ran.exit_code}. Stdout:\n{ran.stdout!r}\nStderr:\n{ran.stderr!r}"
            )
        return CommandResponse(stdout=ran.stdout, stderr=ran.stderr, exit_code=ran.exit_code)

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        try:
            data = await self.sandbox.files.read_bytes(request.path)
        except ramet.SandboxGone:
            raise
        except ramet.NotFound as e:
            raise FileNotFoundError(f"No such file: {request.path!r}") from e
        return ReadFileResponse(content=data.decode(request.encoding or "utf-8", request.errors or "strict"))

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        await self.sandbox.files.write(request.path, request.content)
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        if not Path(request.source_path).exists():
            raise FileNotFoundError(f"there is no file or directory {request.source_path!r}")
        await self.sandbox.files.upload(request.source_path, request.target_path)
        return UploadResponse()

    async def close(self) -> CloseResponse:
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()
        return CloseResponse()

    async def in_fork(self, child: "ramet.AsyncSandbox") -> "RametRuntime":
        """The same sessions in a fork of the sandbox."""
        made = RametRuntime(child, logger=self.logger)
        for name, session in self._sessions.items():
            made._sessions[name] = await session.in_fork(child)
        return made

    async def become(self, child: "RametRuntime") -> None:
        """Go on with the sandbox's state and the sessions of a fork, which is gone then."""
        for session in [*self._sessions.values(), *child._sessions.values()]:
            await session.stop_reading()
        await self.sandbox.promote(child.sandbox)
        self._sessions = {name: await session.in_fork(self.sandbox) for name, session in child._sessions.items()}
        child._sessions = {}


class _Session:
    """A bash at a terminal."""

    def __init__(self, sandbox: "ramet.AsyncSandbox") -> None:
        self._sandbox = sandbox
        self._terminal: Any = None
        self._reader: "Optional[asyncio.Task[None]]" = None
        self._passed = Output(MAX_OUTPUT)  # what was shown since the last prompt, and looked through
        self._shown = ""  # what was shown since then
        self._more = asyncio.Event()
        self._ended = False
        self._busy = asyncio.Lock()

    async def start(self, sources: List[str], timeout: float) -> str:
        self._terminal = await self._sandbox.pty(["/bin/bash", "--norc", "--noediting"], cols=1000, rows=50, env={"TERM": "dumb"})
        self._read_from(self._terminal)
        lines = [f". {shlex.quote(s)}" for s in sources] + ["stty -echo -onlcr", f"PS1='{_PS1}' PS2='' PS0='' PROMPT_COMMAND=''"]
        await self._terminal.write("; ".join(lines) + "\n")
        try:
            return (await self._until([], max(timeout, 10.0)))[0]
        except BaseException:
            await self.close()
            raise

    def _read_from(self, terminal: Any, output: Any = None) -> None:
        self._terminal = terminal
        self._output = output if output is not None else terminal.output()
        self._reader = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        try:
            async for chunk in self._output:
                self._shown = (self._shown + chunk.text)[-_UNREAD:]
                self._more.set()
        except ramet.RametError:
            pass  # the sandbox is gone
        finally:
            self._ended = True
            self._more.set()

    async def _until(self, expect: List[str], timeout: Optional[float]) -> "tuple[str, str, Optional[int]]":
        """What is shown before one of expect or the prompt, which of them it is, and the status in a prompt."""
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        longest = max([_LONGEST, *(len(e) for e in expect)])
        while True:
            self._more.clear()
            found = [(self._shown.find(e), e, None) for e in expect if e in self._shown]
            prompt = _PROMPT.search(self._shown)
            if prompt:
                found.append((prompt.start(), prompt.group(), int(prompt.group(1))))  # type: ignore[arg-type]
            if found:
                at, what, status = min(found)
                self._passed.add(self._shown[:at])
                self._shown = self._shown[at + len(what) :]
                before, self._passed = self._passed.text(), Output(MAX_OUTPUT)
                return _clean(before), "" if status is not None else what, status
            self._passed.add(self._shown[:-longest])
            self._shown = self._shown[-longest:]
            if self._ended:
                raise RuntimeError(f"the shell of the session has ended: {_clean(self._passed.text() + self._shown)[-2000:]}")
            left = None if deadline is None else deadline - asyncio.get_running_loop().time()
            await asyncio.wait_for(self._more.wait(), left)

    async def run(self, action: BashAction) -> BashObservation:
        async with self._busy:
            try:
                if action.is_interactive_command or action.is_interactive_quit:
                    return await self._interact(action)
                return await self._run(action)
            except asyncio.CancelledError:  # nobody is left who could interrupt it
                with contextlib.suppress(ramet.RametError, RuntimeError):
                    await asyncio.shield(self.interrupt(BashInterruptAction()))
                raise

    async def _interact(self, action: BashAction) -> BashObservation:
        await self._terminal.write(action.command + "\n")
        before, matched, _ = await self._wait(action)
        output = before.lstrip().removeprefix(action.command).strip()
        return BashObservation(output=output, exit_code=0, expect_string=matched)

    async def _run(self, action: BashAction) -> BashObservation:
        # From a file, since a terminal takes lines of 4 KiB at most, and shows a prompt for each.
        script = f"/tmp/.ramet-{uuid.uuid4().hex}"
        await self._sandbox.files.write(script, action.command + "\n")
        try:
            checked = await self._sandbox.exec(["/bin/bash", "-n", script])
            if not checked.ok:
                said = checked.stderr.replace(script, "command")
                raise BashIncorrectSyntaxError(
                    f"the command is no bash:\n{said}", extra_info={"bash_stdout": checked.stdout, "bash_stderr": said}
                )
            self._shown, self._passed = "", Output(MAX_OUTPUT)
            await self._terminal.write(f". {script}\n")
            before, matched, status = await self._wait(action)
        finally:
            with contextlib.suppress(ramet.RametError):
                await asyncio.shield(self._sandbox.files.remove(script))
        code = None if action.check == "ignore" else status
        if action.check == "raise" and code:
            said = f"{action.error_msg}: " if action.error_msg else ""
            raise NonZeroExitCodeError(f"{said}Command {action.command!r} failed with exit code {code}. Here is the output:\n{before!r}")
        return BashObservation(output=before, exit_code=code, expect_string=matched)

    async def _wait(self, action: BashAction) -> "tuple[str, str, Optional[int]]":
        try:
            return await self._until(action.expect, action.timeout)
        except asyncio.TimeoutError as e:
            raise CommandTimeoutError(f"timeout after {action.timeout} seconds while running command {action.command!r}") from e

    async def interrupt(self, action: BashInterruptAction) -> BashObservation:
        for _ in range(action.n_retry):
            await self._terminal.write("\x03")
            try:
                return await self._interrupted(action.expect, max(action.timeout, 0.2))
            except asyncio.TimeoutError:
                continue
        # They do not hear: they are killed, and so is what a script goes on with.
        for _ in range(_KILLS):
            for process in await self._sandbox.processes.list():
                if process.ppid == self._terminal.pid:
                    with contextlib.suppress(ramet.NotFound):
                        await self._sandbox.processes.kill(process.pid, group=True)
            try:
                return await self._interrupted(action.expect, 0.2)
            except asyncio.TimeoutError:
                continue
        raise CommandTimeoutError("the command cannot be interrupted")

    async def _interrupted(self, expect: List[str], timeout: float) -> BashObservation:
        before, matched, _ = await self._until(expect, timeout)
        return BashObservation(output=before.strip(), exit_code=0, expect_string=matched)

    async def stop_reading(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader

    async def close(self) -> None:
        await self.stop_reading()
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            with contextlib.suppress(ramet.NotFound):
                await terminal.remove()

    async def in_fork(self, child: "ramet.AsyncSandbox") -> "_Session":
        """The same shell in a fork."""
        made = _Session(child)
        process = await child.processes.get(self._terminal.pid)
        made._shown = self._shown
        made._read_from(process, process.output(start=self._output._next))
        return made


def _clean(text: str) -> str:
    return _CONTROL.sub("", text.replace("\r\n", "\n"))
