"""HTTP to one daemon: credentials, errors, retries, and answers that never hang."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, AsyncIterable, AsyncIterator, Awaitable, Callable, Dict, List, Mapping, Optional, Tuple, Union
from urllib.parse import quote, urlencode

from .. import _wire
from .._config import Config, find_program
from .._errors import Interrupted, InvalidRequest, RametError, SandboxGone, Unavailable, VersionMismatch, check_interface, error_of
from .._wire import EVENTS, JSON
from . import _io

if TYPE_CHECKING:
    import httpcore
else:
    from .._lazy import httpcore

Content = Union[bytes, AsyncIterable[bytes]]
Query = List[Tuple[str, Union[str, bytes]]]

# A connection attempt is bounded, and so is a write that the daemon takes nothing of.
_CONNECT = 5.0
_WRITE = 60.0
# After so long without an answer the daemon, and the sandbox, are asked whether they live.
IDLE = 5.0
_PROBE = 15.0
# How long a call tries to reach a daemon that ends or starts.
_ATTEMPTS = 4
_MAX_PROBLEM = 1 << 20
_PIECE = 256 << 10

# The header with the daemon's version of the interface.
_INTERFACE = b"x-ramet-interface"

_CHANGES = ("POST", "PATCH", "DELETE")


class Patience(float):
    """A read timeout after which a probe decides whether to go on waiting."""

    probe: Callable[[], Awaitable[None]]


class AsyncTransport:
    """A pool of connections to one daemon."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.pool = self._make_pool()
        self._headers: List[Tuple[bytes, bytes]] = [(b"host", _host_of(config.base)), (b"user-agent", b"ramet-python")]
        if config.token:
            self._headers.append((b"authorization", b"Bearer " + config.token.encode()))
        self._starting = _io.Lock()

    def _make_pool(self) -> httpcore.AsyncConnectionPool:
        import ssl

        from ._network import AsyncBackend

        backend = AsyncBackend()
        if self.config.socket is not None:
            return httpcore.AsyncConnectionPool(
                uds=self.config.socket, max_connections=None, max_keepalive_connections=128,
                keepalive_expiry=60.0, network_backend=backend,
            )  # fmt: skip
        context = None
        if self.config.base.startswith("https:"):
            context = ssl.create_default_context(cafile=self.config.ca)
        proxy = _proxy_of(self.config.base)
        return httpcore.AsyncConnectionPool(
            ssl_context=context, max_connections=None, max_keepalive_connections=128,
            keepalive_expiry=60.0, network_backend=backend, proxy=proxy,
        )  # fmt: skip

    async def aclose(self) -> None:
        """Close all connections."""
        await self.pool.aclose()

    async def send(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Query] = None,
        body: Any = None,
        content: Optional[Content] = None,
        headers: Optional[Mapping[str, str]] = None,
        accept: str = JSON,
        sandbox: Optional[str] = None,
        once: bool = False,
    ) -> httpcore.Response:
        """Make a request and return its answer, which the caller closes. Failures are raised.

        sandbox is asked for when there is no answer. once forbids to repeat a request that the
        daemon may have got; other changes are repeated with one idempotency key.
        """
        if query:
            path += "?" + urlencode(query, quote_via=quote, safe="")
        fields: Dict[str, str] = {"Accept": accept, **(headers or {})}
        data: Optional[Content] = content
        if body is not None:
            data = _encode(body)
            fields.setdefault("Content-Type", JSON)
        if isinstance(data, bytes):
            fields["Content-Length"] = str(len(data))
        elif data is not None:
            fields.setdefault("Transfer-Encoding", "chunked")
        elif method in ("POST", "PUT", "PATCH"):
            fields["Content-Length"] = "0"
        if method in _CHANGES and not once:
            fields.setdefault("Idempotency-Key", os.urandom(16).hex())
        _propagate(fields)
        repeatable = (data is None or isinstance(data, bytes)) and not once and method != "PUT"
        attempt = 0
        while True:
            attempt += 1
            try:
                response = await self._once(method, path, fields, data, sandbox)
            except (httpcore.ConnectError, httpcore.ConnectTimeout, OSError) as error:
                if not await self._recover(error, attempt):
                    raise self._unreachable(error) from error
                continue
            except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
                if not repeatable or attempt >= _ATTEMPTS:
                    raise _ended(error) from error
                await _io.sleep(0.05 * attempt)
                continue
            try:
                check_interface(header(response, _INTERFACE))
            except VersionMismatch:
                await response.aclose()
                raise
            if response.status < 300:
                return response
            failure = await self._problem(response)
            if response.status == 503 and repeatable and attempt < _ATTEMPTS:
                await _io.sleep(_retry_after(response, 0.1 * attempt))
                continue
            raise failure

    async def exchange(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        *,
        json: Any = None,
        content: Optional[bytes] = None,
        sandbox: Optional[str] = None,
    ) -> httpcore.Response:
        """Make a request and return its answer whatever its status is. It is not repeated."""
        fields = {"Accept": "*/*", **headers}
        if json is not None:
            content = _encode(json)
            fields.setdefault("Content-Type", JSON)
        if content is not None:
            fields["Content-Length"] = str(len(content))
        elif method in ("POST", "PUT", "PATCH"):
            fields["Content-Length"] = "0"
        _propagate(fields)
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._once(method, path, fields, content, sandbox)
            except (httpcore.ConnectError, httpcore.ConnectTimeout, OSError) as error:
                if not await self._recover(error, attempt):
                    raise self._unreachable(error) from error
            except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
                raise _ended(error) from error

    async def _once(
        self, method: str, path: str, fields: Mapping[str, str], data: Optional[Content], sandbox: Optional[str]
    ) -> httpcore.Response:
        request = httpcore.Request(
            method,
            self.config.base + path,
            headers=self._headers + [(k.encode(), v.encode("latin-1", "replace")) for k, v in fields.items()],
            content=data if data is not None else b"",
            extensions={"timeout": self._timeouts(sandbox)},
        )
        return await self.pool.handle_async_request(request)

    def _timeouts(self, sandbox: Optional[str]) -> Dict[str, Optional[float]]:
        async def probe() -> None:
            await self.probe(sandbox)

        read = Patience(IDLE)
        read.probe = probe
        return {"connect": _CONNECT, "read": read, "write": _WRITE, "pool": None}

    async def probe(self, sandbox: Optional[str]) -> None:
        """Raise an error if the daemon does not answer, or the sandbox is gone."""
        paths = ["/healthz"]
        if sandbox is not None:
            paths.append(f"/v1/sandboxes/{segment(sandbox)}")
        for path in paths:
            request = httpcore.Request(
                "GET",
                self.config.base + path,
                headers=[*self._headers, (b"accept", b"application/json")],
                extensions={"timeout": {"connect": _PROBE, "read": _PROBE, "write": _PROBE, "pool": None}},
            )
            try:
                response = await self.pool.handle_async_request(request)
                body = await self.read(response)
            except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError) as error:
                raise Unavailable(
                    f"the daemon does not answer: {type(error).__name__} after {_PROBE:g} s",
                    code="unavailable",
                    remedy="is it stopped, or its machine overloaded? Its log says what it does",
                ) from error
            if path == "/healthz":
                continue
            if response.status == 404:
                raise SandboxGone(f"sandbox {sandbox} is gone", code="not_found", status=404)
            if response.status == 200:
                record = json.loads(body)
                if record.get("state") == "failed":
                    reason = record.get("reason") or "no reason is known"
                    raise SandboxGone(f"sandbox {sandbox} failed: {reason}", code="sandbox_died")

    async def read(self, response: httpcore.Response) -> bytes:
        """Return the body of an answer and give its connection back."""
        parts = []
        try:
            async for part in response.aiter_stream():
                parts.append(part)
        finally:
            await response.aclose()
        return b"".join(parts)

    async def body(self, response: httpcore.Response, sandbox: Optional[str] = None) -> bytes:
        """Return the body of an answer. One that breaks off is an error."""
        return b"".join([part async for part in self.pieces(response, sandbox)])

    async def _problem(self, response: httpcore.Response) -> RametError:
        body, size = [], 0
        try:
            async for part in response.aiter_stream():
                body.append(part)
                size += len(part)
                if size > _MAX_PROBLEM:
                    break
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            return _ended(error)
        finally:
            await response.aclose()
        return _wire.problem_of(response.status, header(response, b"content-type"), b"".join(body), header(response, _INTERFACE))

    async def call(self, method: str, path: str, **options: Any) -> Any:
        """Make a request and return the JSON of its answer, None if there is none."""
        response = await self.send(method, path, **options)
        body = await self.body(response)
        if not body:
            return None
        try:
            return json.loads(body)
        except ValueError as error:
            raise _wire.broken("call daemon: its answer is not JSON") from error

    async def pages(self, path: str, query: Optional[Query] = None, limit: int = 1000, **options: Any) -> List[Any]:
        """Return the items of all pages of a list."""
        items: List[Any] = []
        token: Optional[str] = None
        while True:
            more: Query = [*(query or []), ("limit", str(limit))]
            if token:
                more.append(("page_token", token))
            page = await self.call("GET", path, query=more, **options)
            items.extend(page.get("items") or [])
            token = page.get("next_page_token")
            if not token:
                return items

    async def pieces(self, response: httpcore.Response, sandbox: Optional[str] = None) -> AsyncIterator[bytes]:
        """Iterate over the body of an answer, and give its connection back.

        An answer that breaks off is an error: of the sandbox, if that was the reason.
        """
        try:
            async for part in response.aiter_stream():
                yield part
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            raise await self.broke_off(error, sandbox) from error
        finally:
            await response.aclose()

    async def broke_off(self, error: BaseException, sandbox: Optional[str]) -> RametError:
        """Return the error of an answer or a connection that broke off."""
        if sandbox is not None:
            try:
                await self.probe(sandbox)
            except SandboxGone as gone:
                return gone
            except RametError:
                pass  # nobody knows
        return _broke_off(error)

    async def events(self, method: str, path: str, **options: Any) -> "AsyncEventStream":
        """Make a request whose answer is a stream of events."""
        return AsyncEventStream(self, await self.send(method, path, accept=EVENTS, **options))

    async def websocket(self, path: str, sandbox: str) -> "AsyncWebSocket":
        """Open a WebSocket."""
        response = await self.exchange("GET", path, _wire.websocket_headers(), sandbox=sandbox)
        if response.status != 101:
            raise await self._problem(response)
        return AsyncWebSocket(self, response, sandbox)

    async def _recover(self, error: BaseException, attempt: int) -> bool:
        """Start the user's daemon if it does not run, and report whether to try again."""
        if not self.config.own or attempt >= _ATTEMPTS or not _nobody_listens(error, self.config.socket):
            return False
        async with self._starting:
            await _io.run(start_daemon, self.config)
        return True

    def _unreachable(self, error: BaseException) -> Unavailable:
        where = f"unix:{self.config.socket}" if self.config.socket else self.config.base
        reason = str(error) or type(error).__name__
        remedy = None
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            remedy = "give the file of its certificate authority with ca= or RAMET_CA"
        elif self.config.socket and not self.config.own:
            remedy = "is a daemon running there?"
        return Unavailable(f"connect to the daemon at {where}: {reason}", code="unavailable", remedy=remedy)


class AsyncEventStream:
    """The events of an answer. Close it to end the request."""

    def __init__(self, transport: AsyncTransport, response: httpcore.Response) -> None:
        self._transport = transport
        self._response = response
        self._parser = _wire.Events()
        self._source = transport.pieces(response)
        self._ready: List[_wire.ServerEvent] = []

    async def next(self) -> Optional[_wire.ServerEvent]:
        """Return the next event; None at the end of the answer. An event of error is raised."""
        while not self._ready:
            try:
                piece = await self._source.__anext__()
            except StopAsyncIteration:
                await self.aclose()
                if self._parser.inside:
                    raise Interrupted("the daemon's answer broke off inside of an event", code="unavailable") from None
                return None
            except BaseException:
                await self.aclose()
                raise
            self._ready.extend(self._parser.feed(piece))
        event = self._ready.pop(0)
        if event.name == "error":
            await self.aclose()
            raise error_of(event.data)
        return event

    async def finish(self) -> None:
        """Read the end of an answer whose last event was seen: its connection is used again then."""
        await drain(self._source)
        await self.aclose()

    async def aclose(self) -> None:
        await self._response.aclose()


class AsyncWebSocket:
    """An open WebSocket."""

    def __init__(self, transport: AsyncTransport, response: httpcore.Response, sandbox: str) -> None:
        self._response = response
        self._stream: httpcore.AsyncNetworkStream = response.extensions["network_stream"]
        self._duplex = _io.Duplex(self._stream)
        self._parser = _wire.Messages()
        self._ready: List[Tuple[int, bytes]] = []
        self._read = transport._timeouts(sandbox)["read"]
        self._closed = False

    async def send(self, opcode: int, payload: bytes) -> None:
        """Send a message. It blocks as long as the other side takes nothing."""
        await self._duplex.write(_wire.websocket_frame(opcode, payload))

    async def receive(self) -> Tuple[int, bytes]:
        """Return the next message of text or bytes."""
        while True:
            while self._ready:
                opcode, payload = self._ready.pop(0)
                if opcode in (_wire.TEXT, _wire.BINARY):
                    return opcode, payload
                if opcode == _wire.PING:
                    await self.send(_wire.PONG, payload)
                elif opcode == _wire.CLOSE:
                    reason = payload[2:].decode("utf-8", "replace")
                    raise _wire.broken(f"the daemon closed the connection{': ' + reason if reason else ''}")
            try:
                data = await self._duplex.read(64 << 10, self._read)
            except (httpcore.NetworkError, OSError) as error:
                raise _broke_off(error) from error
            if not data:
                raise Interrupted("the connection to the daemon broke off", code="unavailable")
            self._ready.extend(self._parser.feed(data))

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        _shutdown(self._stream)
        await self._response.aclose()
        await self._stream.aclose()


async def drain(source: AsyncIterator[bytes]) -> None:
    """Read an answer to its end, of which nothing is missing."""
    try:
        async for _ in source:
            pass
    except RametError:
        pass


def segment(ref: str) -> str:
    """Make an id or name one segment of a path."""
    if not isinstance(ref, str) or ref in ("", ".", ".."):
        raise InvalidRequest(f"{ref!r} is not an id or name", code="invalid_argument", field="id")
    return quote(ref, safe="")


def _encode(document: Any) -> bytes:
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except (UnicodeEncodeError, TypeError, ValueError) as error:
        raise InvalidRequest(f"it cannot be sent as JSON: {error}", code="invalid_argument", field="body") from error


def header(response: httpcore.Response, name: bytes) -> str:
    """Return a header of an answer, or an empty text."""
    for key, value in response.headers:
        if key.lower() == name:
            return value.decode("latin-1")
    return ""


def start_daemon(config: Config) -> None:
    """Start the user's daemon by the program, which waits until it is ready."""
    import subprocess

    program = find_program()
    try:
        done = subprocess.run(
            [program, "api", "/healthz"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if k != "RAMET_HOST"}, timeout=120, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"start the daemon with {program}: {error}", code="unavailable") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise Unavailable(f"start the daemon with {program}: {said}", code="unavailable")


def _nobody_listens(error: BaseException, socket: Optional[str]) -> bool:
    cause: Optional[BaseException] = error
    while cause is not None:
        if isinstance(cause, (FileNotFoundError, ConnectionRefusedError)):
            return True
        cause = cause.__cause__ or cause.__context__
    return socket is not None and not os.path.exists(socket)


def _ended(error: BaseException) -> RametError:
    """Return the error of a request that got no answer."""
    reason = str(error) or type(error).__name__
    return Interrupted(
        "call daemon: it ended before it had answered, and what it was doing for this call may have "
        f"ended with it ({reason})",
        code="unavailable",
    )


def _broke_off(error: BaseException) -> RametError:
    reason = str(error) or type(error).__name__
    return Interrupted(
        f"call daemon: the answer broke off in the middle: the sandbox, the daemon or the connection ended ({reason})",
        code="unavailable",
    )


def _retry_after(response: httpcore.Response, otherwise: float) -> float:
    try:
        return min(2.0, float(header(response, b"retry-after")))
    except ValueError:
        return otherwise


def _host_of(base: str) -> bytes:
    return base.partition("://")[2].partition("/")[0].encode()


def _proxy_of(base: str) -> Optional[httpcore.Proxy]:
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass

    scheme, _, rest = base.partition("://")
    url = getproxies().get(scheme)
    host = rest.partition("/")[0].rpartition(":")[0] or rest.partition("/")[0]
    if not url or host in ("localhost", "127.0.0.1") or proxy_bypass(host):
        return None
    return httpcore.Proxy(url)


def _propagate(fields: Dict[str, str]) -> None:
    """Add the trace context of OpenTelemetry, if it is in use."""
    import sys

    api = sys.modules.get("opentelemetry.propagate")
    if api is None:
        if "opentelemetry" not in sys.modules:
            return
        from importlib import import_module

        try:
            api = import_module("opentelemetry.propagate")
        except ImportError:
            return
    api.inject(fields)


def _shutdown(stream: httpcore.AsyncNetworkStream) -> None:
    """Wake a write that blocks in another thread."""
    import socket

    raw = stream.get_extra_info("socket")
    if raw is not None:
        try:
            raw.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
