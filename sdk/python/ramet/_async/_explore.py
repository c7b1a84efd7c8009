"""Explorations: forks that try something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional

from .._errors import ExploreError, error_of
from .._models import Attempt, ExplorationEvent, ExplorationInfo
from ._events import AsyncEvents
from ._transport import AsyncTransport, segment

if TYPE_CHECKING:
    from ._sandbox import AsyncSandbox, AsyncSandboxes

_FINAL = ("done", "failed", "canceled", "interrupted")


class AsyncExploration:
    """An exploration, which belongs to the daemon: it goes on when its client ends.

    Iterating over it yields its events until it has ended. Terminals and notebooks show the table of its
    attempts.
    """

    def __init__(self, sandbox: "AsyncSandbox", info: ExplorationInfo) -> None:
        self._sandbox = sandbox
        self._transport = sandbox._transport
        self._info = info
        self._kept: Dict[str, "AsyncSandbox"] = {}
        self._take(info)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, state={self.state!r})"

    def __str__(self) -> str:
        return str(self._info)

    def _repr_html_(self) -> str:
        return self._info._repr_html_()

    @property
    def id(self) -> str:
        """Its id."""
        return self._info.id

    @property
    def state(self) -> str:
        """Its state when it was last asked for: running, finishing, done, failed, canceled or interrupted."""
        return self._info.state

    @property
    def attempts(self) -> List[Attempt]:
        """Its attempts, in the order of their indexes, as they were last seen."""
        return self._info.children

    @property
    def winners(self) -> List[Attempt]:
        """The attempts that won, the best one first."""
        known = {attempt.index: attempt for attempt in self.attempts}
        return [known[index] for index in self._info.winners]

    @property
    def winner(self) -> Optional[Attempt]:
        """The attempt that won, if there is one."""
        return next(iter(self.winners), None)

    @property
    def sandboxes(self) -> "AsyncSandboxes":
        """The attempts that are still there when it has ended, the winners first."""
        from ._sandbox import AsyncSandboxes

        order = [attempt.sandbox for attempt in self.winners + self.attempts]
        return AsyncSandboxes(self._kept[id] for id in dict.fromkeys(order) if id in self._kept)

    @property
    def _path(self) -> str:
        return f"/v1/explorations/{segment(self.id)}"

    def _take(self, info: ExplorationInfo) -> "AsyncExploration":
        """Remember what it is now. What it has left ends with the sandbox, as children do."""
        self._info = info
        if info.state in _FINAL:
            for attempt in info.children:
                if attempt.kept and attempt.sandbox and attempt.sandbox not in self._kept:
                    self._kept[attempt.sandbox] = self._sandbox._adopt(attempt.sandbox)
        return self

    async def info(self) -> ExplorationInfo:
        """Return what it is now, with the table of its attempts."""
        self._take(ExplorationInfo(await self._transport.call("GET", self._path)))
        return self._info

    async def wait(self) -> "AsyncExploration":
        """Wait for its end, and return it. Raises ExploreError if it failed, or was interrupted by the end of the daemon."""
        if self.state not in _FINAL:
            self._take(ExplorationInfo(await self._transport.call("GET", self._path, query=[("wait", "true")])))
        return self._check()

    def _check(self) -> "AsyncExploration":
        if self.state in ("failed", "interrupted"):
            reason = self._info.error
            cause = error_of(reason.to_dict()) if reason is not None else None
            code = cause.code if cause is not None else "unavailable"
            error = ExploreError(f"exploration {self.id} {self.state}: {cause or 'the daemon ended'}", code=code)
            error.exploration = self
            raise error from cause
        return self

    def events(self, *, since: int = 0, follow: bool = True) -> "AsyncExplorationEvents":
        """Iterate over its events, by default until it has ended."""
        return AsyncExplorationEvents(self._transport, self._path + "/events", since, follow)

    def __aiter__(self) -> "AsyncExplorationEvents":
        return self.events()

    async def cancel(self) -> "AsyncExploration":
        """Stop it, and return it when its attempts are gone. The table has what they did until then."""
        return self._take(ExplorationInfo(await self._transport.call("POST", self._path + "/cancel")))

    async def remove(self) -> None:
        """Forget it. One that has not ended is cancelled before."""
        await self._transport.call("DELETE", self._path)


class AsyncExplorationEvents(AsyncEvents):
    """Events of an exploration: an iterator that goes on at a new daemon."""

    def __init__(self, transport: AsyncTransport, path: str, since: int, follow: bool) -> None:
        super().__init__(transport, path, None, (), since, follow)

    async def __aenter__(self) -> "AsyncExplorationEvents":
        await self._open()
        return self

    def __aiter__(self) -> "AsyncExplorationEvents":
        return self

    async def __anext__(self) -> ExplorationEvent:  # type: ignore[override]
        return ExplorationEvent(await self._next())


async def explorations(sandbox: "AsyncSandbox", state: Optional[str]) -> List[AsyncExploration]:
    """Return the explorations of a sandbox, the oldest first, without outputs and comparisons."""
    query: Any = [("sandbox", sandbox.id)] + ([("state", state)] if state is not None else [])
    return [AsyncExploration(sandbox, ExplorationInfo(item)) for item in await sandbox._transport.pages("/v1/explorations", query)]
