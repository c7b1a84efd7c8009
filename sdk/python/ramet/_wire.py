"""The formats of streams: frames, server-sent events and messages of WebSockets.

Parsers take bytes in any pieces and do no I/O, so that both clients share them.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from ._errors import RametError, Unavailable, error_of

FRAMES = "application/vnd.ramet.frames"
EVENTS = "text/event-stream"
JSON = "application/json"
PROBLEM = "application/problem+json"

STDIN, STDOUT, STDERR, FINAL = 0, 1, 2, 3

# The largest frame of output, and the largest last one, that a daemon sends.
_MAX_CHUNK = 256 << 10
_MAX_FINAL = 1 << 20
# The largest event: results of a cell have up to 8 MiB.
_MAX_EVENT = 9 << 20


def broken(detail: str) -> Unavailable:
    """Return the error of an answer that ends early or is none of a Ramet daemon."""
    return Unavailable(detail, code="unavailable")


def problem_of(status: int, content_type: str, body: bytes, interface: Optional[str] = None) -> RametError:
    """Return the error that a response of failure says."""
    if content_type.partition(";")[0].strip() == PROBLEM:
        try:
            problem = json.loads(body)
        except ValueError:
            problem = None
        if isinstance(problem, dict) and problem.get("code"):
            return error_of({"status": status, **problem}, interface)
    if status == 400 and b"HTTPS" in body:  # the answer of a TLS server to a request without TLS
        return broken("call daemon: there is TLS at that port: try https instead of http")
    error = broken(f"call daemon: the answer with status {status} is not one of a Ramet daemon")
    error.status = status
    return error


class Frames:
    """A parser of the answer to an exec in frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Tuple[int, bytes]]:
        """Take bytes and iterate over the frames that are complete now."""
        self._buffer += data
        while len(self._buffer) >= 5:
            stream, size = struct.unpack_from(">BI", self._buffer)
            if not STDOUT <= stream <= FINAL or size > (_MAX_FINAL if stream == FINAL else _MAX_CHUNK):
                raise broken(f"the daemon sent a frame of stream {stream} with {size} bytes")
            if len(self._buffer) < 5 + size:
                return
            payload = bytes(self._buffer[5 : 5 + size])
            del self._buffer[: 5 + size]
            yield stream, payload


def final_of(payload: bytes) -> Mapping[str, Any]:
    """Return the result in the last message of an exec, or raise its error."""
    try:
        final = json.loads(payload)
    except ValueError:
        final = None
    if not isinstance(final, dict) or ("exit" in final) == ("error" in final):
        raise broken("the daemon's last message is neither a result nor an error")
    if "error" in final:
        raise error_of(final["error"])
    exit_: Mapping[str, Any] = final["exit"]
    return exit_


class ServerEvent(NamedTuple):
    """A server-sent event."""

    name: str
    data: Any
    id: str


class Events:
    """A parser of server-sent events, whose data are JSON."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._size = 0
        self._name = ""
        self._id = ""
        self._data: List[bytes] = []

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """Take bytes and iterate over the events that are complete now."""
        self._buffer += data
        start = 0
        while True:
            end = self._buffer.find(b"\n", start)
            if end < 0:
                break
            line = bytes(self._buffer[start:end])
            start = end + 1
            event = self._line(line[:-1] if line.endswith(b"\r") else line)
            if event is not None:
                yield event
        del self._buffer[:start]
        if self._size + len(self._buffer) > _MAX_EVENT:
            raise broken("the daemon sent an event that is too long")

    def _line(self, line: bytes) -> Optional[ServerEvent]:
        if not line:
            name, lines = self._name, self._data
            self._name, self._data, self._size = "", [], 0
            if not name and not lines:
                return None
            try:
                data = json.loads(b"\n".join(lines)) if lines else None
            except ValueError:
                raise broken(f"the daemon sent an event {name!r} that is not JSON") from None
            return ServerEvent(name, data, self._id)
        self._size += len(line)
        field, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if field == b"event":
            self._name = value.decode("utf-8", "replace")
        elif field == b"data":
            self._data.append(value)
        elif field == b"id":
            self._id = value.decode("utf-8", "replace")
        return None

    @property
    def inside(self) -> bool:
        """Whether an event has begun that is not complete."""
        return bool(self._buffer or self._name or self._data)


def chunk_bytes(chunk: Mapping[str, Any]) -> bytes:
    """Return the bytes of an event of output."""
    data = str(chunk.get("data", ""))
    encoding = chunk.get("encoding")
    if encoding == "base64":
        try:
            return base64.b64decode(data, validate=True)
        except ValueError:
            raise broken("the daemon sent output that is not base64") from None
    if encoding != "utf8":
        raise broken(f"the daemon sent output in the encoding {encoding!r}")
    return data.encode("utf-8", "surrogatepass")


# WebSockets (RFC 6455), the part of clients.
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
_MAX_MESSAGE = 2 << 20


def websocket_headers() -> Dict[str, str]:
    """Return the headers that ask for a WebSocket."""
    return {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": base64.b64encode(os.urandom(16)).decode(),
    }


def websocket_frame(opcode: int, payload: bytes) -> bytes:
    """Return a masked message in one frame."""
    mask = os.urandom(4)
    size = len(payload)
    if size < 126:
        head = struct.pack(">BB", 0x80 | opcode, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", 0x80 | opcode, 0x80 | 126, size)
    else:
        head = struct.pack(">BBQ", 0x80 | opcode, 0x80 | 127, size)
    repeated = (mask * (size // 4 + 1))[:size]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")
    return head + mask + masked.to_bytes(size, "big")


class Messages:
    """A parser of the messages of a WebSocket's server."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._parts: List[bytes] = []
        self._opcode = 0

    def feed(self, data: bytes) -> Iterator[Tuple[int, bytes]]:
        """Take bytes and iterate over the messages that are complete now."""
        self._buffer += data
        while len(self._buffer) >= 2:
            first, second = self._buffer[0], self._buffer[1]
            size, at = second & 0x7F, 2
            if second & 0x80 or first & 0x70:
                raise broken("the daemon sent a WebSocket frame with a mask or an extension")
            if size == 126:
                if len(self._buffer) < 4:
                    return
                (size,), at = struct.unpack_from(">H", self._buffer, 2), 4
            elif size == 127:
                if len(self._buffer) < 10:
                    return
                (size,), at = struct.unpack_from(">Q", self._buffer, 2), 10
            if size + sum(map(len, self._parts)) > _MAX_MESSAGE:
                raise broken(f"the daemon sent a WebSocket message of {size} bytes")
            if len(self._buffer) < at + size:
                return
            payload = bytes(self._buffer[at : at + size])
            del self._buffer[: at + size]
            opcode, last = first & 0x0F, first & 0x80
            if opcode >= CLOSE:
                yield opcode, payload
                continue
            if opcode:
                self._opcode = opcode
            self._parts.append(payload)
            if last:
                message = b"".join(self._parts)
                self._parts = []
                yield self._opcode, message
