"""The client of a daemon."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, AsyncIterator, Iterable, List, Mapping, Optional, Union

from .._config import Config, resolve
from .._models import AuditEntry, AuditReport, ExplorationInfo, Health, NetworkProfile, Tree
from .._types import Seconds, present, seconds_of
from . import _io
from ._events import AsyncEvents
from ._images import AsyncImages
from ._lease import AsyncLease
from ._secrets import AsyncSecrets
from ._volumes import AsyncVolumes
from ._transport import AsyncTransport, Query, segment

if TYPE_CHECKING:
    from ._explore import AsyncExploration
    from ._sandbox import AsyncSandbox, AsyncSnapshot


class AsyncClient:
    """A client of one daemon. It may be used by many tasks at the same time.

    Without a host it talks to the user's own daemon on this machine, which it starts when it does
    not run. host is https://HOST:PORT or unix:PATH; host, token and ca are by default those of
    RAMET_HOST, RAMET_TOKEN (or RAMET_TOKEN_FILE) and RAMET_CA.

    owner is a label of all sandboxes that it makes, by which list() finds them. With lease they live
    as long as the `with` block of the client: it renews their time to live, and ends them when it is
    left. If the program is killed, the daemon ends them after so many seconds. A sandbox with a ttl
    of its own, and one that is detached, is left alone.
    """

    def __init__(
        self,
        host: Optional[str] = None,
        token: Optional[str] = None,
        *,
        ca: Optional[Union[str, "os.PathLike[str]"]] = None,
        owner: Optional[str] = None,
        lease: Optional[Seconds] = None,
    ) -> None:
        self._config = resolve(host, token, ca)
        self._transport = AsyncTransport(self._config)
        self._owner = owner
        self._lease = AsyncLease(self._transport, seconds_of(lease)) if lease is not None else None

    @classmethod
    def _of(cls, config: Config) -> "AsyncClient":
        client = cls.__new__(cls)
        client._config = config
        client._transport = AsyncTransport(config)
        client._owner = None
        client._lease = None
        return client

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._config.socket or self._config.base})"

    async def __aenter__(self) -> "AsyncClient":
        if self._lease is not None:
            await self._lease.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections. Sandboxes go on, but for those of a lease."""
        if self._lease is not None:
            await self._lease.aclose()
        await self._transport.aclose()

    @property
    def images(self) -> AsyncImages:
        """The images of the daemon."""
        return AsyncImages(self._transport)

    @property
    def secrets(self) -> AsyncSecrets:
        """The secrets that the daemon puts into requests of sandboxes, outside of them."""
        return AsyncSecrets(self._transport)

    @property
    def volumes(self) -> AsyncVolumes:
        """The directories that sandboxes of the daemon share."""
        return AsyncVolumes(self._transport)

    async def health(self) -> Health:
        """Return the state and version of the daemon."""
        return Health(await self._transport.call("GET", "/healthz"))

    async def create(self, image: str = "python", **options: Any) -> "AsyncSandbox":
        """Create a sandbox: see AsyncSandbox.create."""
        from ._sandbox import AsyncSandbox

        return await AsyncSandbox.create(image, client=self, **options)

    async def get(self, id: str) -> "AsyncSandbox":
        """Return a sandbox by its id or name."""
        from ._sandbox import AsyncSandbox

        return await AsyncSandbox.connect(id, client=self)

    async def list(self, **filters: Any) -> "List[AsyncSandbox]":
        """Return sandboxes: see AsyncSandbox.list."""
        from ._sandbox import AsyncSandbox

        return await AsyncSandbox.list(client=self, **filters)

    async def restore(self, snapshot: "Union[str, AsyncSnapshot]", **options: Any) -> "AsyncSandbox":
        """Make a sandbox from a snapshot: see AsyncSnapshot.restore."""
        from ._sandbox import AsyncSandbox

        return await AsyncSandbox.restore(snapshot, client=self, **options)

    async def snapshot(self, id: str) -> "AsyncSnapshot":
        """Return a snapshot by its id or name."""
        from ._sandbox import AsyncSnapshot

        return await AsyncSnapshot.get(id, client=self)

    async def snapshots(self, **filters: Any) -> "List[AsyncSnapshot]":
        """Return snapshots: see AsyncSnapshot.list."""
        from ._sandbox import AsyncSnapshot

        return await AsyncSnapshot.list(client=self, **filters)

    async def delete_snapshot(self, id: str, *, cascade: bool = False) -> None:
        """Delete a snapshot."""
        query: Query = [("cascade", "true")] if cascade else []
        await self._transport.call("DELETE", f"/v1/snapshots/{segment(id)}", query=query)

    async def exploration(self, id: str) -> "AsyncExploration":
        """Return an exploration by its id."""
        from ._explore import AsyncExploration

        info = ExplorationInfo(await self._transport.call("GET", f"/v1/explorations/{segment(id)}"))
        return AsyncExploration(await self.get(info.sandbox), info)

    async def network_profiles(self) -> List[NetworkProfile]:
        """Return the profiles that network= can name."""
        return [NetworkProfile(item) for item in (await self._transport.call("GET", "/v1/network/profiles"))["items"]]

    async def tree(self) -> List[Tree]:
        """Return the lineages of all sandboxes and snapshots."""
        return [Tree(item) for item in (await self._transport.call("GET", "/v1/tree"))["items"]]

    def events(self, *, kinds: Iterable[str] = (), since: int = 0, follow: bool = False) -> AsyncEvents:
        """Iterate over the events of all sandboxes. With follow the iteration has no end."""
        return AsyncEvents(self._transport, "/v1/events", None, kinds, since, follow)

    async def audit(self, *, since: int = 0) -> AsyncIterator[AuditEntry]:
        """Iterate over the entries of the audit log after one with the number since, the oldest first.

        They say who did what and with which result, without the contents of requests. It needs a token
        with scope admin; an administrator of a tenant sees its own entries.
        """
        limit = 1000
        while True:
            query: Query = [("since", str(since)), ("limit", str(limit))]
            items = (await self._transport.call("GET", "/v1/audit", query=query))["items"]
            for item in items:
                yield AuditEntry(item)
                since = item["seq"]
            if len(items) < limit:
                return

    async def verify_audit(self, head: Optional[str] = None) -> AuditReport:
        """Compute the digests of all lines of the audit log anew, and return what is wrong with them.

        head is that of an earlier report, which is kept elsewhere: then lines that were cut off are found, too.
        """
        query: Query = [("head", head)] if head is not None else []
        return AuditReport(await self._transport.call("GET", "/v1/audit/verify", query=query))

    async def metrics(self) -> str:
        """Return what the daemon has, and how long what took, in the text format of Prometheus."""
        response = await self._transport.send("GET", "/metrics", accept="text/plain")
        return (await self._transport.body(response)).decode()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Optional[Mapping[str, str]] = None,
        body: Any = None,
        headers: Optional[Mapping[str, str]] = None,
    ) -> Any:
        """Make any request of the REST interface, and return the JSON of its answer."""
        return await self._transport.call(
            method, path, query=list(present(**(query or {})).items()), body=body, headers=headers
        )


_clients: "_io.PerContext[AsyncClient]" = _io.PerContext()


def default_client() -> AsyncClient:
    """Return the client of the environment, which calls without a client share."""
    config = resolve()
    clients = _clients.values()
    if config not in clients:
        clients[config] = AsyncClient._of(config)
    return clients[config]
