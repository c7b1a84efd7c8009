"""Toolkits: a sandbox, its tools in a framework's form, and its forks."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Generic, List, Optional, Type, TypeVar

import ramet

from . import _owned
from ._run import TIMEOUT
from ._tools import MAX_FORKS, MAX_OUTPUT, Tool, Tools

T = TypeVar("T")  # a tool of the framework
S = TypeVar("S", bound="Toolkit[Any]")


class Toolkit(Generic[T]):
    """The tools of one sandbox. Frameworks' toolkits say who the owner is, and how a tool is made."""

    owner = ""

    def __init__(self, sandbox: "ramet.Sandbox", **options: Any) -> None:
        self._kit = Tools(sandbox, **options)
        self._client: Optional[ramet.Client] = None
        self.tools: List[T] = [self._make(tool) for tool in self._kit.list()]

    @classmethod
    def create(
        cls: Type[S],
        image: str = "python",
        *,
        cwd: Optional[str] = None,
        timeout: float = TIMEOUT,
        max_output: int = MAX_OUTPUT,
        max_forks: int = MAX_FORKS,
        **options: Any,
    ) -> S:
        """Make a sandbox, which ends with `close`, or a minute after this program if that is killed.

        Commands start in `cwd`, and are killed after `timeout` seconds. Answers have `max_output` characters at
        most. The model may have `max_forks` children at once; with 0 it has no tools for forks. options are those of
        `ramet.Sandbox.create`.
        """
        client, sandbox = _owned.create(cls.owner, image, **options)
        kit = cls(sandbox, cwd=cwd, timeout=timeout, max_output=max_output, max_forks=max_forks)
        kit._client = client
        return kit

    def _make(self, tool: Tool) -> T:
        raise NotImplementedError

    @property
    def sandbox(self) -> "ramet.Sandbox":
        """The sandbox itself, for all else: snapshots, ports, comparisons."""
        return self._kit.sandbox

    def fork(self: S, n: int = 1, **options: Any) -> "List[S]":
        """Make toolkits whose sandboxes have all of this one: files, memory and processes. They end with it."""
        return [type(self)(child, **self._kit.options) for child in self.sandbox.fork(n, **options)]

    def promote(self: S, child: S) -> None:
        """Go on with the state of a fork, which is gone then."""
        self.sandbox.promote(child.sandbox)
        child._kit.end_children()

    def close(self) -> None:
        """Destroy the sandbox, its forks, and the children that the model made."""
        try:
            self._kit.end_children()
        finally:
            _owned.end(self._client, self.sandbox)

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()
