"""What differs between the two clients beyond async and await. Its twin is ramet/_sync/_io.py."""

from __future__ import annotations

import asyncio
from typing import Any, Awaitable, Callable, Coroutine, Dict, Generic, Optional, Tuple, TypeVar, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
import httpcore
import sniffio

T = TypeVar("T")

sleep = anyio.sleep
Lock = anyio.Lock


def network() -> httpcore.AsyncNetworkBackend:
    """Return what opens connections."""
    return cast(httpcore.AsyncNetworkBackend, httpcore.AnyIOBackend())


async def run(function: Callable[..., T], *args: Any) -> T:
    """Call a function that blocks."""
    return await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=True)


async def interruptible(wait: Callable[[], Awaitable[T]], cancel: Callable[[], Awaitable[object]]) -> T:
    """Wait, and cancel what is waited for if the caller is cancelled."""
    try:
        return await wait()
    except BaseException as error:
        if not isinstance(error, Exception):
            with anyio.move_on_after(5, shield=True):
                await cancel()
        raise


class Task:
    """A function that runs beside its caller. One task may start it, and another one end it.

    A task group could not: it is left in the task that entered it, and before what was entered after it.
    """

    def __init__(self) -> None:
        self._scope = anyio.CancelScope()
        self._ended: Optional[anyio.Event] = None
        self._task: Any = None  # an event loop keeps no task alive
        self._error: Optional[Exception] = None

    async def start(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        ended = self._ended = anyio.Event()

        async def run() -> None:
            try:
                with self._scope:
                    await function()
            except Exception as error:
                self._error = error
            finally:
                ended.set()

        if sniffio.current_async_library() == "trio":
            import trio

            self._task = trio.lowlevel.spawn_system_task(run)
        else:
            self._task = asyncio.create_task(run())
            self._task.add_done_callback(lambda _: ended.set())  # also if it was cancelled before it began

    async def stop(self) -> None:
        """End the function and wait for its end. Raises what it raised."""
        if self._ended is None:
            return
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._ended.wait()
        error, self._error, self._ended = self._error, None, None
        if error is not None:
            raise error


class Signal:
    """What a task waits for, for a time."""

    def __init__(self) -> None:
        self._event: Optional[anyio.Event] = None

    def set(self) -> None:
        if self._event is not None:
            self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Wait until it is set, and report whether it is."""
        self._event = self._event or anyio.Event()
        with anyio.move_on_after(seconds):
            await self._event.wait()
        return self._event.is_set()


class Duplex:
    """A connection that one task reads while another one writes."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, size: int, patience: Any) -> bytes:
        return await self._stream.read(size, patience)

    async def write(self, data: bytes) -> None:
        await self._stream.write(data, None)


class PerContext(Generic[T]):
    """A value for each event loop."""

    def __init__(self) -> None:
        self._values: "anyio.lowlevel.RunVar[Dict[Any, T]]" = anyio.lowlevel.RunVar("ramet")

    def values(self) -> Dict[Any, T]:
        try:
            return self._values.get()
        except LookupError:
            self._values.set({})
            return self._values.get()


class Listener:
    """A port of this machine whose connections are passed on to others."""

    def __init__(self) -> None:
        self._task = Task()

    async def open(self, address: str, port: int, connect: Callable[[], Awaitable[Any]]) -> str:
        listener = await anyio.create_tcp_listener(local_host=address, local_port=port)
        host, bound = cast(Tuple[str, int], listener.extra(anyio.abc.SocketAttribute.local_address))[:2]

        async def serve(client: anyio.abc.SocketStream) -> None:
            async with client:
                try:
                    there = await connect()
                except Exception:
                    return
                async with there, anyio.create_task_group() as both:

                    async def up() -> None:
                        async for data in client:
                            await there.write(data)

                    both.start_soon(up)
                    while True:
                        data = await there.read()
                        if not data:
                            both.cancel_scope.cancel()
                            return
                        await client.send(data)

        async def safely(client: anyio.abc.SocketStream) -> None:
            try:
                await serve(client)
            except Exception:
                pass  # a connection that broke off

        async def listen() -> None:
            async with listener:
                await listener.serve(safely)

        await self._task.start(listen)
        return f"{host}:{bound}"

    async def aclose(self) -> None:
        await self._task.stop()


def at_exit(function: Callable[[], Awaitable[None]]) -> None:
    """Do nothing: at the end of the interpreter no event loop is left. Tasks end with their `with` blocks."""
