"""A sandbox environment of Inspect: `pip install 'ramet[inspect]'`, and `sandbox="ramet"` in a task.

All samples of a task are forks of one sandbox, which is prepared once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import posixpath
from typing import Any, Dict, List, Literal, Optional, Tuple, Union, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    sandboxenv,
)
from pydantic import BaseModel, Field

import ramet

from . import _owned
from ._run import run_async


class RametConfig(BaseModel, frozen=True):
    """How the sandbox is made that samples are forks of.

    ```python
    Task(..., sandbox=SandboxEnvironmentSpec("ramet", RametConfig(setup=("pip install pytest",), network="host-registries")))
    ```
    """

    image: str = Field(default="python")
    setup: Tuple[str, ...] = Field(default=())  # commands that run once, before all samples
    files: Tuple[Tuple[str, str], ...] = Field(default=())  # (directory or file here, path in the sandbox)
    network: Optional[str] = Field(default=None)  # a profile; none unless it is given
    workdir: str = Field(default="/workspace")
    memory: Optional[str] = Field(default=None)
    cpus: Optional[float] = Field(default=None)


class _Warm:
    """The sandbox that the samples of a task are forks of. Its lease ends with the task, or with the program."""

    def __init__(self, client: "ramet.AsyncClient", sandbox: "ramet.AsyncSandbox") -> None:
        self.sandbox = sandbox
        self._client = client

    @classmethod
    async def make(cls, c: RametConfig) -> "_Warm":
        client, sandbox = await _owned.create_async("inspect", c.image, network=c.network, memory=c.memory, cpus=c.cpus)
        try:
            await sandbox.files.mkdir(c.workdir)
            for here, there in c.files:
                await sandbox.files.upload(here, there)
            for command in c.setup:
                await sandbox.exec(command, cwd=c.workdir, check=True)
        except BaseException:
            await _owned.end_async(client, sandbox)
            raise
        return cls(client, sandbox)

    def keep(self) -> None:
        """Let all sandboxes of the task go on without an end."""
        for sandbox in (self.sandbox, *self.sandbox._children.values()):
            sandbox.detach()

    async def close(self) -> None:
        """End the lease, and with it all sandboxes of the task that are not to be kept."""
        await _owned.end_async(self._client, None)


# By configuration: Inspect begins and ends environments by other names than those of tasks.
_warm: "Dict[RametConfig, asyncio.Task[_Warm]]" = {}


async def _warmed(c: RametConfig) -> _Warm:
    """The sandbox of a configuration, which is made once, also if several samples need it at the same time."""
    making = _warm.get(c)
    if making is None or making.get_loop() is not asyncio.get_running_loop():  # of an evaluation that was broken off
        making = _warm[c] = asyncio.ensure_future(_Warm.make(c))
        making.add_done_callback(lambda made: _forget(c, made))
    # A sample that is cancelled does not end what others wait for.
    return await asyncio.shield(making)


def _forget(c: RametConfig, made: "asyncio.Task[_Warm]") -> None:
    """Let the next sample try again if it could not be made."""
    if (made.cancelled() or made.exception() is not None) and _warm.get(c) is made:
        del _warm[c]


def _config(config: Optional[SandboxEnvironmentConfigType]) -> RametConfig:
    if config is None:
        return RametConfig()
    if isinstance(config, RametConfig):
        return config
    if isinstance(config, str):
        return RametConfig(image=config)
    raise TypeError(f"the configuration of sandbox ramet is a RametConfig or the name of an image, not {type(config)}")


@sandboxenv(name="ramet")
class RametSandboxEnvironment(SandboxEnvironment):
    """A fork of the task's sandbox, for one sample. `sandbox().as_type(RametSandboxEnvironment).fork(n)` makes more."""

    def __init__(self, sandbox: "ramet.AsyncSandbox", workdir: str) -> None:
        super().__init__()
        self.sandbox = sandbox
        self._workdir = workdir

    @classmethod
    def default_concurrency(cls) -> Optional[int]:
        return 4 * (os.cpu_count() or 1)

    @classmethod
    def config_files(cls) -> List[str]:
        return []

    @classmethod
    def config_deserialize(cls, config: Dict[str, Any]) -> BaseModel:
        return RametConfig(**config)

    @classmethod
    async def task_init(cls, task_name: str, config: Optional[SandboxEnvironmentConfigType]) -> None:
        await _warmed(_config(config))

    @classmethod
    async def sample_init(
        cls, task_name: str, config: Optional[SandboxEnvironmentConfigType], metadata: Dict[str, str]
    ) -> Dict[str, SandboxEnvironment]:
        c = _config(config)
        [child] = await (await _warmed(c)).sandbox.fork()
        return {"default": cls(child, c.workdir)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: Optional[SandboxEnvironmentConfigType],
        environments: Dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            with contextlib.suppress(ramet.NotFound):
                await environment.as_type(RametSandboxEnvironment).sandbox.destroy()

    @classmethod
    async def task_cleanup(cls, task_name: str, config: Optional[SandboxEnvironmentConfigType], cleanup: bool) -> None:
        making = _warm.pop(_config(config), None)
        if making is None or making.get_loop() is not asyncio.get_running_loop():
            return
        warm = await making
        if not cleanup:
            warm.keep()
            print("sandboxes are kept: `ramet ls --meta owner=inspect` lists them, `inspect sandbox cleanup ramet` ends them")
        await warm.close()

    @classmethod
    async def cli_cleanup(cls, id: Optional[str]) -> None:
        for sandbox in await ramet.AsyncSandbox.list(metadata={"owner": "inspect"}):
            if id is None or id in (sandbox.id, sandbox.name):
                with contextlib.suppress(ramet.NotFound):
                    await sandbox.destroy()

    def _path(self, path: str) -> str:
        return posixpath.join(self._workdir, path)

    async def exec(
        self,
        cmd: List[str],
        input: Union[str, bytes, None] = None,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        user: Optional[str] = None,
        timeout: Optional[int] = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            r = await run_async(
                self.sandbox, cmd, stdin=input, cwd=self._path(cwd or ""), env=env, user=user, timeout=timeout, limit=limit
            )
        except ramet.CommandError as e:  # there is no such program
            return ExecResult(False, 127, "", str(e))
        except ramet.PermissionDenied as e:
            raise PermissionError(str(e)) from e
        except ramet.InvalidRequest as e:
            if user is None:
                raise
            return ExecResult(False, 126, "", str(e))  # there is no such user
        if r.timed_out:
            raise TimeoutError(f"the command was killed after {timeout} s")
        if r.exit_code == 126 and r.stderr.startswith("ramet: "):
            raise PermissionError(r.stderr.strip())  # the program cannot be executed
        if r.truncated or max(len(r.stdout.encode()), len(r.stderr.encode())) > limit:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, max(r.stdout, r.stderr, key=len))
        return ExecResult(r.exit_code == 0, r.exit_code, r.stdout, r.stderr)

    async def write_file(self, file: str, contents: Union[str, bytes]) -> None:
        path = self._path(file)
        await self._check(path)
        try:
            await self.sandbox.files.write(path, contents)
        except ramet.PermissionDenied as e:
            raise PermissionError(str(e)) from e

    async def _check(self, path: str) -> None:
        """Raise IsADirectoryError if it is one."""
        with contextlib.suppress(ramet.NotFound):
            if (await self.sandbox.files.stat(path)).type == "dir":
                raise IsADirectoryError(f"{path} is a directory")

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> Union[str, bytes]:
        path = self._path(file)
        try:
            info = await self.sandbox.files.stat(path)
            if info.type == "dir":
                raise IsADirectoryError(f"{path} is a directory")
            if info.size > SandboxEnvironmentLimits.MAX_READ_FILE_SIZE:
                raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
            contents = await self.sandbox.files.read_bytes(path)
        except ramet.NotFound as e:
            raise FileNotFoundError(f"there is no {path}") from e
        except ramet.PermissionDenied as e:
            raise PermissionError(str(e)) from e
        return contents.decode() if text else contents

    async def connection(self, *, user: Optional[str] = None) -> SandboxConnection:
        option = f" --user {user}" if user else ""
        return SandboxConnection(type="ramet", command=f"ramet exec -it{option} {self.sandbox.id} -- sh")

    async def fork(self, n: int = 1) -> "List[RametSandboxEnvironment]":
        """Make children that have all of this sandbox. They end with the sample, or with their own destroy()."""
        return [RametSandboxEnvironment(child, self._workdir) for child in await self.sandbox.fork(n)]

    async def promote(self, child: "RametSandboxEnvironment") -> None:
        """Go on with the state of a child, which is gone then."""
        await self.sandbox.promote(child.sandbox)
