"""Files of this machine: archives of directories, made and unpacked in pieces."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from typing import IO, Any, Dict, Iterator, List, Optional, Set, Tuple

from ._errors import InvalidRequest

_PIECE = 256 << 10


def archive(top: str, only: Optional[Set[str]] = None) -> Iterator[bytes]:
    """Iterate over a tar of what is below a directory, or of the paths of it that are given.

    The contents of a file are read while they are sent. Pipes, sockets and devices are left out.
    """
    inodes: Dict[Tuple[int, int], str] = {}
    with tarfile.TarFile(fileobj=io.BytesIO(), mode="w") as maker:  # for its gettarinfo()
        for path, name in walk(top):
            if only is not None and name not in only:
                continue
            status = os.lstat(path)
            info = maker.gettarinfo(path, name)
            if info is None:
                continue
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if info.type == tarfile.LNKTYPE:  # a link to a file that may be left out
                info.type, info.linkname, info.size = tarfile.REGTYPE, "", status.st_size
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1 and only is None:
                first = inodes.setdefault((status.st_dev, status.st_ino), name)
                if first != name:
                    info.type, info.linkname, info.size = tarfile.LNKTYPE, first, 0
            if info.isreg():
                with open(path, "rb") as file:
                    yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
                    yield from _contents(file, info.size, path)
            elif info.isdir() or info.issym() or info.islnk():
                yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    yield bytes(2 * tarfile.BLOCKSIZE)


def _contents(file: IO[bytes], size: int, path: str) -> Iterator[bytes]:
    left = size
    while left:
        piece = file.read(min(left, _PIECE))
        if not piece:
            raise InvalidRequest(f"{path} became shorter while it was read", code="invalid_argument", field="local")
        left -= len(piece)
        yield piece
    if size % tarfile.BLOCKSIZE:
        yield bytes(tarfile.BLOCKSIZE - size % tarfile.BLOCKSIZE)


def walk(top: str) -> Iterator[Tuple[str, str]]:
    """Iterate over what is below a directory, as paths and as names relative to it."""
    for directory, directories, files in os.walk(top):
        directories.sort()
        for name in sorted(directories + files):
            path = os.path.join(directory, name)
            yield path, os.path.relpath(path, top)


def unpack(file: IO[bytes], target: str, strip: int) -> int:
    """Unpack a tar below a directory without its first path elements, and return how many files."""
    count = 0
    root = os.path.realpath(target)
    with tarfile.open(fileobj=file, mode="r|") as source:
        for member in source:
            parts = [part for part in member.name.split("/") if part not in ("", ".")][strip:]
            if not parts:
                continue
            member.name = "/".join(parts)
            if member.islnk():
                member.linkname = "/".join([p for p in member.linkname.split("/") if p not in ("", ".")][strip:])
            _inside(root, member)
            if member.isdev():
                continue
            member.mode &= 0o777
            path = os.path.join(root, member.name)
            if os.path.islink(path):  # a file is never written through a link
                os.unlink(path)
            try:
                source.extract(member, target, set_attrs=True, numeric_owner=False, **_filter())
            except tarfile.TarError as error:
                raise InvalidRequest(f"{member.name}: {error}", code="hostile_archive") from error
            count += 1
    return count


def _inside(root: str, member: tarfile.TarInfo) -> None:
    """Refuse an entry that leads out of the directory."""
    where = os.path.realpath(os.path.join(root, os.path.dirname(member.name)))
    ends = [where]
    if member.islnk():
        ends.append(os.path.realpath(os.path.join(root, member.linkname)))
    if ".." in member.name.split("/") or any(e != root and not e.startswith(root.rstrip("/") + "/") for e in ends):
        raise InvalidRequest(f"the archive leads out of the directory: {member.name}", code="hostile_archive")


def _filter() -> Dict[str, Any]:
    return {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}


def differing(top: str, there: Dict[str, Tuple[str, int, float]]) -> List[str]:
    """Return the names below a directory that are not the same there: kind, size or time differ."""
    names = []
    for path, name in walk(top):
        status = os.lstat(path)
        kind = "dir" if stat.S_ISDIR(status.st_mode) else "symlink" if stat.S_ISLNK(status.st_mode) else "file"
        known = there.get(name)
        same = known is not None and known[0] == kind
        if same and known is not None and kind == "file":
            same = known[1] == status.st_size and int(known[2]) == int(status.st_mtime)
        if same and kind == "symlink":
            same = False  # links are small
        if not same:
            names.append(name)
    return names
