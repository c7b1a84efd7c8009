"""A sandbox backend of deepagents: `pip install 'ramet[deepagents]'`."""

from __future__ import annotations

import posixpath
from types import TracebackType
from typing import Any, List, Optional, Tuple, Type

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

import ramet

from . import _owned
from ._run import TIMEOUT, Ran, run, run_async


class RametSandbox(BaseSandbox):
    """A sandbox for an agent, and its forks.

    Commands run as the sandbox's own user, and in `cwd`. One that runs longer than its timeout (seconds; half an
    hour unless it is given) is killed with its process group, and has the exit code 124. Of the output the
    first and the last 2 MiB are kept. Connections of `create` renew a lease: the sandbox ends a minute
    after its program, also if that is killed.

    ```python
    from deepagents import create_deep_agent
    from ramet.integrations.deepagents import RametSandbox

    with RametSandbox.create("python") as backend:
        agent = create_deep_agent(model=model, backend=backend)
        first, second = backend.fork(2)  # with all that the agent has done, for two ways to go on
    ```
    """

    def __init__(self, sandbox: "ramet.Sandbox", *, cwd: Optional[str] = None, timeout: float = TIMEOUT) -> None:
        self.sandbox = sandbox
        self._cwd = cwd
        self._timeout = timeout
        self._client: Optional[ramet.Client] = None

    @classmethod
    def create(
        cls, image: str = "python", *, cwd: Optional[str] = None, timeout: float = TIMEOUT, **options: Any
    ) -> "RametSandbox":
        """Make a sandbox, which ends with `close` or with this program. options are those of `ramet.Sandbox.create`."""
        client, sandbox = _owned.create("deepagents", image, **options)
        backend = cls(sandbox, cwd=cwd, timeout=timeout)
        backend._client = client
        return backend

    @property
    def id(self) -> str:
        return self.sandbox.id

    def execute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        limit = self._limit(timeout)
        return _answer(run(self.sandbox, command, cwd=self._cwd, timeout=limit, merged=True), limit)

    async def aexecute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        """execute() whose command is killed if the task is cancelled."""
        limit = self._limit(timeout)
        async with _owned.asynchronous(self.sandbox) as sandbox:
            return _answer(await run_async(sandbox, command, cwd=self._cwd, timeout=limit, merged=True), limit)

    def _limit(self, timeout: Optional[int]) -> float:
        return self._timeout if timeout is None else float(timeout)

    def upload_files(self, files: List[Tuple[str, bytes]]) -> List[FileUploadResponse]:
        out = []
        for path, content in files:
            error: Any = None
            if not posixpath.isabs(path):
                error = "invalid_path"
            else:
                try:
                    self.sandbox.files.write(path, content)
                except ramet.RametError as e:
                    error = self._error(path, e)
            out.append(FileUploadResponse(path=path, error=error))
        return out

    def download_files(self, paths: List[str]) -> List[FileDownloadResponse]:
        out = []
        for path in paths:
            if not posixpath.isabs(path):
                out.append(FileDownloadResponse(path=path, error="invalid_path"))
                continue
            try:
                out.append(FileDownloadResponse(path=path, content=self.sandbox.files.read_bytes(path)))
            except ramet.RametError as e:
                out.append(FileDownloadResponse(path=path, error=self._error(path, e)))
        return out

    def _error(self, path: str, e: ramet.RametError) -> str:
        """The name of an error that models know, or its text."""
        if isinstance(e, ramet.SandboxGone):
            raise e
        if isinstance(e, ramet.NotFound):
            return "file_not_found"
        if isinstance(e, ramet.PermissionDenied):
            return "permission_denied"
        try:
            if self.sandbox.files.stat(path).type == "dir":
                return "is_directory"
        except ramet.RametError:
            pass  # then it is none
        return str(e)

    def fork(self, n: int = 1, **options: Any) -> "List[RametSandbox]":
        """Make children that have all of this sandbox: files, memory and processes. They end with it."""
        return [type(self)(child, cwd=self._cwd, timeout=self._timeout) for child in self.sandbox.fork(n, **options)]

    def promote(self, child: "RametSandbox") -> None:
        """Go on with the state of a child, which is gone then."""
        self.sandbox.promote(child.sandbox)

    def close(self) -> None:
        """Destroy the sandbox and its children."""
        _owned.end(self._client, self.sandbox)

    def __enter__(self) -> "RametSandbox":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


def _answer(ran: Ran, limit: float) -> ExecuteResponse:
    output = ran.stdout
    if ran.timed_out:
        output += f"\nThe command was killed after {limit:g} s."
    return ExecuteResponse(output=output, exit_code=ran.exit_code, truncated=ran.truncated)
