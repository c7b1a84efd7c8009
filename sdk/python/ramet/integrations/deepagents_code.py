"""A provider of sandboxes for Deep Agents Code: `pip install 'ramet[deepagents]'` beside it, and `--sandbox ramet`."""

from __future__ import annotations

from typing import Any, Dict, Optional

from deepagents_code.integrations.sandbox_provider import (
    SandboxError,
    SandboxInstallHint,
    SandboxNotFoundError,
    SandboxProvider,
    SandboxProviderMetadata,
)

import ramet

from .deepagents import RametSandbox

WORKING_DIR = "/workspace"


class RametProvider(SandboxProvider):
    """Makes sandboxes for the command line, of an image or of a snapshot with its processes, and finds those that run.

    A sandbox that it made ends with the program, and a minute later if that is killed. One that was found by its id
    is left alone.
    """

    def __init__(self) -> None:
        self._made: Dict[str, RametSandbox] = {}

    @property
    def metadata(self) -> SandboxProviderMetadata:
        return SandboxProviderMetadata(
            name="ramet",
            working_dir=WORKING_DIR,
            install=SandboxInstallHint(kind="package", name="ramet[deepagents]"),
            supports_snapshot_name=True,
        )

    def get_or_create(
        self, *, sandbox_id: Optional[str] = None, snapshot: Optional[str] = None, image: str = "python", **kwargs: Any
    ) -> RametSandbox:
        """Find a sandbox or make one. kwargs are those of `ramet.Sandbox.create`."""
        try:
            if sandbox_id is not None:
                backend = RametSandbox(ramet.Sandbox.connect(sandbox_id), cwd=WORKING_DIR)
            else:
                backend = RametSandbox.create(snapshot or image, cwd=WORKING_DIR, **kwargs)
                self._made[backend.id] = backend
            backend.sandbox.files.mkdir(WORKING_DIR)
        except ramet.NotFound as e:
            raise SandboxNotFoundError(str(e)) from e
        except ramet.RametError as e:
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
