"""Secrets of a daemon, and requests of sandboxes that wait for a decision."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional

from .._models import HeldRequest, Secret
from .._types import present
from ._transport import AsyncTransport, segment


class AsyncSecrets:
    """The secrets of a daemon, which it puts into requests outside of sandboxes. Nothing tells their values."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> "List[Secret]":
        """Return the secrets without their values, in the order of their names."""
        return [Secret(item) for item in (await self._transport.call("GET", "/v1/secrets"))["items"]]

    async def set(
        self,
        name: str,
        value: str,
        *,
        names: Iterable[str],
        header: str,
        methods: Optional[Iterable[str]] = None,
        paths: Optional[Iterable[str]] = None,
        plain: bool = False,
    ) -> Secret:
        """Make a secret or replace it.

        It is put into this header of requests to servers with these names, which are no wildcards; with
        methods and paths (a * at the end stands for any rest) only into those. plain is also without TLS.
        """
        body = present(
            value=value, names=list(names), header=header, methods=list(methods) if methods is not None else None,
            paths=list(paths) if paths is not None else None, plain=plain or None,
        )  # fmt: skip
        return Secret(await self._transport.call("PUT", f"/v1/secrets/{segment(name)}", body=body))

    async def remove(self, name: str) -> None:
        """Remove a secret. Sandboxes that have it in their network go without it."""
        await self._transport.call("DELETE", f"/v1/secrets/{segment(name)}")


class AsyncHeld:
    """The requests of a sandbox that wait until somebody decides, or did."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    async def _ask(self, method: str, rest: str, **options: Any) -> "List[HeldRequest]":
        path = f"/v1/sandboxes/{segment(self._sandbox)}/held{rest}"
        return [HeldRequest(item) for item in (await self._transport.call(method, path, sandbox=self._sandbox, **options))["items"]]

    async def list(self) -> "List[HeldRequest]":
        """Return the requests that are or were held."""
        return await self._ask("GET", "")

    async def release(self, id: Optional[str] = None, *, again: bool = False) -> "List[HeldRequest]":
        """Send a request, or all that wait, and return when the servers have answered.

        One whose state is "unknown" may have been sent already: it is only sent with again=True.
        """
        return await self._ask("POST", "/release", body=present(id=id, again=again or None))

    async def drop(self, id: Optional[str] = None) -> "List[HeldRequest]":
        """Make sure that a request, or all that wait, are never sent."""
        return await self._ask("POST", "/drop", body=present(id=id))
