"""The files of a sandbox."""

from __future__ import annotations

import os
from typing import Any, AsyncIterator, Dict, Iterable, List, Optional, TYPE_CHECKING, Tuple, Union

from .._errors import NotFound
from .._models import ExtractResult, FileEvents, FileInfo, SearchResult
from .._types import Path, gone, invalid
from . import _io
from ._exec import Input, blocks
from ._transport import AsyncEventStream, AsyncTransport, Query, segment

if TYPE_CHECKING:
    import httpcore

_OCTETS = {"Content-Type": "application/octet-stream"}
_TAR = {"Content-Type": "application/x-tar"}
_PIECE = 256 << 10


class AsyncWatch:
    """Changes of files: an iterator of FileEvents. It begins to watch before it is returned."""

    def __init__(self, events: AsyncEventStream) -> None:
        self._events = events

    async def __aenter__(self) -> "AsyncWatch":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __aiter__(self) -> "AsyncWatch":
        return self

    async def __anext__(self) -> FileEvents:
        while True:
            event = await self._events.next()
            if event is None:
                raise StopAsyncIteration
            if event.name == "files":
                return FileEvents(event.data)

    async def aclose(self) -> None:
        """Stop watching."""
        await self._events.aclose()


class AsyncFiles:
    """The files of a sandbox. Paths are absolute; `user` is the one whose permissions apply, root if not given."""

    def __init__(self, transport: AsyncTransport, sandbox: str) -> None:
        self._transport = transport
        self._sandbox = sandbox

    @property
    def _path(self) -> str:
        return f"/v1/sandboxes/{segment(self._sandbox)}/files"

    async def read(self, path: Path, *, encoding: str = "utf-8", user: Optional[str] = None) -> str:
        """Return the text of a file."""
        return (await self.read_bytes(path, user=user)).decode(encoding)

    async def read_bytes(self, path: Path, *, user: Optional[str] = None) -> bytes:
        """Return the contents of a file."""
        parts = []
        async for piece in self.stream(path, user=user):
            parts.append(piece)
        return b"".join(parts)

    async def stream(self, path: Path, *, user: Optional[str] = None) -> AsyncIterator[bytes]:
        """Iterate over the contents of a file."""
        response = await self._transport.send(
            "GET", self._path, query=_query(path, user=user), accept="*/*", sandbox=self._sandbox
        )
        try:
            async for piece in self._transport.pieces(response, self._sandbox):
                yield piece
        finally:
            await response.aclose()

    async def write(
        self,
        path: Path,
        data: Input,
        *,
        mode: Optional[int] = None,
        append: bool = False,
        atomic: bool = False,
        parents: bool = True,
        user: Optional[str] = None,
        if_match: Optional[str] = None,
        if_none_match: Optional[str] = None,
    ) -> FileInfo:
        """Write a file: text, bytes, a file that is open here, or an iterator of bytes.

        With atomic the old file is replaced when all bytes have arrived. if_match is the etag that the file
        must have, and if_none_match="*" is that there must be none; else Conflict is raised.
        """
        query = _query(path, user=user, mode=mode, append=append, atomic=atomic, parents=parents)
        if isinstance(data, str):
            data = data.encode("utf-8")
        content: Any = bytes(data) if isinstance(data, (bytes, bytearray)) else blocks(data, _PIECE)
        return FileInfo(
            await self._transport.call(
                "PUT", self._path, query=query, content=content, sandbox=self._sandbox,
                headers={**_OCTETS, **_condition("If-Match", if_match), **_condition("If-None-Match", if_none_match)},
            )  # fmt: skip
        )

    async def stat(self, path: Path, *, follow: bool = True, user: Optional[str] = None) -> FileInfo:
        """Describe a file."""
        query = _query(path, user=user, no_follow=not follow)
        return FileInfo(await self._transport.call("GET", self._path + "/stat", query=query, sandbox=self._sandbox))

    async def exists(self, path: Path, *, user: Optional[str] = None) -> bool:
        """Return whether there is a file or directory."""
        try:
            await self.stat(path, follow=False, user=user)
        except NotFound as error:
            if gone(error, self._sandbox):
                raise
            return False
        return True

    async def list(
        self, path: Path = "/", *, depth: int = 1, glob: Optional[str] = None, user: Optional[str] = None
    ) -> List[FileInfo]:
        """Return what is in a directory, in the order of names. A depth of 0 is without limit."""
        query = _query(path, user=user, depth=depth, glob=glob)
        items = await self._transport.pages(self._path + "/list", query, 10_000, sandbox=self._sandbox)
        return [FileInfo(item) for item in items]

    async def search(
        self,
        path: Path = "/",
        text: Optional[str] = None,
        *,
        name: Optional[str] = None,
        regexp: bool = False,
        ignore_case: bool = False,
        limit: Optional[int] = None,
        user: Optional[str] = None,
    ) -> SearchResult:
        """Search below a directory for lines with a text, for names that match a pattern, or both."""
        query = _query(path, user=user, content=text, name=name, regexp=regexp, ignore_case=ignore_case, limit=limit)
        answer = await self._transport.call("GET", self._path + "/search", query=query, sandbox=self._sandbox)
        return SearchResult(answer)

    async def mkdir(
        self, path: Path, *, parents: bool = True, mode: Optional[int] = None, user: Optional[str] = None
    ) -> FileInfo:
        """Make a directory. With parents it is no error that it exists."""
        return await self._change("mkdir", _query(path, user=user, parents=parents, mode=mode))

    async def move(
        self, path: Path, to: Path, *, keep: bool = False, parents: bool = False, user: Optional[str] = None
    ) -> FileInfo:
        """Move or rename a file or directory. With keep no other file is replaced."""
        return await self._change("move", _query(path, user=user, to=os.fsencode(to), keep=keep, parents=parents))

    async def chmod(self, path: Path, mode: int, *, recursive: bool = False, user: Optional[str] = None) -> FileInfo:
        """Change the mode of a file or directory."""
        return await self._change("chmod", _query(path, user=user, mode=mode, recursive=recursive))

    async def _change(self, action: str, query: Query) -> FileInfo:
        answer = await self._transport.call("POST", f"{self._path}/{action}", query=query, sandbox=self._sandbox)
        return FileInfo(answer)

    async def remove(
        self, path: Path, *, recursive: bool = False, user: Optional[str] = None, if_match: Optional[str] = None
    ) -> None:
        """Remove a file or directory. A directory must be empty, unless recursive is given. if_match is as of write()."""
        query = _query(path, user=user, recursive=recursive)
        headers = _condition("If-Match", if_match)
        await self._transport.call("DELETE", self._path, query=query, headers=headers, sandbox=self._sandbox)

    async def watch(
        self, path: Path, *, recursive: bool = False, debounce: float = 0.05, user: Optional[str] = None
    ) -> AsyncWatch:
        """Watch a file or directory. Changes from now on are reported."""
        query = _query(path, user=user, recursive=recursive, debounce_ms=round(debounce * 1000))
        events = await self._transport.events("GET", self._path + "/watch", query=query, sandbox=self._sandbox)
        watch = AsyncWatch(events)
        await watch.__anext__()  # the first event says that it has begun
        return watch

    async def upload(self, local: Union[str, "os.PathLike[str]"], path: Path, *, user: Optional[str] = None) -> int:
        """Copy a file or directory of this machine to a path, and return how many bytes.

        The contents of a directory come to lie in the path.
        """
        source = os.fspath(local)
        if os.path.isdir(source):
            return int((await self._send_archive(source, path, None, user)).bytes)
        if not os.path.isfile(source):
            raise invalid("local", f"there is no file or directory {source!r}")
        with open(source, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
            return int((await self.write(path, file, mode=mode, user=user)).size)

    async def _send_archive(
        self, source: str, path: Path, only: Optional[List[str]], user: Optional[str]
    ) -> ExtractResult:
        from .. import _local

        pieces = _local.archive(source, None if only is None else set(only))
        return ExtractResult(
            await self._transport.call(
                "PUT", self._path + "/archive", query=_query(path, user=user, parents=True),
                content=_joined(pieces), headers=_TAR, sandbox=self._sandbox,
            )
        )  # fmt: skip

    async def download(self, path: Path, local: Union[str, "os.PathLike[str]"], *, user: Optional[str] = None) -> int:
        """Copy a file or directory to a path of this machine, and return how many files.

        Directories above the path are made.
        """
        target = os.fspath(local)
        if (await self.stat(path, user=user)).type != "dir":
            if os.path.isdir(target):
                target = os.path.join(target, os.path.basename(os.fsdecode(path)))
            os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
            with open(target, "wb") as file:
                async for piece in self.stream(path, user=user):
                    await _io.run(file.write, piece)
            return 1
        response = await self._transport.send(
            "GET", self._path + "/archive", query=_query(path, user=user), accept="*/*", sandbox=self._sandbox
        )
        import tempfile

        from .. import _local

        with tempfile.TemporaryFile() as spool:
            await self._spool(response, spool)
            os.makedirs(target, exist_ok=True)
            return await _io.run(_local.unpack, spool, target, 1 if os.fsdecode(path).strip("/") else 0)

    async def _spool(self, response: httpcore.Response, spool: Any) -> None:
        try:
            async for piece in self._transport.pieces(response, self._sandbox):
                await _io.run(spool.write, piece)
        finally:
            await response.aclose()
        spool.seek(0)

    async def sync(
        self,
        local: Union[str, "os.PathLike[str]"],
        path: Path,
        *,
        delete: bool = False,
        user: Optional[str] = None,
    ) -> List[str]:
        """Copy to a path what is new or different in a directory of this machine, and return the names.

        Files differ if their sizes or times do. With delete, what is not here is removed there.
        """
        from .. import _local

        source, top = os.fspath(local), os.fsdecode(path).rstrip("/")
        if not os.path.isdir(source):
            raise invalid("local", f"{source!r} is not a directory")
        there: Dict[str, Tuple[str, int, float]] = {}
        if await self.exists(path, user=user):
            for info in await self.list(path, depth=0, user=user):
                there[os.path.relpath(info.path, top or "/")] = (info.type, info.size, info.modified_at.timestamp())
        names = await _io.run(_local.differing, source, there)
        if names:
            await self._send_archive(source, path, names, user)
        if delete:
            here = {name for _, name in _local.walk(source)}
            for name in sorted(set(there) - here):
                if os.path.dirname(name) not in set(there) - here:  # it goes with its directory
                    await self.remove(f"{top}/{name}", recursive=True, user=user)
        return names


async def _joined(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Iterate over bytes in larger pieces."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        if len(buffer) >= _PIECE:
            yield bytes(buffer)
            buffer.clear()
    if buffer:
        yield bytes(buffer)


def _condition(header: str, etag: Optional[str]) -> Dict[str, str]:
    """Return the header that makes a request depend on what a file is."""
    return {} if etag is None else {header: etag if etag == "*" else f'"{etag}"'}


def _query(path: Path, **parameters: Any) -> Query:
    query: Query = [("path", os.fsencode(path))]
    for name, value in parameters.items():
        if value is None or value is False:
            continue
        if value is True:
            value = "true"
        elif name == "mode":
            value = f"{value:o}"
        query.append((name, value if isinstance(value, (str, bytes)) else str(value)))
    return query
