"""Connections whose reads never hang."""

from __future__ import annotations

import ssl
from typing import Any, Optional

import httpcore

from . import _io
from ._transport import Patience


class AsyncStream(httpcore.AsyncNetworkStream):
    """A connection whose reads go on as long as their probe succeeds."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: Optional[float] = None) -> bytes:
        if not isinstance(timeout, Patience):
            return await self._inner.read(max_bytes, timeout)
        while True:
            try:
                return await self._inner.read(max_bytes, float(timeout))
            except httpcore.ReadTimeout:
                await timeout.probe()

    async def write(self, buffer: bytes, timeout: Optional[float] = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> httpcore.AsyncNetworkStream:
        return AsyncStream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class AsyncBackend(httpcore.AsyncNetworkBackend):
    """Opens connections that are AsyncStreams."""

    def __init__(self) -> None:
        self._inner = _io.network()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: Optional[float] = None,
        local_address: Optional[str] = None,
        socket_options: Any = None,
    ) -> httpcore.AsyncNetworkStream:
        return AsyncStream(await self._inner.connect_tcp(host, port, timeout, local_address, socket_options))

    async def connect_unix_socket(
        self, path: str, timeout: Optional[float] = None, socket_options: Any = None
    ) -> httpcore.AsyncNetworkStream:
        return AsyncStream(await self._inner.connect_unix_socket(path, timeout, socket_options))

    async def sleep(self, seconds: float) -> None:
        await _io.sleep(seconds)
