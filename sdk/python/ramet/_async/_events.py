"""The event log of sandboxes."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional

from .._errors import Interrupted
from .._models import Event, NetworkLogEntry
from ._transport import AsyncEventStream, AsyncTransport, Query


class AsyncEvents:
    """Events: an iterator that goes on at a new daemon. Events that are not kept any more are one with `lost`."""

    def __init__(
        self, transport: AsyncTransport, path: str, sandbox: Optional[str], kinds: Iterable[str], since: int, follow: bool
    ) -> None:
        self._transport = transport
        self._path = path
        self._sandbox = sandbox
        self._kinds = list(kinds)
        self._since = since
        self._follow = follow
        self._events: Optional[AsyncEventStream] = None

    async def __aenter__(self) -> "AsyncEvents":
        await self._open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> "AsyncEvents":
        return self

    async def __anext__(self) -> Event:
        return Event(await self._next())

    async def _next(self) -> Mapping[str, Any]:
        tries = 0
        while True:
            try:
                event = await (await self._open()).next()
            except Interrupted:
                await self.aclose()
                tries += 1
                if tries > 3:
                    raise
                continue
            if event is None or event.name == "end":
                if self._events is not None:
                    await self._events.finish()
                self._events = None
                raise StopAsyncIteration
            if event.name == "event":
                data: Mapping[str, Any] = event.data
                self._since = data["seq"]
                return data

    async def _open(self) -> AsyncEventStream:
        if self._events is None:
            query: Query = [("follow", "true" if self._follow else "false"), ("since", str(self._since))]
            query += [("kind", kind) for kind in self._kinds]
            self._events = await self._transport.events("GET", self._path, query=query, sandbox=self._sandbox)
        return self._events

    async def aclose(self) -> None:
        """Stop reading."""
        if self._events is not None:
            events, self._events = self._events, None
            await events.aclose()


class AsyncNetworkLog:
    """Decisions about connections: an iterator of NetworkLogEntry."""

    def __init__(self, transport: AsyncTransport, path: str, sandbox: str, follow: bool) -> None:
        self._transport = transport
        self._path = path
        self._sandbox = sandbox
        self._follow = follow
        self._events: Optional[AsyncEventStream] = None

    async def __aenter__(self) -> "AsyncNetworkLog":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> "AsyncNetworkLog":
        return self

    async def __anext__(self) -> NetworkLogEntry:
        if self._events is None:
            query: Query = [("follow", "true")] if self._follow else []
            self._events = await self._transport.events("GET", self._path, query=query, sandbox=self._sandbox)
        while True:
            event = await self._events.next()
            if event is None or event.name == "end":
                if self._events is not None:
                    await self._events.finish()
                self._events = None
                raise StopAsyncIteration
            if event.name == "event":
                return NetworkLogEntry(event.data)

    async def aclose(self) -> None:
        """Stop reading."""
        if self._events is not None:
            events, self._events = self._events, None
            await events.aclose()
