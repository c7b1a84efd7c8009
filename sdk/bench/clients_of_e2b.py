"""Measures a daemon by the unmodified client of E2B: medians in milliseconds, a line for each. See bench.py."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any, Callable, List

from e2b import AsyncSandbox, Sandbox
from e2b_code_interpreter import Sandbox as Interpreter

CLIENTS = 50


def median(call: Callable[[], Any], times: int) -> str:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return f"{statistics.median(took) * 1000:.1f}"


async def many() -> None:
    async def one(i: int) -> None:
        sandbox = await AsyncSandbox.create("base", timeout=120)
        try:
            assert (await sandbox.commands.run(f"echo {i}")).stdout == f"{i}\n"
        finally:
            await sandbox.kill()

    await asyncio.gather(*(one(i) for i in range(CLIENTS)))


made: List[Sandbox] = []
interpreter = Interpreter.create("code-interpreter-v1", timeout=600, request_timeout=900)  # it is made now, if need be
interpreter.run_code("1")
Sandbox.create("base", timeout=600, request_timeout=900).kill()
print("create", median(lambda: made.append(Sandbox.create("base", timeout=600)), 20))
print("commands.run", median(lambda: made[0].commands.run("true"), 100))
print("run_code", median(lambda: interpreter.run_code("1+1"), 100))
print("fork(10)", median(lambda: made.extend(made[0].fork(count=10)), 5))
for sandbox in made:
    sandbox.kill()
interpreter.kill()
print(f"{CLIENTS} at once", median(lambda: asyncio.run(many()), 1))
