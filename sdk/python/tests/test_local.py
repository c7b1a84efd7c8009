"""Arguments, values and archives, without a daemon."""

from __future__ import annotations

import io
import os
import tarfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Dict

import pytest

import ramet
from ramet import _local, _types
from ramet._model import parse_time
from ramet._models import Diff, FileInfo, SandboxInfo, Tree


def archive_of(*members: "tuple[str, bytes, str]") -> io.BytesIO:
    """Return a tar of members: a name, a kind of tarfile, and the contents or the target."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, text in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = len(text)
            else:
                info.linkname = text
            tar.addfile(info, io.BytesIO(text.encode()))
    out.seek(0)
    return out


REG, SYM, LNK = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", REG, "x")],
        [("a/../../evil", REG, "x")],
        [("a", SYM, ".."), ("a/evil", REG, "x")],
        [("a", SYM, "/tmp"), ("a/b/evil", REG, "x")],
        [("a", SYM, "../secret"), ("b", LNK, "a")],
        [("b", LNK, "../secret")],
    ],
)
def test_archives_do_not_lead_out_of_their_directory(tmp_path: Path, members: Any) -> None:
    (tmp_path / "secret").write_text("secret")
    target = tmp_path / "in"
    target.mkdir()
    with pytest.raises(ramet.InvalidRequest) as refused:
        _local.unpack(archive_of(*members), str(target), 0)
    assert refused.value.code == "hostile_archive"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "secret"]
    assert not [p for p in target.rglob("*") if p.is_file() and p.read_text() == "secret" and not p.is_symlink()]


def test_a_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    target = tmp_path / "in"
    target.mkdir()
    (target / "a").symlink_to("../secret")
    _local.unpack(archive_of(("a", REG, "x")), str(target), 0)
    assert (tmp_path / "secret").read_text() == "secret" and (target / "a").read_text() == "x"


def test_archives_are_made_in_pieces(tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "d").mkdir(parents=True)
    (here / "d" / "f").write_bytes(b"x" * 1_000_000)
    os.link(here / "d" / "f", here / "g")
    (here / "l").symlink_to("d/f")
    os.mkfifo(here / "pipe")
    pieces = list(_local.archive(str(here)))
    assert max(map(len, pieces)) <= 256 << 10
    there = tmp_path / "there"
    there.mkdir()
    assert _local.unpack(io.BytesIO(b"".join(pieces)), str(there), 0) == 4
    assert (there / "g").stat().st_ino == (there / "d" / "f").stat().st_ino and os.readlink(there / "l") == "d/f"
    assert not (there / "pipe").exists()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42), ("'a'", "a"), ("[1, {'a': (2, None)}]", [1, {"a": (2, None)}]), ("nan", None), ("-inf", float("-inf")),
        ("np.float64(3.5)", 3.5), ("{1: 2}", None), ("b'x'", None), ("<x>", None), ("", None), ("array([1])", None), ("true", True),
    ],
)  # fmt: skip
def test_values(text: str, value: Any) -> None:
    got = _types.value_of(text)
    assert (got != got) if text == "nan" else (got == value and type(got) is type(value))


@pytest.mark.parametrize(
    ("network", "secrets", "document"),
    [
        (None, None, None),
        ("open", None, {"profile": "open"}),
        (["a.example"], None, {"allow": ["a.example"]}),
        ({"default": "allow"}, None, {"default": "allow"}),
        (["a.example"], {"a.example:Authorization": "Bearer ${T}"}, {
            "allow": ["a.example"], "rules": {"a.example": {"secret": {"header": "Authorization", "value": "Bearer ${T}"}}},
        }),
    ],
)  # fmt: skip
def test_networks(network: Any, secrets: Any, document: Any) -> None:
    assert _types.network_of(network, secrets) == document


def test_units() -> None:
    assert [_types.mebibytes(size, "m") for size in (None, 5, "512M", "2G", "1.5GiB", "512K")] == [None, 5, 512, 2048, 1536, 1]
    assert [_types.milliseconds(t, "t") for t in ("90s", "1h30m", "2d", "1.5s", "250ms", "0s")] == [90_000, 5_400_000, 172_800_000, 1500, 250, 0]
    for text in ("", "1", "h", "5x", "-1s", "1m1h"):
        with pytest.raises(ramet.InvalidRequest, match="not a number of seconds"):
            _types.milliseconds(text, "t")
    assert [_types.milliseconds(t, "t") for t in (None, 0, 0.0001, 1.5, timedelta(minutes=1))] == [None, 0, 1, 1500, 60000]
    for wrong in ("5", "x", "-1M", ""):
        with pytest.raises(ramet.InvalidRequest):
            _types.mebibytes(wrong, "m")
    for late in (-1, float("nan"), 1e12):
        with pytest.raises(ramet.InvalidRequest):
            _types.milliseconds(late, "t")
    for command in ([], [1], 123):
        with pytest.raises(ramet.InvalidRequest):
            _types.command_of(command)  # type: ignore[arg-type]
    with pytest.raises(ramet.InvalidRequest):
        _types.network_of(None, {"no-header": "x"})


def test_models() -> None:
    utc = timezone.utc
    assert parse_time("2026-11-25T14:27:53.402173861Z") == datetime(2026, 11, 25, 14, 27, 53, 402173, utc)
    assert parse_time("2026-11-25T14:27:53+01:30").utcoffset() == timedelta(hours=1.5)
    document: Dict[str, Any] = {"id": "x", "limits": {"cpus": 2}, "novelty": [1]}
    info: Any = SandboxInfo(document)
    assert info.limits.cpus == 2 and info.metadata == {} and info.reason is None and info.novelty == [1]
    assert info.to_dict() == document and info == SandboxInfo(document) and "cpus=2" in repr(info)
    with pytest.raises(AttributeError, match="in the answer of this daemon"):
        info.state
    assert os.fsencode(FileInfo({"path": "/\ufffd", "path_base64": "L/8="}).path) == b"/\xff"
    tree = Tree({"id": "a", "kind": "sandbox", "state": "running", "children": [{"id": "b", "kind": "sandbox", "state": "paused", "name": "n"}]})
    assert str(tree) == "a running\n└─ n b paused" and [node.id for node in tree.walk()] == ["a", "b"]
    assert str(Diff({"changes": []})) == "no difference" and not Diff({"changes": []})


def test_the_package_is_written_for_python_3_9() -> None:
    import ast

    files = sorted(Path(ramet.__file__).parent.rglob("*.py"))
    assert len(files) > 20
    for file in files:
        tree = ast.parse(file.read_text(), feature_version=(3, 9))
        assert any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body) or len(tree.body) == 1, file
