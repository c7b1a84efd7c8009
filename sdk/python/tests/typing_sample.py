"""Code of users, which type checkers must understand: it is checked by tools/test.sh and not run."""

from __future__ import annotations

from typing import List, Optional

import ramet
from ramet import AsyncSandbox, Chunk, Execution, Result, Rich, Sandbox, Snapshot


def sync() -> None:
    with Sandbox.create("python", memory="1G", network=["a.example"], ttl=60) as base:
        result: Result = base.exec("x", check=True)
        text: str = result.stdout
        with base.exec(["x"], stream=True) as stream:
            chunks: List[Chunk] = [chunk for chunk in stream]
        process: ramet.Process = base.exec("x", background=True)
        ended: Result = process.wait()
        run: Execution = base.run_code(text)
        for piece in base.run_code("x", stream=True):
            shown = piece.html if isinstance(piece, Rich) else piece.text
            print(shown, chunks, ended, run.value)
        one, two = base.fork(2)
        paths: List[str] = [change.path for change in one.diff(two).changes]
        snapshot: Snapshot = base.snapshot()
        again: Sandbox = snapshot.restore()
        many: List[Sandbox] = snapshot.restore(3)
        print(paths, again, many, base.info().limits.memory_mib)
        found: ramet.Exploration = base.explore(ramet.Plan("x", search=ramet.Search("first")), wait=False)
        for event in found:
            print(event.attempt.score if event.attempt is not None else event.state)
        best: Optional[ramet.Attempt] = found.wait().winner
        print(best.score if best is not None else None, found.sandboxes[0].files.read("/x"))
        try:
            base.fork(3)
        except ramet.ForkError as error:
            print(error.children, error.code, error.field, error.remedy)


async def concurrently() -> None:
    async with await AsyncSandbox.create() as base:
        result: Result = await base.exec("x")
        async with await base.exec("x", stream=True) as stream:
            async for chunk in stream:
                print(chunk.data, result)
        run: Execution = await base.run_code("x")
        async with await base.fork(2) as children:
            print(run, [await child.files.read("/x") for child in children])
