"""The images that sandboxes are created from."""

from __future__ import annotations

import logging
import os
import sys
from typing import Any, Callable, Iterable, List, Optional

from .. import _wire
from .._errors import Conflict, NotFound
from .._models import Image, Progress, Pruned
from .._types import Seconds, milliseconds, present
from ._transport import AsyncTransport, Query, segment

OnProgress = Callable[[Progress], Any]

# Images that are built where they are missing.
_BUILDS = {"python": {"from": "debian", "include": ["python3", "python3-numpy"]}}


class AsyncImages:
    """The images of a daemon."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, name: Optional[str] = None) -> List[Image]:
        """Return all images, the oldest first."""
        query: Query = [("name", name)] if name is not None else []
        return [Image(item) for item in await self._transport.pages("/v1/images", query)]

    async def get(self, ref: str) -> Image:
        """Return an image by its id or name."""
        return Image(await self._transport.call("GET", f"/v1/images/{segment(ref)}"))

    async def exists(self, ref: str) -> bool:
        """Return whether there is an image of this id or name."""
        try:
            await self.get(ref)
        except NotFound:
            return False
        return True

    async def build(
        self,
        name: str,
        packages: Iterable[str] = (),
        *,
        distribution: str = "debian",
        suite: Optional[str] = None,
        on_progress: Optional[OnProgress] = None,
    ) -> Image:
        """Build an image of packages of a distribution."""
        build = present(**{"from": distribution}, include=list(packages), suite=suite)
        return await self._create({"name": name, "build": build}, on_progress)

    async def pull(self, name: str, ref: str, *, on_progress: Optional[OnProgress] = None) -> Image:
        """Get an image from a registry, and give it a name."""
        return await self._create({"name": name, "ref": ref}, on_progress)

    async def load(
        self, name: str, path: str, *, select: Optional[str] = None, on_progress: Optional[OnProgress] = None
    ) -> Image:
        """Import an archive or a directory of the daemon's machine."""
        return await self._create(present(name=name, path=os.path.abspath(path), select=select), on_progress)

    async def _create(self, request: Any, on_progress: Optional[OnProgress]) -> Image:
        return Image(await with_progress(self._transport, "/v1/images", request, "image", on_progress))

    async def remove(self, ref: str) -> None:
        """Remove an image, or one of its names."""
        await self._transport.call("DELETE", f"/v1/images/{segment(ref)}")

    async def prune(self, *, cache: bool = False, cache_unused: Optional[Seconds] = None) -> Pruned:
        """Remove unused images without a name, and with cache the packages that builds keep."""
        body = present(cache=cache or None, cache_unused_ms=milliseconds(cache_unused, "cache_unused"))
        return Pruned(await self._transport.call("POST", "/v1/images/prune", body=body))

    async def provide(self, name: str) -> bool:
        """Build an image that Ramet knows how to build, if it is missing, and report whether it is there."""
        if name not in _BUILDS:
            return False
        show = _Show(name)
        try:
            await self._create({"name": name, "build": _BUILDS[name]}, show)
        except Conflict:  # another client was faster
            pass
        finally:
            show.end()
        return True


async def with_progress(
    transport: AsyncTransport, path: str, request: Any, last: str, on_progress: Optional[OnProgress]
) -> Any:
    """Send a request whose answer is an event after those of the progress."""
    events = await transport.events("POST", path, body=request)
    try:
        while True:
            event = await events.next()
            if event is None:
                raise _wire.broken("the daemon's answer ended early")
            if event.name == last:
                await events.finish()
                return event.data
            if event.name == "progress" and on_progress is not None:
                on_progress(Progress(event.data))
    finally:
        await events.aclose()


class _Show:
    """Shows the progress of a build at a terminal, and logs its beginning elsewhere."""

    def __init__(self, name: str) -> None:
        self._terminal = sys.stderr is not None and sys.stderr.isatty()
        self._name = name
        logging.getLogger("ramet").info("building the image %s, once", name)

    def __call__(self, progress: Progress) -> None:
        if self._terminal:
            part = f" {progress.done * 100 // progress.total} %" if progress.total else ""
            print(f"\r\x1b[Kbuilding the image {self._name}, once: {progress.phase}{part}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
