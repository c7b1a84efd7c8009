"""TCP ports of a sandbox."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple, Union

from .. import _wire
from .._models import PortInfo, PublishedPort
from .._types import Seconds, milliseconds, present
from . import _io
from ._transport import AsyncTransport, _shutdown, header, segment

if TYPE_CHECKING:
    import httpcore
else:
    from .._lazy import httpcore


class AsyncResponse:
    """The answer of a web server in a sandbox."""

    def __init__(self, status: int, headers: List[Tuple[str, str]], content: bytes) -> None:
        self.status = status
        """The status."""
        self.headers = headers
        """The headers, in order."""
        self.content = content
        """The body."""

    @property
    def text(self) -> str:
        """The body as text."""
        return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON."""
        import json

        return json.loads(self.content)

    def __repr__(self) -> str:
        return f"<Response {self.status}, {len(self.content)} bytes>"


class AsyncConnection:
    """A connection to a port of a sandbox."""

    def __init__(self, transport: AsyncTransport, sandbox: str, response: httpcore.Response) -> None:
        self._transport = transport
        self._sandbox = sandbox
        self._response = response
        self._stream: httpcore.AsyncNetworkStream = response.extensions["network_stream"]

    async def read(self, size: int = 64 << 10) -> bytes:
        """Return the next bytes; none at the end."""
        try:
            return await self._stream.read(size)
        except (httpcore.NetworkError, OSError) as error:
            raise await self._transport.broke_off(error, self._sandbox) from error

    async def write(self, data: bytes) -> None:
        """Write all bytes."""
        try:
            await self._stream.write(data)
        except (httpcore.NetworkError, OSError) as error:
            raise await self._transport.broke_off(error, self._sandbox) from error

    def shutdown(self) -> None:
        """Wake a read or write of another thread."""
        _shutdown(self._stream)

    async def aclose(self) -> None:
        """End the connection."""
        await self._response.aclose()
        await self._stream.aclose()

    async def __aenter__(self) -> "AsyncConnection":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


class AsyncPort:
    """A TCP port of a sandbox, whether a process listens there or not."""

    def __init__(self, transport: AsyncTransport, sandbox: str, port: int) -> None:
        self._transport = transport
        self._sandbox = sandbox
        self.port = port
        """The number."""
        self._path = f"/v1/sandboxes/{segment(sandbox)}/ports/{int(port)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.port}, sandbox={self._sandbox!r})"

    @property
    def url(self) -> str:
        """The URL for programs, which need the token of the daemon; at its Unix socket the host has no meaning."""
        return f"{self._transport.config.base}{self._path}/"

    async def wait(self, timeout: Seconds = 30) -> PortInfo:
        """Wait until a process listens, and return it. Raises Unavailable if none does in time."""
        query = [("wait", f"{milliseconds(timeout, 'timeout')}ms")]
        return PortInfo(await self._transport.call("GET", self._path, query=query, sandbox=self._sandbox))

    async def publish(
        self, host_port: Optional[int] = None, *, address: Optional[str] = None, token: Optional[str] = None
    ) -> PublishedPort:
        """Let a port of the daemon's host lead to it, until Sandbox.unpublish() or the end of the sandbox.

        host_port is any free one, and address 127.0.0.1, unless they are given. With a token (16 to 256
        characters) requests must carry it: `Authorization: Bearer`, and the port speaks HTTP only.
        """
        body = present(port=self.port, host_port=host_port, address=address, token=token)
        target = f"/v1/sandboxes/{segment(self._sandbox)}/ports/published"
        return PublishedPort(await self._transport.call("POST", target, body=body, sandbox=self._sandbox))

    async def browser_url(self, path: str = "/") -> str:
        """Return a URL that a browser can open once. The daemon must listen at an address."""
        body = {"port": self.port, "path": path}
        target = f"/v1/sandboxes/{segment(self._sandbox)}/port-sessions"
        return str((await self._transport.call("POST", target, body=body, sandbox=self._sandbox))["url"])

    async def request(
        self,
        method: str,
        path: str = "/",
        *,
        content: Union[str, bytes, None] = None,
        json: Any = None,
        headers: Optional[Mapping[str, str]] = None,
        wait: Seconds = 10,
    ) -> AsyncResponse:
        """Make a request of the web server at the port, and wait until a process listens."""
        fields: Dict[str, str] = {"X-Ramet-Wait": f"{milliseconds(wait, 'wait')}ms", **(headers or {})}
        data = content.encode("utf-8") if isinstance(content, str) else content
        response = await self._transport.exchange(
            method, self._path + "/" + path.lstrip("/"), fields, json=json, content=data, sandbox=self._sandbox
        )
        body = await self._transport.body(response, self._sandbox)
        kind = header(response, b"content-type")
        if response.status >= 400 and kind.startswith(_wire.PROBLEM):
            raise _wire.problem_of(response.status, kind, body)
        return AsyncResponse(
            response.status, [(k.decode("latin-1"), v.decode("latin-1")) for k, v in response.headers], body
        )

    async def get(self, path: str = "/", **options: Any) -> AsyncResponse:
        """Make a GET request of the web server at the port."""
        return await self.request("GET", path, **options)

    async def connect(self, timeout: Seconds = 10) -> AsyncConnection:
        """Open a connection to the port, and wait until a process listens."""
        response = await self._transport.exchange(
            "GET", f"{self._path}?wait={milliseconds(timeout, 'timeout')}ms",
            {"Connection": "Upgrade", "Upgrade": "tcp"}, sandbox=self._sandbox,
        )  # fmt: skip
        if response.status != 101:
            body = await self._transport.body(response, self._sandbox)
            raise _wire.problem_of(response.status, header(response, b"content-type"), body)
        return AsyncConnection(self._transport, self._sandbox, response)

    async def forward(self, local: int = 0, address: str = "127.0.0.1") -> "AsyncForward":
        """Listen at a port of this machine, and pass connections on. Close it, or use it with `with`."""
        forward = AsyncForward(self)
        await forward.open(address, local)
        return forward


class AsyncForward:
    """A port of this machine whose connections go to a port of a sandbox."""

    address: str
    """Where it listens, as HOST:PORT."""

    def __init__(self, port: AsyncPort) -> None:
        self._port = port
        self._listener = _io.Listener()

    async def open(self, address: str, local: int) -> None:
        self.address = await self._listener.open(address, local, self._port.connect)

    async def __aenter__(self) -> "AsyncForward":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop listening, and end the connections."""
        await self._listener.aclose()
