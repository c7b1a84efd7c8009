"""Sandboxes of Deep Agents Code: `pip install 'ramet[deepagents]'` beside it, and `dcode --sandbox ramet`."""

from __future__ import annotations

from typing import Any, Dict, Optional

from deepagents_code.integrations.sandbox_provider import (
    SandboxError,
    SandboxNotFoundError,
    SandboxProvider,
    SandboxProviderMetadata,
)

import ramet

from . import _owned
from ._run import TIMEOUT
from .deepagents import RametSandbox

WORKING_DIR = "/workspace"


class RametSandboxProvider(SandboxProvider):
    """Makes sandboxes of Ramet for the command line, and finds those that run.

    A sandbox that it made ends with the program, and a minute later if that is killed. One that was found by its id
    is left alone.
    """

    def __init__(self) -> None:
        self._made: Dict[str, RametSandbox] = {}

    @property
    def metadata(self) -> SandboxProviderMetadata:
        return SandboxProviderMetadata(name="ramet", working_dir=WORKING_DIR, supports_snapshot_name=True)

    def get_or_create(
        self,
        *,
        sandbox_id: Optional[str] = None,
        snapshot: Optional[str] = None,
        image: str = "python",
        timeout: float = TIMEOUT,
        **kwargs: Any,
    ) -> RametSandbox:
        """Find a sandbox, or make one: of a snapshot with its processes, or of an image.

        kwargs are the options of `ramet.Sandbox.create`, or of `ramet.Snapshot.restore`.
        """
        try:
            if sandbox_id is not None:
                return RametSandbox(ramet.Sandbox.connect(sandbox_id), cwd=WORKING_DIR, timeout=timeout)
            if snapshot is not None:
                client, sandbox = _owned.restore("deepagents", snapshot, **kwargs)
            else:
                client, sandbox = _owned.create("deepagents", image, **kwargs)
        except ramet.NotFound as e:
            raise SandboxNotFoundError(str(e)) from e
        except ramet.RametError as e:
            raise SandboxError(str(e)) from e
        backend = RametSandbox(sandbox, cwd=WORKING_DIR, timeout=timeout)
        backend._client = client
        self._made[sandbox.id] = backend
        try:
            sandbox.files.mkdir(WORKING_DIR)
        except ramet.RametError as e:
            self.delete(sandbox_id=sandbox.id)
            raise SandboxError(str(e)) from e
        return backend

    def delete(self, *, sandbox_id: str, **kwargs: Any) -> None:
        """Destroy a sandbox with its children. It is no error that it has ended."""
        made = self._made.pop(sandbox_id, None)
        try:
            if made is not None:
                made.close()
            else:
                ramet.Sandbox.connect(sandbox_id).destroy()
        except ramet.NotFound:
            pass
        except ramet.RametError as e:
            raise SandboxError(str(e)) from e
