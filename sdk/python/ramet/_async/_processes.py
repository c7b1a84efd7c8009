"""Processes that go on without a client, and terminals."""

from __future__ import annotations

from typing import Any, List, Optional, Union

from .. import _wire
from .._errors import Interrupted, NotFound
from .._models import ProcessInfo
from .._types import Chunk, Command, Result, Seconds, command_of, gone, milliseconds, present, result_of, text_env
from ._exec import Input, blocks
from ._transport import AsyncEventStream, AsyncTransport, Query, segment


class AsyncOutput:
    """The output of a process: an iterator of Chunks that survives a new daemon."""

    exit: Optional[Result] = None
    """How the process ended, when the iteration has ended and the process has."""

    def __init__(self, transport: AsyncTransport, sandbox: str, path: str, start: Optional[int], follow: bool) -> None:
        self._transport = transport
        self._sandbox = sandbox
        self._path = path
        self._next = start
        self._follow = follow
        self._events: Optional[AsyncEventStream] = None

    async def __aenter__(self) -> "AsyncOutput":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> "AsyncOutput":
        return self

    async def __anext__(self) -> Chunk:
        tries = 0
        while True:
            try:
                event = await (await self._open()).next()
            except Interrupted:
                await self.aclose()
                tries += 1
                if tries > 3:
                    raise
                continue
            except BaseException:
                await self.aclose()  # the next call goes on where this one was cancelled
                raise
            if event is None:
                raise _wire.broken("the daemon's answer ended early")
            if event.name in ("stdout", "stderr"):
                data = _wire.chunk_bytes(event.data)
                self._next = event.data["seq"] + len(data)
                return Chunk(event.name, data, event.data["seq"])
            if event.name == "lost":
                self._next = event.data["seq"] + event.data["bytes"]
                return Chunk("stdout", b"", event.data["seq"], event.data["bytes"])
            if event.name == "position":
                if self._events is not None:
                    await self._events.finish()
                self._events = None
                if event.data.get("exit"):
                    self.exit = result_of({**event.data["exit"], "timed_out": False}, b"", b"")
                raise StopAsyncIteration

    async def _open(self) -> AsyncEventStream:
        if self._events is None:
            query: Query = [("follow", "true" if self._follow else "false")]
            if self._next is not None:
                query.append(("from", str(self._next)))
            self._events = await self._transport.events("GET", self._path, query=query, sandbox=self._sandbox)
        return self._events

    async def aclose(self) -> None:
        """Stop reading. The process goes on."""
        if self._events is not None:
            events, self._events = self._events, None
            await events.aclose()


class AsyncProcess:
    """A process in the background of a sandbox. It goes on when its client has gone away."""

    def __init__(self, transport: AsyncTransport, sandbox: str, info: ProcessInfo) -> None:
        self._transport = transport
        self._sandbox = sandbox
        self.pid: int = info.pid
        """Its process id in the sandbox, which is the same in forks."""
        self._path = f"/v1/sandboxes/{segment(sandbox)}/processes/{self.pid}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(pid={self.pid}, sandbox={self._sandbox!r})"

    async def info(self) -> ProcessInfo:
        """Return its state, processor time and memory."""
        return ProcessInfo(await self._transport.call("GET", self._path, sandbox=self._sandbox))

    async def wait(self) -> Result:
        """Wait for its end, and return it with the output that is kept (its end, 1 MiB)."""
        exit_ = await self._transport.call("GET", self._path + "/wait", sandbox=self._sandbox)
        kept = {"stdout": bytearray(), "stderr": bytearray()}
        truncated = False
        async for chunk in self.output(follow=False):
            kept[chunk.stream] += chunk.data
            truncated = truncated or chunk.lost > 0
        return result_of(exit_, bytes(kept["stdout"]), bytes(kept["stderr"]), truncated)

    def output(self, *, follow: bool = True, start: Optional[int] = None) -> AsyncOutput:
        """Iterate over its output, from a sequence number or the oldest byte that is kept.

        With follow the iteration goes on until the process ends.
        """
        return AsyncOutput(self._transport, self._sandbox, self._path + "/output", start, follow)

    async def write(self, data: Union[str, bytes], *, end: bool = False) -> None:
        """Write to its standard input, and wait until it has room for all of it."""
        raw = data.encode("utf-8") if isinstance(data, str) else bytes(data)
        for at in range(0, max(len(raw), 1), 4 << 20):
            piece = raw[at : at + (4 << 20)]
            last = end and at + (4 << 20) >= len(raw)
            await self._transport.call(
                "POST", self._path + "/stdin", query=[("end", "true")] if last else [], content=piece,
                headers={"Content-Type": "application/octet-stream"}, sandbox=self._sandbox, once=True,
            )  # fmt: skip

    async def feed(self, data: Input) -> None:
        """Write all of a text, bytes, a file or an iterator of bytes to its standard input, and close that."""
        async for piece in blocks(data, 1 << 20):
            await self.write(piece)
        await self.close_stdin()

    async def close_stdin(self) -> None:
        """Close its standard input."""
        await self.write(b"", end=True)

    async def kill(self, signal: Union[str, int] = "KILL", *, group: bool = True) -> None:
        """Send a signal to it and its group. It is no error that it has ended."""
        try:
            await self._transport.call(
                "POST", self._path + "/signal", body={"signal": str(signal), "group": group}, sandbox=self._sandbox
            )
        except NotFound as error:
            if gone(error, self._sandbox):
                raise

    async def remove(self) -> None:
        """Kill it with its group, if it runs, and drop its output."""
        await self._transport.call("DELETE", self._path, sandbox=self._sandbox)


class AsyncTerminal(AsyncProcess):
    """A process with a terminal. Iterate over it to read what it shows."""

    def __init__(self, transport: AsyncTransport, sandbox: str, info: ProcessInfo) -> None:
        super().__init__(transport, sandbox, info)
        self._shown = self.output()

    def __aiter__(self) -> AsyncOutput:
        return self._shown

    async def read(self) -> bytes:
        """Return the next bytes that it shows; none when it has ended."""
        try:
            return (await self._shown.__anext__()).data
        except StopAsyncIteration:
            return b""

    async def read_until(self, text: str) -> str:
        """Return what it shows up to a text, included; or all of it if it ends before."""
        shown = bytearray()
        while text.encode() not in shown:
            piece = await self.read()
            if not piece:
                break
            shown += piece
        return shown.decode("utf-8", "replace")

    async def resize(self, cols: int, rows: int) -> None:
        """Set the size of the terminal."""
        await self._transport.call(
            "POST", self._path + "/resize", body={"cols": cols, "rows": rows}, sandbox=self._sandbox
        )

    async def __aenter__(self) -> "AsyncTerminal":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._shown.aclose()
        try:
            await self.remove()
        except NotFound:
            pass


class AsyncProcesses:
    """The processes of a sandbox."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    @property
    def _path(self) -> str:
        return f"/v1/sandboxes/{segment(self._sandbox)}/processes"

    async def list(self, *, all: bool = False) -> List[ProcessInfo]:
        """Return all processes; with all also those of start() that have ended."""
        page = await self._transport.call(
            "GET", self._path, query=[("all", "true")] if all else [], sandbox=self._sandbox
        )
        return [ProcessInfo(item) for item in page["items"]]

    async def start(
        self,
        command: Command,
        *,
        env: Any = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: bool = False,
        timeout: Optional[Seconds] = None,
        idle_timeout: Optional[Seconds] = None,
        keep_kib: Optional[int] = None,
    ) -> AsyncProcess:
        """Start a process in the background. The end of its output is kept."""
        return AsyncProcess(
            self._transport,
            self._sandbox,
            await self._start(
                **command_of(command), env=text_env(env), cwd=cwd, user=user, stdin=stdin or None,
                timeout_ms=milliseconds(timeout, "timeout"), keep_kib=keep_kib,
                idle_timeout_ms=milliseconds(idle_timeout, "idle_timeout"),
            ),
        )  # fmt: skip

    async def terminal(
        self,
        command: Optional[Command] = None,
        *,
        cols: int = 80,
        rows: int = 24,
        env: Any = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
    ) -> AsyncTerminal:
        """Start a process with a terminal; a shell if no command is given."""
        shell = "command -v bash >/dev/null && exec bash || exec sh"
        return AsyncTerminal(
            self._transport,
            self._sandbox,
            await self._start(
                **command_of(shell if command is None else command), env={"TERM": "xterm-256color", **(env or {})},
                cwd=cwd, user=user, terminal={"cols": cols, "rows": rows},
            ),
        )  # fmt: skip

    async def _start(self, **members: Any) -> ProcessInfo:
        return ProcessInfo(await self._transport.call("POST", self._path, body=present(**members), sandbox=self._sandbox))

    async def get(self, pid: int) -> AsyncProcess:
        """Return a process that was started through the interface, also in an ancestor."""
        info = await self._transport.call("GET", f"{self._path}/{pid}", sandbox=self._sandbox)
        return AsyncProcess(self._transport, self._sandbox, ProcessInfo(info))

    async def kill(self, pid: int, signal: Union[str, int] = "KILL", *, group: bool = False) -> None:
        """Send a signal to any process."""
        await self._transport.call(
            "POST", f"{self._path}/{pid}/signal", body={"signal": str(signal), "group": group}, sandbox=self._sandbox
        )
