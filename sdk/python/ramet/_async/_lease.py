"""Sandboxes that live as long as their client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional

from .._errors import NotFound, RametError
from .._types import invalid, milliseconds, text_env
from . import _io
from ._transport import AsyncTransport, segment

if TYPE_CHECKING:
    from ._sandbox import AsyncSandbox

OWNER = "owner"
"""The label that says whose a sandbox is."""


class AsyncLease:
    """Renews the time to live of a client's sandboxes, and ends them with the client.

    If the client is killed, nobody renews it any more, and the daemon ends them.
    """

    def __init__(self, transport: AsyncTransport, seconds: float) -> None:
        if (milliseconds(seconds, "lease") or 0) < 1000:
            raise invalid("lease", f"{seconds:g} s is less than 1 s, in which a lease cannot be renewed in time")
        self.seconds = seconds
        self._transport = transport
        self._sandboxes: Dict[str, AsyncSandbox] = {}
        self._task: Optional[_io.Task] = None
        self._end = _io.Signal()

    async def start(self) -> None:
        """Begin to renew."""
        self._task = _io.Task()
        await self._task.start(self._renew)

    def check(self) -> None:
        """Raise an error unless somebody renews."""
        if self._task is None:
            raise invalid("lease", "its client has to be used with `with`, which renews it until the end of the block")

    def add(self, sandbox: "AsyncSandbox") -> None:
        """Renew the time of a sandbox, too."""
        self._sandboxes[sandbox.id] = sandbox

    async def aclose(self) -> None:
        """End the sandboxes that are left, but for those that are to be kept."""
        if self._task is None:
            return
        self._end.set()
        task, self._task = self._task, None
        await task.stop()
        for sandbox in list(self._sandboxes.values()):
            try:
                if sandbox._detached:
                    await self._set(sandbox, 0)
                elif sandbox.state != "destroyed":
                    await sandbox.destroy()
            except RametError:
                pass  # it is gone, or the daemon does not answer: then it ends when its time is over
        self._sandboxes.clear()

    async def _renew(self) -> None:
        while not await self._end.wait(self.seconds / 3):
            for id, sandbox in list(self._sandboxes.items()):
                try:
                    await self._set(sandbox, 0 if sandbox._detached else self.seconds)
                    if sandbox._detached:
                        del self._sandboxes[id]
                except NotFound:
                    self._sandboxes.pop(id, None)
                except RametError:
                    pass  # the daemon is being replaced: there are two more times

    async def _set(self, sandbox: "AsyncSandbox", seconds: float) -> None:
        body: Any = {"lifecycle": {"ttl_ms": milliseconds(seconds, "lease")}}
        await self._transport.call("PATCH", f"/v1/sandboxes/{segment(sandbox.id)}", body=body)


def labels(metadata: Optional[Mapping[str, str]], owner: Optional[str]) -> Optional[Dict[str, str]]:
    """Return the labels of a sandbox that a client makes. A child has those of its parent, too."""
    return text_env(metadata) if owner is None else {**(metadata or {}), OWNER: owner}
