"""Commands in the foreground: their output while they run, their input, and their end."""

from __future__ import annotations

import codecs
import os
import time
from typing import TYPE_CHECKING, Any, AsyncIterable, AsyncIterator, Callable, Dict, Iterable, List, Optional, Tuple, Union

from .. import _wire
from .._errors import Interrupted, RametError, Unavailable
from .._types import KEEP, Chunk, Result, invalid, result_of
from . import _io
from ._transport import AsyncTransport, drain, segment

if TYPE_CHECKING:
    from typing import BinaryIO

    import httpcore
else:
    from .._lazy import httpcore

Input = Union[str, bytes, "BinaryIO", Iterable[bytes], AsyncIterable[bytes]]
OnText = Callable[[str], Any]

# Standard input up to this size goes with the request, if it is text.
_INLINE = 256 << 10
# How long a command whose daemon went away is looked for: the caller hears of it within 2 s.
_RESUME = 1.5
_STREAMS = {_wire.STDOUT: "stdout", _wire.STDERR: "stderr"}


class AsyncExecStream:
    """The output of a command while it runs: an iterator of Chunks.

    Leaving the `with` block, or closing the stream, ends the command with its process group.
    `result` is set when the iteration has ended.
    """

    result: Optional[Result] = None

    def __init__(self, transport: AsyncTransport, sandbox: str, request: Dict[str, Any]) -> None:
        self._transport = transport
        self._sandbox = sandbox
        self._path = f"/v1/sandboxes/{segment(sandbox)}/exec"
        self._request = request
        self._ready: List[Tuple[int, bytes]] = []
        self._seq = 0

    async def open(self) -> None:
        raise NotImplementedError

    async def _receive(self) -> Tuple[int, bytes]:
        raise NotImplementedError

    async def aclose(self) -> None:
        """End the command, if it runs."""
        raise NotImplementedError

    async def __aenter__(self) -> "AsyncExecStream":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> "AsyncExecStream":
        return self

    async def __anext__(self) -> Chunk:
        if self.result is not None:
            raise StopAsyncIteration
        try:
            stream, payload = await self._receive()
            if stream == _wire.FINAL:
                final = _wire.final_of(payload)
                self.result = result_of(final, b"", b"")
        except BaseException:
            await self.aclose()
            raise
        if self.result is not None:
            await self.aclose()
            raise StopAsyncIteration
        chunk = Chunk(_STREAMS[stream], payload, self._seq)
        self._seq += len(payload)
        return chunk

    async def wait(self) -> Result:
        """Drop the output that is left, and return the end of the command."""
        async for _ in self:
            pass
        assert self.result is not None
        return self.result

    async def collect(self, on_stdout: Optional[OnText] = None, on_stderr: Optional[OnText] = None) -> Result:
        """Return the end of the command with its output, of which the first 8 MiB are kept."""
        kept = {_wire.STDOUT: bytearray(), _wire.STDERR: bytearray()}
        tell = {_wire.STDOUT: Decoder(on_stdout), _wire.STDERR: Decoder(on_stderr)}
        truncated = False
        try:
            while True:
                stream, payload = await self._receive()
                if stream == _wire.FINAL:
                    for decoder in tell.values():
                        decoder.feed(b"", True)
                    final = _wire.final_of(payload)
                    out, err = bytes(kept[_wire.STDOUT]), bytes(kept[_wire.STDERR])
                    self.result = result_of(final, out, err, truncated)
                    return self.result
                self._seq += len(payload)
                tell[stream].feed(payload)
                room = KEEP - len(kept[stream])
                truncated = truncated or len(payload) > room
                kept[stream] += payload[:room]
        finally:
            await self.aclose()


class Decoder:
    """Hands text to a function, with characters whole."""

    def __init__(self, tell: Optional[OnText]) -> None:
        self._tell = tell
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes, final: bool = False) -> None:
        if self._tell is not None:
            text = self._decoder.decode(data, final)
            if text:
                self._tell(text)


class AsyncFrameStream(AsyncExecStream):
    """A command whose input, if it has any, went with the request.

    If the daemon ends and another one takes its place, the command goes on, and so does this.
    """

    _response: Optional[httpcore.Response] = None

    async def open(self) -> None:
        if "stdin" not in self._request:  # the daemon cannot resume those
            self._request = {**self._request, "key": os.urandom(16).hex()}
        try:
            await self._open(self._request)
        except Interrupted as error:  # the command may run
            await self._resume(error)

    async def _open(self, request: Dict[str, Any]) -> None:
        response = await self._transport.send(
            "POST", self._path, body=request, accept=_wire.FRAMES, sandbox=self._sandbox, once=True
        )
        self._response = response
        self._source = self._transport.pieces(response)
        self._parser = _wire.Frames()

    async def _receive(self) -> Tuple[int, bytes]:
        while not self._ready:
            try:
                piece = await self._source.__anext__()
            except StopAsyncIteration:
                await self._resume(Interrupted("call daemon: its answer ended early", code="unavailable"))
            except Interrupted as error:
                await self._resume(error)
            else:
                self._ready.extend(self._parser.feed(piece))
                if self._ready and self._ready[-1][0] == _wire.FINAL:
                    await drain(self._source)  # its connection is used again then
        return self._ready.pop(0)

    async def _resume(self, lost: Interrupted) -> None:
        """Look for the command at the daemon that took the place of the one that ended."""
        if "key" not in self._request:
            raise lost
        deadline = time.monotonic() + _RESUME
        while True:
            await self.aclose()
            try:
                await self._open({**self._request, "from": self._seq})
                return
            except Unavailable:
                if time.monotonic() > deadline:
                    raise lost from None
                await _io.sleep(0.1)
            except RametError as error:
                raise lost from error

    async def aclose(self) -> None:
        if self._response is not None:
            response, self._response = self._response, None
            await response.aclose()


class AsyncSocketStream(AsyncExecStream):
    """A command whose input is sent while it runs."""

    def __init__(self, transport: AsyncTransport, sandbox: str, request: Dict[str, Any], stdin: Input) -> None:
        super().__init__(transport, sandbox, request)
        self._stdin = stdin
        self._feeder = _io.Task()
        self._failed: Optional[BaseException] = None

    async def open(self) -> None:
        import json

        self._socket = await self._transport.websocket(self._path, self._sandbox)
        await self._socket.send(_wire.TEXT, json.dumps(self._request).encode())
        await self._feeder.start(self._feed)

    async def _feed(self) -> None:
        try:
            async for piece in blocks(self._stdin):
                await self._socket.send(_wire.BINARY, b"\0" + piece)
            await self._socket.send(_wire.BINARY, b"\0")
        except (httpcore.NetworkError, httpcore.TimeoutException, OSError):
            pass  # the reader finds the reason
        except Exception as error:  # of the caller's input
            self._failed = error
            await self._socket.aclose()

    async def _receive(self) -> Tuple[int, bytes]:
        try:
            opcode, message = await self._socket.receive()
        except RametError:
            if self._failed is not None:
                raise self._failed from None
            raise
        if opcode == _wire.TEXT:
            return _wire.FINAL, message
        if not message or message[0] not in _STREAMS:
            raise _wire.broken("the daemon sent a message of no stream")
        return message[0], message[1:]

    async def aclose(self) -> None:
        await self._socket.aclose()
        await self._feeder.stop()


async def open_exec(
    transport: AsyncTransport, sandbox: str, request: Dict[str, Any], stdin: Optional[Input]
) -> AsyncExecStream:
    """Start a command."""
    stream: AsyncExecStream
    text = _inline(stdin)
    if stdin is None or text is not None:
        if text:
            request["stdin"] = text
        stream = AsyncFrameStream(transport, sandbox, request)
    else:
        stream = AsyncSocketStream(transport, sandbox, request, stdin)
    await stream.open()
    return stream


def _inline(stdin: Optional[Input]) -> Optional[str]:
    if isinstance(stdin, bytes):
        try:
            stdin = stdin.decode("utf-8")
        except UnicodeDecodeError:
            return None
    if isinstance(stdin, str) and len(stdin) <= _INLINE:
        return stdin
    return None


async def blocks(source: Any, size: int = 60 << 10) -> AsyncIterator[bytes]:
    """Iterate over bytes of any source: text, bytes, a file, or an iterator of bytes."""
    if isinstance(source, str):
        source = source.encode("utf-8")
    if isinstance(source, (bytes, bytearray, memoryview)):
        view = memoryview(source)
        for at in range(0, len(view), size):
            yield bytes(view[at : at + size])
    elif hasattr(source, "read"):
        while True:
            piece = await _io.run(source.read, size)
            if not piece:
                return
            yield piece.encode("utf-8") if isinstance(piece, str) else piece
    elif isinstance(source, AsyncIterable):
        async for piece in source:
            async for block in blocks(piece, size):
                yield block
    elif hasattr(source, "__iter__"):
        for piece in source:
            async for block in blocks(piece, size):
                yield block
    else:
        raise invalid("stdin", f"{type(source).__name__} is neither text nor bytes nor a source of them")
