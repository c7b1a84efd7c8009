"""Volumes of a daemon: directories that outlive sandboxes, and that several share."""

from __future__ import annotations

from typing import List, Optional

from .._models import Volume
from .._types import Size, mebibytes, present
from ._transport import AsyncTransport, segment


class AsyncVolumes:
    """The volumes of a daemon. A sandbox has those that it was created with, and so have its children."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> "List[Volume]":
        """Return the volumes in the order of their names."""
        return [Volume(item) for item in (await self._transport.call("GET", "/v1/volumes"))["items"]]

    async def create(self, name: str, *, size: Optional[Size] = None) -> Volume:
        """Make a volume. size bounds its files, in MiB or as a text such as "2G": 10 GiB if it is not given."""
        body = present(name=name, limit_mib=mebibytes(size, "size"))
        return Volume(await self._transport.call("POST", "/v1/volumes", body=body))

    async def get(self, id: str) -> Volume:
        """Return a volume by its id or name."""
        return Volume(await self._transport.call("GET", f"/v1/volumes/{segment(id)}"))

    async def remove(self, id: str) -> None:
        """Remove a volume with its files. One that a sandbox has is a Conflict."""
        await self._transport.call("DELETE", f"/v1/volumes/{segment(id)}")
