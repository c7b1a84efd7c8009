"""Sandboxes that live as long as the program that an adapter is part of."""

from __future__ import annotations

import contextlib
from typing import Any, AsyncIterator, Optional, Tuple

import ramet

LEASE = 60.0
"""Seconds after which the sandboxes of a killed program end."""


def create(owner: str, image: str, *, lease: float = LEASE, **options: Any) -> "Tuple[ramet.Client, ramet.Sandbox]":
    """Make a sandbox with the label of an owner, and the client that renews its lease until end() is called."""
    client = ramet.Client(owner=owner, lease=lease)
    client.__enter__()
    try:
        return client, ramet.Sandbox.create(image, client=client, **options)
    except BaseException:
        client.close()
        raise


def end(client: "Optional[ramet.Client]", sandbox: "ramet.Sandbox") -> None:
    """Destroy a sandbox and its children, and close the client if it is of create()."""
    try:
        sandbox.__exit__(None, None, None)
    finally:
        if client is not None:
            client.close()


async def create_async(
    owner: str, image: str, *, lease: float = LEASE, **options: Any
) -> "Tuple[ramet.AsyncClient, ramet.AsyncSandbox]":
    """create() for programs of asyncio. The lease may be ended by another task than the one that began it."""
    client = ramet.AsyncClient(owner=owner, lease=lease)
    await client.__aenter__()
    try:
        return client, await ramet.AsyncSandbox.create(image, client=client, **options)
    except BaseException:
        await client.aclose()
        raise


async def end_async(client: "Optional[ramet.AsyncClient]", sandbox: "Optional[ramet.AsyncSandbox]") -> None:
    """end() for programs of asyncio."""
    try:
        if sandbox is not None:
            await sandbox.__aexit__(None, None, None)
    finally:
        if client is not None:
            await client.aclose()


@contextlib.asynccontextmanager
async def asynchronous(sandbox: "ramet.Sandbox") -> "AsyncIterator[ramet.AsyncSandbox]":
    """The same sandbox for a task of asyncio, whose calls end when the task is cancelled."""
    client = ramet.AsyncClient._of(sandbox.client._config)
    try:
        yield ramet.AsyncSandbox(client, sandbox._info)
    finally:
        await client.aclose()
