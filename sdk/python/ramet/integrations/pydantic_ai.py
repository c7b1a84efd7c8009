"""A workspace of Pydantic AI: `pip install 'ramet[pydantic-ai]'`."""

from __future__ import annotations

import asyncio
import posixpath
from typing import Any, Callable, List, Mapping, Optional, Sequence

from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceCommand,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)
from pydantic_ai.workspaces.protocol import validate_timeout

import ramet

PROVIDER = "ramet"

MAX_OUTPUT = 8 * 1024 * 1024
"""Characters that a command may write. One that writes more is killed."""

_BEGINNING = 64 * 1024


class _Written:
    """What a command writes."""

    def __init__(self) -> None:
        self.stdout: List[str] = []
        self.stderr: List[str] = []
        self._size = 0

    def keeps(self, kept: List[str]) -> Callable[[str], None]:
        def keep(text: str) -> None:
            self._size += len(text)
            kept.append(text)
            if self._size > MAX_OUTPUT:  # what is raised here ends the command
                raise WorkspaceOutputLimitError(
                    f"the command was killed after {MAX_OUTPUT >> 20} MiB of output; "
                    "redirect the output to a file and read part of it instead",
                    limit=MAX_OUTPUT, stdout="".join(self.stdout)[:_BEGINNING], stderr="".join(self.stderr)[:_BEGINNING],
                )  # fmt: skip

        return keep


class RametWorkspaceBackend:
    """A sandbox that an agent works in, by commands and files, and its forks.

    It is made by the first operation, or is the one that `ref` names. As the protocol wants it, it does not
    end with a run: `ttl` (seconds; an hour unless it is given) or `destroy` ends it.

    ```python
    from pydantic_ai import Agent
    from pydantic_ai.workspaces import Workspace
    from ramet.integrations.pydantic_ai import RametWorkspaceBackend

    backend = RametWorkspaceBackend("python")
    agent = Agent(model, workspace=Workspace(backend))
    first, second = await backend.fork(2)  # with all that the agent has done, for two ways to go on
    ```
    """

    def __init__(
        self,
        image: str = "python",
        *,
        ref: Optional[WorkspaceRef] = None,
        working_dir: str = "/workspace",
        ttl: Optional[float] = 3600.0,
        **options: Any,
    ) -> None:
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(f"the workspace is one of {ref.provider}, not of {PROVIDER}")
        self._image = image
        self._ref = ref
        self._dir = posixpath.normpath(working_dir)
        self._options = {"ttl": ttl, **options}
        self._sandbox: Optional[ramet.AsyncSandbox] = None
        self._making: "Optional[asyncio.Task[ramet.AsyncSandbox]]" = None

    @property
    def ref(self) -> Optional[WorkspaceRef]:
        return self._ref

    async def sandbox(self) -> "ramet.AsyncSandbox":
        """The sandbox, which is made or looked for if this has not been done yet."""
        if self._sandbox is None:
            if self._making is None:
                # A caller that is cancelled does not end it: the sandbox must not be lost.
                self._making = asyncio.ensure_future(self._make())
            try:
                self._sandbox = await asyncio.shield(self._making)
            finally:
                if self._making is not None and self._making.done():
                    self._making = None
        return self._sandbox

    async def _make(self) -> "ramet.AsyncSandbox":
        if self._ref is not None:
            try:
                sandbox = await ramet.AsyncSandbox.connect(self._ref.id)
            except ramet.NotFound as e:
                raise WorkspaceUnavailableError(str(e)) from e
        else:
            labels = {"owner": "pydantic-ai", **(self._options.get("metadata") or {})}
            sandbox = await ramet.AsyncSandbox.create(self._image, **{**self._options, "metadata": labels})
            sandbox.detach()  # it does not end with this object
            self._ref = WorkspaceRef(provider=PROVIDER, id=sandbox.id)
        await sandbox.files.mkdir(self._dir)
        return sandbox

    async def working_dir(self) -> str:
        await self.sandbox()
        return self._dir

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> CommandResult:
        if isinstance(command, str) != shell:
            raise TypeError("a text needs shell=True, and a sequence of arguments shell=False")
        validate_timeout(timeout)
        argv = ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
        out = _Written()
        try:
            r = await (await self.sandbox()).exec(
                argv, cwd=self._dir, env=env, timeout=timeout,
                on_stdout=out.keeps(out.stdout), on_stderr=out.keeps(out.stderr),
            )  # fmt: skip
        except ramet.Timeout as e:
            raise WorkspaceTimeoutError(str(e), stdout="".join(out.stdout), stderr="".join(out.stderr)) from e
        except ramet.RametError as e:
            raise _gone(e) from e
        return CommandResult(exit_code=r.exit_code, stdout="".join(out.stdout), stderr="".join(out.stderr))

    async def read_bytes(self, path: str) -> bytes:
        info = await self._info(path)
        if info.type == "dir":
            raise IsADirectoryError(path)
        if info.type != "file":
            raise OSError(f"{path} is a {info.type}")
        return await self._file((await self.sandbox()).files.read_bytes(path), path)

    async def write_bytes(self, path: str, data: bytes) -> None:
        if await self._kind(path) == "dir":
            raise IsADirectoryError(path)
        await self._parents(path)
        await self._file((await self.sandbox()).files.write(path, data), path)

    async def stat(self, path: str) -> FileEntry:
        info = await self._info(path)
        return FileEntry(
            name=posixpath.basename(path),
            path=path,
            is_dir=info.type == "dir",
            size=info.size if info.type == "file" else None,
        )

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        info = await self._info(path)
        if info.type != "dir":
            raise NotADirectoryError(path)
        out: List[FileEntry] = []
        for f in await self._file((await self.sandbox()).files.list(path), path):
            kind: Optional[str] = f.type
            if kind == "symlink":
                kind = await self._kind(f.path)
            out.append(
                FileEntry(
                    name=posixpath.basename(f.path),
                    path=f.path,
                    is_dir=kind == "dir",
                    size=f.size if f.type == "file" else None,
                )
            )
        return out

    async def make_dir(self, path: str) -> None:
        kind = await self._kind(path)
        if kind == "dir":
            return
        if kind is not None:
            raise FileExistsError(path)
        await self._parents(path)
        await self._file((await self.sandbox()).files.mkdir(path), path)

    async def remove(self, path: str) -> None:
        path = posixpath.normpath(path)
        if self._dir == path or self._dir.startswith(path.rstrip("/") + "/"):
            raise ValueError(f"{path} has the working directory")
        await self._file((await self.sandbox()).files.remove(path, recursive=True), path)

    async def exists(self, path: str) -> bool:
        return await self._kind(path) is not None

    async def fork(self, n: int = 1) -> "List[RametWorkspaceBackend]":
        """Make children that have all of this sandbox. Each ends by its ttl, or by its own `destroy`."""
        out = []
        for child in await (await self.sandbox()).fork(n, ttl=self._options.get("ttl")):
            child.detach()
            ref = WorkspaceRef(provider=PROVIDER, id=child.id)
            out.append(RametWorkspaceBackend(self._image, ref=ref, working_dir=self._dir, **self._options))
        return out

    async def promote(self, child: "RametWorkspaceBackend") -> None:
        """Go on with the state of a child, which is gone then."""
        await (await self.sandbox()).promote(await child.sandbox())

    async def destroy(self) -> None:
        """End the sandbox, if there is one."""
        if self._ref is None and self._making is None:
            return
        try:
            await (await self.sandbox()).destroy()
        except (ramet.NotFound, WorkspaceUnavailableError):
            pass  # it has ended already

    async def _info(self, path: str) -> Any:
        return await self._file((await self.sandbox()).files.stat(path), path)

    async def _kind(self, path: str) -> Optional[str]:
        """The type of what a path leads to; None if that is nothing."""
        try:
            return str((await self._info(path)).type)
        except (FileNotFoundError, NotADirectoryError, OSError) as e:
            if isinstance(e, PermissionError):
                raise
            return None

    async def _parents(self, path: str) -> None:
        """Raise NotADirectoryError if one of the directories above is none."""
        while (path := posixpath.dirname(path)) != "/":
            kind = await self._kind(path)
            if kind == "dir":
                return
            if kind is not None:
                raise NotADirectoryError(path)

    async def _file(self, operation: Any, path: str) -> Any:
        """The result of an operation, whose errors are those of files."""
        try:
            return await operation
        except ramet.SandboxGone as e:
            raise _gone(e) from e
        except ramet.NotFound as e:
            raise FileNotFoundError(path) from e
        except ramet.PermissionDenied as e:
            raise PermissionError(path) from e
        except ramet.InvalidRequest as e:
            raise OSError(str(e)) from e
        except ramet.RametError as e:
            raise _gone(e) from e


def _gone(e: "ramet.RametError") -> Exception:
    """The error that says that there is no sandbox any more, if e does."""
    if isinstance(e, ramet.SandboxGone) or e.code in ("sandbox_died", "wrong_state"):
        return WorkspaceUnavailableError(str(e))
    return e
