"""Much data without much memory, and clients that want more than they may have."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, List

import pytest
from conftest import Daemon

import ramet
from ramet import Sandbox

SMALL = 8 << 20
LARGE = 1 << 30 if os.environ.get("RAMET_TEST_BUILD") == "all" else 64 << 20
GROWTH = 16 << 10
"""How much more memory a client may need for much data than for little, in KiB."""
PIECE = bytes(256 << 10)


def zeros(size: int) -> Iterator[bytes]:
    for _ in range(size // len(PIECE)):
        yield PIECE


async def more_zeros(size: int) -> AsyncIterator[bytes]:
    for piece in zeros(size):
        yield piece


def peak() -> int:
    """Return the most memory that this process ever had, in KiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def stream(id: str, size: int) -> List[int]:
    """Send and receive so many bytes in each way that is not bounded, and return how many they were."""
    with ramet.connect() as client:
        sandbox = client.get(id)
        written = sandbox.files.write("/srv/streamed", zeros(size)).size
        read = sum(len(piece) for piece in sandbox.files.stream("/srv/streamed"))
        put_in = int(sandbox.exec("wc -c", stdin=zeros(size)).stdout)
        put_out = sum(len(chunk.data) for chunk in sandbox.exec(["head", "-c", str(size), "/dev/zero"], stream=True))
        return [written, read, put_in, put_out]


async def stream_async(id: str, size: int) -> List[int]:
    async with ramet.AsyncClient() as client:
        sandbox = await client.get(id)
        written = (await sandbox.files.write("/srv/streamed", more_zeros(size))).size
        read = 0
        async for piece in sandbox.files.stream("/srv/streamed"):
            read += len(piece)
        put_in = int((await sandbox.exec("wc -c", stdin=more_zeros(size))).stdout)
        put_out = 0
        async for chunk in await sandbox.exec(["head", "-c", str(size), "/dev/zero"], stream=True):
            put_out += len(chunk.data)
        return [written, read, put_in, put_out]


def measure(id: str, how: str) -> None:
    """Print how many bytes went each way, and how the memory has grown. This runs in a process of its own."""

    def once(size: int) -> List[int]:
        return asyncio.run(stream_async(id, size)) if how == "async" else stream(id, size)

    small = once(SMALL)
    before = peak()
    print(json.dumps({"small": small, "large": once(LARGE), "grown": peak() - before}))


@pytest.mark.parametrize("how", ["sync", "async"])
def test_streams_need_no_memory_of_their_size(daemon: Daemon, sbx: Sandbox, how: str) -> None:
    env: Any = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    program = f"import test_load; test_load.measure({sbx.id!r}, {how!r})"
    said = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=env, check=True, timeout=600).stdout
    measured = json.loads(said)
    assert (measured["small"], measured["large"]) == ([SMALL] * 4, [LARGE] * 4)
    assert measured["grown"] < GROWTH, f"{measured['grown']} KiB"


def test_a_fork_bomb_of_clients_meets_its_quota(daemon: Daemon, base: Sandbox) -> None:
    most = 12
    with ramet.connect(daemon.unix) as owner:
        owner.request("POST", "/v1/tenants/bombs/images", body={"image": "python"})
        owner.request("PATCH", "/v1/tenants/bombs", body={"quota": {"sandboxes": most}})
        token = owner.request("POST", "/v1/tokens", body={"scope": "admin", "tenant": "bombs"})["secret"]
    refused: List[ramet.RametError] = []
    made: List[Sandbox] = []
    bombs: List[threading.Thread] = []

    def bomb(sandbox: Sandbox) -> None:
        """Fork a sandbox and have its children do the same, until it is refused."""
        while True:
            try:
                children = sandbox.fork(2)
            except ramet.RametError as error:
                refused.append(error)
                return
            made.extend(children)
            for child in children:
                thread = threading.Thread(target=bomb, args=(child,))
                thread.start()
                bombs.append(thread)

    with ramet.connect(daemon.url, token, ca=daemon.ca) as client, client.create("python") as root:
        bomb(root)
        while bombs:  # a thread is in the list as soon as it runs, and its children before it ends
            bombs.pop().join()
        assert most - 1 <= 1 + len(made) <= most and len(refused) == 1 + len(made)
        for error in refused:
            assert isinstance(error, ramet.LimitExceeded) and error.exceeded is not None, repr(error)
            assert (error.exceeded.limit, error.exceeded.of, error.exceeded.max) == ("sandboxes", "tenant bombs", most)
    assert base.exec("echo others").stdout == "others\n"
