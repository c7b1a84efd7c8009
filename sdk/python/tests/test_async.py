"""The async client, with the real daemon. It has the code of the sync one: this is about concurrency."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any, Callable, Coroutine

import pytest

import ramet
from ramet import AsyncSandbox


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 120))


def test_the_example(daemon: object) -> None:
    async def test() -> None:
        async with await AsyncSandbox.create("python") as base:
            await base.run_code("x = 6")
            async with await base.fork(3) as tries:
                runs = await asyncio.gather(*(t.run_code(f"x * {i}") for i, t in enumerate(tries)))
                assert [r.value for r in runs] == [0, 6, 12]
                await base.promote(tries[2])
            await base.files.write("/srv/a", "1")
            assert [f.path async for f in _each(await base.files.list("/srv"))] == ["/srv/a"]

    run(test)


async def _each(items: list[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


def test_two_hundred_calls_at_once(base: ramet.Sandbox) -> None:
    async def test() -> None:
        async with ramet.AsyncClient() as client:
            sandbox = await client.get(base.id)
            results = await asyncio.gather(*(sandbox.exec(f"echo {i}") for i in range(200)))
            assert [r.stdout for r in results] == [f"{i}\n" for i in range(200)]

    run(test)


def test_streams_and_input(base: ramet.Sandbox) -> None:
    async def test() -> None:
        async with ramet.AsyncClient() as client:
            (sandbox,) = await (await client.get(base.id)).fork()
            async with sandbox:

                async def source() -> AsyncIterator[bytes]:
                    for i in range(100):
                        yield bytes([i]) * 10_000

                assert len((await sandbox.exec("cat", stdin=source())).stdout_bytes) == 1_000_000
                async with await sandbox.exec("echo a; exec sleep 1000", stream=True) as stream:
                    async for chunk in stream:
                        assert chunk.data == b"a\n"
                        break
                process = await sandbox.processes.start("cat", stdin=True)
                await process.write("x", end=True)
                assert (await process.wait()).stdout == "x"
                async with await sandbox.pty() as terminal:
                    await terminal.write("echo $((2*21))\n")
                    assert "42" in await terminal.read_until("42\r\n")
                async with await sandbox.files.watch("/srv") as watch:
                    await sandbox.files.write("/srv/w", "")
                    assert (await watch.__anext__()).changes[0].path == "/srv/w"
                await sandbox.exec("exec python3 -m http.server 8000", background=True)
                port = sandbox.port(8000)
                await port.wait()
                async with await port.forward() as forward:
                    host, _, number = forward.address.rpartition(":")
                    reader, writer = await asyncio.open_connection(host, int(number))
                    writer.write(b"GET / HTTP/1.0\r\n\r\n")
                    assert (await reader.read()).startswith(b"HTTP/1.0 200")
                    writer.close()

    run(test)


def test_cancelling_a_call_ends_the_command(base: ramet.Sandbox) -> None:
    async def test() -> None:
        async with ramet.AsyncClient() as client:
            sandbox = await client.get(base.id)
            task = asyncio.create_task(sandbox.exec(["sleep", "4321"]))
            while not [p for p in await sandbox.processes.list() if "4321" in p.command]:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            deadline = time.monotonic() + 20
            while [p for p in await sandbox.processes.list() if "4321" in p.command]:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            assert (await sandbox.exec("echo on")).stdout == "on\n"

    run(test)


def test_clients_of_event_loops_are_separate(base: ramet.Sandbox) -> None:
    clients: list[ramet.AsyncClient] = []

    async def test() -> None:
        one, other = await AsyncSandbox.connect(base.id), await AsyncSandbox.connect(base.id)
        assert one.client is other.client
        clients.append(one.client)
        assert (await one.exec("echo a")).stdout == "a\n"

    run(test)
    run(test)
    assert clients[0] is not clients[1]


@pytest.mark.parametrize("library", ["asyncio", "trio"])
def test_what_one_task_begins_another_one_ends(base: ramet.Sandbox, library: str) -> None:
    """Forwards are closed in the order in which they were opened, and a lease in another task than it was taken."""
    import anyio

    if library == "trio":
        pytest.importorskip("trio", reason="trio is not installed")

    async def test() -> None:
        clients = []

        async def begin() -> None:
            client = ramet.AsyncClient(lease=60)
            clients.append(await client.__aenter__())

        async with anyio.create_task_group() as group:
            group.start_soon(begin)
        [client] = clients
        sandbox = await (await client.get(base.id)).fork()
        forwards = [await sandbox[0].port(port).forward() for port in (8001, 8002)]
        for forward in forwards:
            await forward.aclose()
        with anyio.move_on_after(0.2) as scope:
            await sandbox[0].exec("cat; exec sleep 1000", stdin=b"x" * 100_000)
        assert scope.cancelled_caught
        await client.aclose()
        assert sandbox[0].state == "destroyed"
        with anyio.fail_after(60):  # the scopes around are as they were
            await anyio.sleep(0)

    anyio.run(test, backend=library)


def test_an_output_goes_on_after_a_cancelled_read(base: ramet.Sandbox) -> None:
    async def test() -> None:
        sandbox = await AsyncSandbox.connect(base.id)
        process = await sandbox.processes.start("read a; echo got $a; read b; echo got $b", stdin=True)
        output = process.output()
        await process.write("1\n")
        assert (await output.__anext__()).text == "got 1\n"
        for _ in range(3):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(output.__anext__(), 0.2)
        await process.write("2\n")
        assert (await output.__anext__()).text == "got 2\n"
        await process.remove()

    run(test)
