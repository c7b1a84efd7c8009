"""Code in stateful interpreters."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Union

from .. import _wire
from .._errors import NotFound
from .._models import ContextInfo
from .._types import KEEP, Chunk, Execution, Rich, Seconds, execution_of, milliseconds, present, text_env
from ._exec import Decoder, OnText
from ._transport import AsyncEventStream, AsyncTransport, segment


class AsyncContext:
    """A stateful interpreter in a sandbox. Forks have it with its variables."""

    def __init__(self, transport: AsyncTransport, sandbox: str, info: ContextInfo) -> None:
        self._transport = transport
        self._sandbox = sandbox
        self.name: str = info.name
        """Its name, unique in the sandbox."""
        self.language: str = info.language
        """python, node or bash."""
        self._path = f"/v1/sandboxes/{segment(sandbox)}/contexts/{segment(self.name)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self.name!r}, language={self.language!r})"

    async def run_code(
        self,
        code: str,
        *,
        timeout: Optional[Seconds] = None,
        check: bool = False,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
    ) -> Execution:
        """Run code in it: see AsyncSandbox.run_code."""
        request = present(code=code, language=self.language, context=self.name, timeout_ms=milliseconds(timeout, "timeout"))
        execution = await run_code(self._transport, self._sandbox, request, on_stdout, on_stderr)
        return execution.check() if check else execution

    async def interrupt(self) -> bool:
        """Interrupt the cell that it runs, and return whether it ran one."""
        answer = await self._transport.call("POST", self._path + "/interrupt", sandbox=self._sandbox)
        return bool(answer["interrupted"])

    async def restart(self) -> ContextInfo:
        """Give it a new interpreter, without the state of the old one."""
        return ContextInfo(await self._transport.call("POST", self._path + "/restart", sandbox=self._sandbox))

    async def destroy(self) -> None:
        """End the interpreter."""
        await self._transport.call("DELETE", self._path, sandbox=self._sandbox)


class AsyncContexts:
    """The interpreters of a sandbox."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    @property
    def _path(self) -> str:
        return f"/v1/sandboxes/{segment(self._sandbox)}/contexts"

    async def create(
        self,
        language: str = "python",
        *,
        name: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        user: Optional[str] = None,
    ) -> AsyncContext:
        """Start an interpreter."""
        body = present(language=language, name=name, cwd=cwd, env=text_env(env), user=user)
        info = await self._transport.call("POST", self._path, body=body, sandbox=self._sandbox)
        return AsyncContext(self._transport, self._sandbox, ContextInfo(info))

    async def get(self, name: str) -> AsyncContext:
        """Return an interpreter that exists, by its name: children have those of their parent."""
        for info in await self.list():
            if info.name == name:
                return AsyncContext(self._transport, self._sandbox, info)
        raise NotFound(f"sandbox {self._sandbox} has no context {name!r}", code="not_found", status=404)

    async def list(self) -> List[ContextInfo]:
        """Return all interpreters."""
        page = await self._transport.call("GET", self._path, sandbox=self._sandbox)
        return [ContextInfo(item) for item in page["items"]]


class AsyncRunStream:
    """What a cell writes and shows while it runs: an iterator of Chunks and Rich values.

    Closing the stream interrupts the cell. `execution` is set when the iteration has ended.
    """

    execution: Optional[Execution] = None

    def __init__(self, events: AsyncEventStream, language: Optional[str]) -> None:
        self._events = events
        self._language = language

    async def __aenter__(self) -> "AsyncRunStream":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> "AsyncRunStream":
        return self

    async def __anext__(self) -> Union[Chunk, Rich]:
        if self.execution is not None:
            raise StopAsyncIteration
        while True:
            event = await self._events.next()
            if event is None:
                raise _wire.broken("the daemon's answer ended early")
            if event.name in ("stdout", "stderr"):
                return Chunk(event.name, _wire.chunk_bytes(event.data), event.data.get("seq", 0))
            if event.name == "result":
                return Rich(event.data)
            if event.name == "exit":
                await self._events.finish()
                self.execution = execution_of(event.data, self._language)
                raise StopAsyncIteration

    async def aclose(self) -> None:
        """Interrupt the cell, if it runs."""
        await self._events.aclose()


async def run_code(
    transport: AsyncTransport, sandbox: str, request: Dict[str, Any], on_stdout: Optional[OnText], on_stderr: Optional[OnText]
) -> Execution:
    """Run a cell to its end. With functions for its output the first 8 MiB of each stream are kept, too."""
    path = f"/v1/sandboxes/{segment(sandbox)}/run-code"
    language = request.get("language")
    if on_stdout is None and on_stderr is None:
        run = await transport.call("POST", path, body=request, sandbox=sandbox, once=True)
        return execution_of(run, language)
    stream = AsyncRunStream(await transport.events("POST", path, body=request, sandbox=sandbox, once=True), language)
    kept = {"stdout": bytearray(), "stderr": bytearray()}
    tell = {"stdout": Decoder(on_stdout), "stderr": Decoder(on_stderr)}
    shown: List[Rich] = []
    truncated = False
    async with stream:
        async for piece in stream:
            if isinstance(piece, Rich):
                shown.append(piece)
                continue
            tell[piece.stream].feed(piece.data)
            room = KEEP - len(kept[piece.stream])
            truncated = truncated or len(piece.data) > room
            kept[piece.stream] += piece.data[:room]
    for decoder in tell.values():
        decoder.feed(b"", True)
    execution = stream.execution
    assert execution is not None
    execution.stdout, execution.stderr = (bytes(kept[name]).decode("utf-8", "replace") for name in ("stdout", "stderr"))
    execution.results, execution.truncated = shown, execution.truncated or truncated
    return execution
