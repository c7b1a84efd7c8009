"""A sandbox backend of deepagents: `pip install 'ramet[deepagents]'`."""

from __future__ import annotations

import posixpath
from types import TracebackType
from typing import Any, List, Optional, Tuple, Type

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

import ramet

# Characters of an output that are kept: the beginning and the end.
MAX_OUTPUT = 4 * 1024 * 1024
TIMEOUT = 30 * 60.0


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
        client = ramet.Client(owner="deepagents", lease=60)
        client.__enter__()
        try:
            backend = cls(ramet.Sandbox.create(image, client=client, **options), cwd=cwd, timeout=timeout)
        except BaseException:
            client.close()
            raise
        backend._client = client
        return backend

    @property
    def id(self) -> str:
        return self.sandbox.id

    def execute(self, command: str, *, timeout: Optional[int] = None) -> ExecuteResponse:
        output = _Output()
        limit = self._timeout if timeout is None else float(timeout)
        try:
            result = self.sandbox.exec(
                ["/bin/sh", "-c", command],
                cwd=self._cwd,
                timeout=limit or None,
                on_stdout=output.add,
                on_stderr=output.add,
            )
        except ramet.Timeout:
            output.add(f"\nThe command was killed after {limit:g} s.")
            return ExecuteResponse(output=output.text(), exit_code=124, truncated=output.cut)
        return ExecuteResponse(output=output.text(), exit_code=result.exit_code, truncated=output.cut)

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
        try:
            self.sandbox.__exit__(None, None, None)
        finally:
            if self._client is not None:
                self._client.close()

    def __enter__(self) -> "RametSandbox":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


class _Output:
    """The beginning and the end of an output."""

    def __init__(self) -> None:
        self._begin: List[str] = []
        self._end: List[str] = []
        self._room = MAX_OUTPUT // 2
        self._size = 0
        self.cut = False

    def add(self, text: str) -> None:
        head, text = text[: self._room], text[self._room :]
        if head:
            self._begin.append(head)
            self._room -= len(head)
        if not text:
            return
        self._end.append(text)
        self._size += len(text)
        while self._size - len(self._end[0]) >= MAX_OUTPUT // 2:
            self._size -= len(self._end.pop(0))
            self.cut = True

    def text(self) -> str:
        end = "".join(self._end)
        if len(end) > MAX_OUTPUT // 2:
            end, self.cut = end[-MAX_OUTPUT // 2 :], True
        return "".join(self._begin) + ("\n[…]\n" if self.cut else "") + end
