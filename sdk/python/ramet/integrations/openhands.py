"""A workspace of the OpenHands SDK: `pip install 'ramet[openhands]'`."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any, List, Optional, Union

from openhands.sdk.git.exceptions import GitCommandError, GitPathError, GitRepositoryError
from openhands.sdk.git.models import GitChange, GitChangeStatus, GitDiff
from openhands.sdk.workspace.base import BaseWorkspace
from openhands.sdk.workspace.models import CommandResult, FileOperationResult
from pydantic import Field, PrivateAttr

import ramet

from . import _owned
from ._run import run

MAX_DIFF = 1024 * 1024
"""Bytes of a file whose difference is shown, as with the framework's own workspaces."""

# What changes are compared with: where the branch left that of the origin, or else the last commit, or nothing.
_BASE = """
for ref in '@{upstream}' origin/HEAD origin/main origin/master; do
  base=$(git merge-base HEAD "$ref" 2>/dev/null) && { echo "$base"; exit; }
done
git rev-parse --verify -q HEAD || git hash-object -t tree /dev/null
"""

_STATUS = {"A": GitChangeStatus.ADDED, "D": GitChangeStatus.DELETED}


class RametWorkspace(BaseWorkspace):
    """A sandbox as a workspace: commands, files and what git says of them.

    It ends with the block, or a minute after its program if that is killed. A command whose time is over is killed
    with its process group.

    ```python
    from ramet.integrations.openhands import RametWorkspace

    with RametWorkspace(image="python") as workspace:
        workspace.execute_command("python3 -m pytest")
        first, second = workspace.fork(2)  # with all that was done in it
    ```
    """

    working_dir: str = "/workspace"
    image: str = "python"
    options: "dict[str, Any]" = Field(default_factory=dict, description="Those of ramet.Sandbox.create.")
    sandbox_id: Optional[str] = Field(default=None, description="A sandbox that the caller ends, in place of a new one.")

    _sandbox: Any = PrivateAttr(default=None)
    _client: Any = PrivateAttr(default=None)

    @property
    def sandbox(self) -> "ramet.Sandbox":
        """The sandbox, which is made if there is none yet."""
        if self._sandbox is None:
            if self.sandbox_id is not None:
                self._sandbox = ramet.Sandbox.connect(self.sandbox_id)
            else:
                self._client, self._sandbox = _owned.create("openhands", self.image, **self.options)
            self._sandbox.files.mkdir(self.working_dir)
        found: ramet.Sandbox = self._sandbox
        return found

    def __enter__(self) -> "RametWorkspace":
        self.sandbox  # it is made now
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        self._send_completion_callback(exc_type, exc_val)
        self.close()

    def close(self) -> None:
        """Destroy the sandbox, if it is this workspace's, and its forks."""
        sandbox, client = self._sandbox, self._client
        self._sandbox = self._client = None
        if client is not None:
            _owned.end(client, sandbox)

    def execute_command(self, command: str, cwd: Union[str, Path, None] = None, timeout: float = 30.0) -> CommandResult:
        ran = run(self.sandbox, ["/bin/bash", "-c", command], cwd=self._path(cwd or ""), timeout=timeout)
        return CommandResult(
            command=command, exit_code=ran.exit_code, stdout=ran.stdout, stderr=ran.stderr, timeout_occurred=ran.timed_out
        )

    def _path(self, path: Union[str, Path]) -> str:
        return posixpath.normpath(posixpath.join(self.working_dir, str(path)))

    def file_upload(self, source_path: Union[str, Path], destination_path: Union[str, Path]) -> FileOperationResult:
        said = {"source_path": str(source_path), "destination_path": str(destination_path)}
        try:
            size = self.sandbox.files.upload(source_path, self._path(destination_path))
        except (ramet.RametError, OSError) as e:
            return FileOperationResult(success=False, error=str(e), **said)
        return FileOperationResult(success=True, file_size=size, **said)

    def file_download(self, source_path: Union[str, Path], destination_path: Union[str, Path]) -> FileOperationResult:
        said = {"source_path": str(source_path), "destination_path": str(destination_path)}
        there = Path(destination_path)
        try:
            there.parent.mkdir(parents=True, exist_ok=True)
            self.sandbox.files.download(self._path(source_path), there)
            size = there.stat().st_size
        except (ramet.RametError, OSError) as e:
            return FileOperationResult(success=False, error=str(e), **said)
        return FileOperationResult(success=True, file_size=size, **said)

    def _git(self, directory: str, *command: str) -> str:
        r = self.sandbox.exec(["git", "-c", "safe.directory=*", *command], cwd=directory)
        if not r.ok:
            raise GitCommandError(message=r.stderr.strip(), command=["git", *command], exit_code=r.exit_code, stderr=r.stderr)
        return r.stdout

    def _repository(self, directory: str) -> "tuple[str, str]":
        """The top of a repository, and what changes in it are compared with."""
        try:
            top = self._git(directory, "rev-parse", "--show-toplevel").strip()
        except (GitCommandError, ramet.NotFound, ramet.CommandError, ramet.InvalidRequest) as e:
            raise GitRepositoryError(f"Not a git repository: {directory}: {e}") from e
        env = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
        return top, self.sandbox.exec(_BASE, cwd=top, env=env, check=True).stdout.strip()

    def git_changes(self, path: Union[str, Path]) -> List[GitChange]:
        top, base = self._repository(self._path(path))
        words = self._git(top, "diff", "--name-status", "--no-renames", "-z", base).split("\0")
        found = [(_STATUS.get(s, GitChangeStatus.UPDATED), name) for s, name in zip(words[::2], words[1::2])]
        others = self._git(top, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
        found += [(GitChangeStatus.ADDED, name) for name in others if name]
        return [GitChange(status=status, path=Path(name)) for status, name in sorted(found, key=lambda f: f[1])]

    def git_diff(self, path: Union[str, Path]) -> GitDiff:
        file = self._path(path)
        directory = posixpath.dirname(file)
        while directory != "/" and not self.sandbox.files.exists(directory):
            directory = posixpath.dirname(directory)  # it was removed with its directory
        top, base = self._repository(directory)
        name = posixpath.relpath(file, top)
        original = modified = None
        if self.sandbox.files.exists(file):
            size = self.sandbox.files.stat(file).size
            if size > MAX_DIFF:
                raise GitPathError(f"File too large for git diff: {size} bytes (max: {MAX_DIFF} bytes)")
            modified = self.sandbox.files.read_bytes(file).decode(errors="replace")
        try:
            original = self._git(top, "show", f"{base}:{name}")
        except GitCommandError as e:
            if modified is None:
                raise GitPathError(f"File does not exist: {file}") from e
        return GitDiff(modified=modified or "", original=original or "")

    def pause(self) -> None:
        """Stop all processes. Memory stays where it is."""
        self.sandbox.pause()

    def resume(self) -> None:
        self.sandbox.resume()

    def fork(self, n: int = 1, **options: Any) -> "List[RametWorkspace]":
        """Make workspaces whose sandboxes have all of this one: files, memory and processes. They end with it."""
        out = []
        for child in self.sandbox.fork(n, **options):
            made = RametWorkspace(working_dir=self.working_dir, image=self.image, options=self.options, sandbox_id=child.id)
            made._sandbox = child
            out.append(made)
        return out

    def promote(self, child: "RametWorkspace") -> None:
        """Go on with the state of a fork, which is gone then."""
        self.sandbox.promote(child.sandbox)
