"""What differs between the two clients beyond async and await. Its twin is ramet/_async/_io.py."""

from __future__ import annotations

import atexit
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Generic, Optional, Set, TypeVar

if TYPE_CHECKING:
    import httpcore

T = TypeVar("T")

sleep = time.sleep
Lock = threading.Lock


def network() -> "httpcore.NetworkBackend":
    """Return what opens connections."""
    import httpcore

    return httpcore.SyncBackend()


def run(function: Callable[..., T], *args: Any) -> T:
    """Call a function that blocks."""
    return function(*args)


def interruptible(wait: Callable[[], T], cancel: Callable[[], object]) -> T:
    """Wait, and cancel what is waited for if the caller is interrupted."""
    try:
        return wait()
    except BaseException as error:
        if not isinstance(error, Exception):
            cancel()
        raise


class Task:
    """A function that runs beside its caller. It must end when its connection is closed."""

    def __init__(self) -> None:
        self._thread: Optional[threading.Thread] = None

    def start(self, function: Callable[[], None]) -> None:
        thread = threading.Thread(target=function, name="ramet", daemon=True)
        thread.start()
        self._thread = thread  # an interrupt may come before the start

    def stop(self) -> None:
        """Wait a moment for the end: the function may be in a read of the caller's input."""
        if self._thread is not None:
            self._thread.join(0.2)
            self._thread = None


class Signal:
    """What a thread waits for, for a time."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Wait until it is set, and report whether it is."""
        return self._event.wait(seconds)


class Duplex:
    """A connection that one thread reads while another one writes.

    The timeout of a socket is one for both directions, and TLS is no matter for two threads at
    once: so the socket does not block, each access is under a lock, and waiting is not.
    """

    def __init__(self, stream: "httpcore.NetworkStream") -> None:
        import ssl

        self._socket: socket.socket = stream.get_extra_info("socket")
        self._socket.settimeout(0)
        self._lock = threading.Lock()
        self._not_now = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

    def read(self, size: int, patience: Any) -> bytes:
        while True:
            with self._lock:
                try:
                    return self._socket.recv(size)
                except self._not_now:
                    pass
            if not self._wait(select.POLLIN, float(patience)):
                patience.probe()

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            with self._lock:
                try:
                    rest = rest[self._socket.send(rest) :]
                    continue
                except self._not_now:
                    pass
            self._wait(select.POLLOUT, 1.0)

    def _wait(self, events: int, timeout: float) -> bool:
        number = self._socket.fileno()
        if number < 0:
            raise ConnectionError("the connection was closed")
        poll = select.poll()
        poll.register(number, events)
        return bool(poll.poll(timeout * 1000))


class PerContext(Generic[T]):
    """A value for each process: connections must not be shared with a fork."""

    def __init__(self) -> None:
        self._values: Dict[int, Dict[Any, T]] = {}

    def values(self) -> Dict[Any, T]:
        return self._values.setdefault(os.getpid(), {})


class Listener:
    """A port of this machine whose connections are passed on to others."""

    def __init__(self) -> None:
        self._socket: Optional[socket.socket] = None
        self._open: Set[Any] = set()
        self._lock = threading.Lock()

    def open(self, address: str, port: int, connect: Callable[[], Any]) -> str:
        self._socket = socket.create_server((address, port))
        host, bound = self._socket.getsockname()[:2]
        threading.Thread(target=self._listen, args=(self._socket, connect), name="ramet-forward", daemon=True).start()
        return f"{host}:{bound}"

    def _listen(self, listener: socket.socket, connect: Callable[[], Any]) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # it was closed
                return
            threading.Thread(target=self._serve, args=(client, connect), name="ramet-forward", daemon=True).start()

    def _serve(self, client: socket.socket, connect: Callable[[], Any]) -> None:
        try:
            there = connect()
        except Exception:
            client.close()
            return
        with self._lock:
            self._open.update((client, there))

        def up() -> None:
            try:
                while True:
                    data = client.recv(64 << 10)
                    if not data:
                        return
                    there.write(data)
            except Exception:
                pass  # a connection that broke off

        threading.Thread(target=up, name="ramet-forward", daemon=True).start()
        try:
            while True:
                data = there.read()
                if not data:
                    return
                client.sendall(data)
        except Exception:
            pass  # a connection that broke off
        finally:
            with self._lock:
                self._open.difference_update((client, there))
            _end(client)
            there.close()

    def close(self) -> None:
        if self._socket is not None:
            listener, self._socket = self._socket, None
            _end(listener)
        with self._lock:
            for connection in self._open:
                if isinstance(connection, socket.socket):
                    _end(connection)
                else:
                    connection.shutdown()


def _end(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    sock.close()


def at_exit(function: Callable[[], None]) -> None:
    """Call a function before the interpreter ends."""
    atexit.register(function)
