"""Arguments and results that both clients share."""

from __future__ import annotations

import ast
import base64
import html
import json
import os
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

from ._errors import CodeError, CommandError, InvalidRequest, RametError, Timeout

Command = Union[str, Sequence[str]]
"""A text for the shell, or a program and its arguments."""

Seconds = Union[int, float, str, timedelta]
"""A time: a number of seconds, or a text such as "90s", "1h30m" or "2d"."""

Path = Union[str, bytes, "os.PathLike[str]"]
"""A path in a sandbox. It is absolute."""

Size = Union[int, str]
"""MiB as a number, or a text such as "512M" or "2G"."""

Network = Union[str, Sequence[str], Mapping[str, Any]]
"""The name of a profile, hosts that are allowed, or a document of rules."""

# The output that a blocking call keeps of each stream, as the daemon itself does.
KEEP = 8 << 20


@dataclass
class Result:
    """The end of a command. A command that fails is a result, and no error."""

    stdout: str
    """Its standard output."""
    stderr: str
    """Its standard error."""
    exit_code: int
    """The exit code; 128 and the signal if a signal ended it."""
    signal: Optional[str] = None
    """The signal that ended it."""
    duration: float = 0.0
    """How long it ran, in seconds."""
    truncated: bool = False
    """More than 8 MiB of a stream were written; the rest was dropped."""
    timed_out: bool = False
    """It was killed at its timeout."""
    stdout_bytes: bytes = field(default=b"", repr=False, compare=False)
    """Its standard output as it is."""
    stderr_bytes: bytes = field(default=b"", repr=False, compare=False)
    """Its standard error as it is."""

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    def check(self) -> "Result":
        """Return the result itself, or raise CommandError if the command failed."""
        if self.ok:
            return self
        how = f"was ended by {self.signal}" if self.signal else f"ended with exit code {self.exit_code}"
        tail = (self.stderr or self.stdout).strip()[-1000:]
        error = CommandError(f"the command {how}" + (f": {tail}" if tail else ""), code="command_failed")
        error.result = self
        raise error


def result_of(exit_: Mapping[str, Any], stdout: bytes, stderr: bytes, truncated: bool = False) -> Result:
    """Return the Result in the daemon's words. A command that timed out is raised."""
    result = Result(
        stdout.decode("utf-8", "replace"),
        stderr.decode("utf-8", "replace"),
        int(exit_.get("exit_code", 0)),
        exit_.get("signal") or None,
        float(exit_.get("duration_ms", 0.0)) / 1000,
        bool(truncated or exit_.get("truncated")),
        bool(exit_.get("timed_out")),
        stdout,
        stderr,
    )
    if result.timed_out:
        error = Timeout(
            f"the command was killed at its timeout, after {result.duration:.1f} s, with its process group",
            code="timeout",
        )
        error.result = result
        raise error
    return result


class Chunk(NamedTuple):
    """A piece of output."""

    stream: str
    """"stdout" or "stderr"."""
    data: bytes
    """The bytes."""
    seq: int = 0
    """How many bytes of both streams came before."""
    lost: int = 0
    """Bytes that are missing here, because they are not kept any more."""

    @property
    def text(self) -> str:
        """The text. A character that is split between two chunks is in neither of them."""
        return self.data.decode("utf-8", "replace")


@dataclass
class CellError:
    """The exception that ended a cell."""

    name: str
    """The class of the exception; ContextDied if the interpreter itself ended."""
    value: str
    """The text of the exception."""
    traceback: str
    """Where it was raised."""

    def __str__(self) -> str:
        return self.traceback or f"{self.name}: {self.value}"


class Rich(Mapping[str, Any]):
    """A value that a cell showed, in each form that it has: a mapping of media types.

    Notebooks show it as they would show the value itself.
    """

    def __init__(self, forms: Mapping[str, Any]) -> None:
        self._forms = dict(forms)

    def __getitem__(self, media_type: str) -> Any:
        return self._forms[media_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._forms)

    def __len__(self) -> int:
        return len(self._forms)

    def __repr__(self) -> str:
        return self.text or f"Rich({', '.join(self._forms)})"

    def _text(self, media_type: str) -> Optional[str]:
        value = self._forms.get(media_type)
        return value if isinstance(value, str) else None

    def _bytes(self, media_type: str) -> Optional[bytes]:
        value = self._text(media_type)
        return base64.b64decode(value) if value is not None else None

    @property
    def text(self) -> str:
        """The plain text, or an empty one."""
        return self._text("text/plain") or ""

    @property
    def html(self) -> Optional[str]:
        """The HTML."""
        return self._text("text/html")

    @property
    def markdown(self) -> Optional[str]:
        """The Markdown."""
        return self._text("text/markdown")

    @property
    def latex(self) -> Optional[str]:
        """The LaTeX."""
        return self._text("text/latex")

    @property
    def svg(self) -> Optional[str]:
        """The image as SVG."""
        return self._text("image/svg+xml")

    @property
    def png(self) -> Optional[bytes]:
        """The image as PNG."""
        return self._bytes("image/png")

    @property
    def jpeg(self) -> Optional[bytes]:
        """The image as JPEG."""
        return self._bytes("image/jpeg")

    @property
    def json(self) -> Any:
        """The JSON value."""
        return self._forms.get("application/json")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Dict[str, Any]:
        return dict(self._forms)

    def _repr_html_(self) -> str:
        if self.html is not None:
            return self.html
        if self.svg is not None:
            return self.svg
        for kind in ("image/png", "image/jpeg"):
            data = self._text(kind)
            if data is not None:
                return f'<img src="data:{kind};base64,{"".join(data.split())}">'
        return f"<pre>{html.escape(self.text)}</pre>"


@dataclass
class Execution:
    """The end of a cell. A cell that fails is a result, and no error."""

    text: str
    """The text of the value of the last expression."""
    value: Any
    """The value of the last expression if it is a number, text, list, dict, bool or None of JSON; else None."""
    results: List[Rich]
    """What was shown, in order."""
    stdout: str
    """Its standard output."""
    stderr: str
    """Its standard error."""
    error: Optional[CellError]
    """The exception that ended it."""
    context: str = ""
    """The interpreter that ran it."""
    execution_count: int = 0
    """The number of the cell in its context."""
    duration: float = 0.0
    """How long it ran, in seconds."""
    truncated: bool = False
    """A part of the output or of the results was left out."""
    timed_out: bool = False
    """It was interrupted at its timeout."""
    exit_code: int = 0
    """That of a cell of bash, which fails without an exception; of others 1 if they fail."""

    @property
    def ok(self) -> bool:
        """Whether the cell did not fail."""
        return self.error is None and self.exit_code == 0

    def check(self) -> "Execution":
        """Return the execution itself, or raise CodeError if the cell failed."""
        if self.ok:
            return self
        failure = CodeError(
            f"{self.error.name}: {self.error.value}" if self.error else f"the cell ended with exit code {self.exit_code}",
            code="code_failed",
        )
        failure.execution = self
        raise failure

    def __str__(self) -> str:
        parts = [self.stdout, self.text or "", str(self.error) if self.error else ""]
        return "\n".join(part.rstrip("\n") for part in parts if part)

    def _repr_html_(self) -> str:
        parts = []
        if self.stdout:
            parts.append(f"<pre>{html.escape(self.stdout)}</pre>")
        if self.stderr:
            parts.append(f'<pre style="color:#a00">{html.escape(self.stderr)}</pre>')
        parts.extend(rich._repr_html_() for rich in self.results)
        if self.error:
            parts.append(f'<pre style="color:#a00">{html.escape(str(self.error))}</pre>')
        return "\n".join(parts)


def execution_of(run: Mapping[str, Any], language: Optional[str]) -> Execution:
    """Return the Execution in the daemon's words. A cell that timed out is raised."""
    error = run.get("error")
    text = str(run.get("result") or "")
    execution = Execution(
        text,
        None if error else value_of(text, run.get("results") or []),
        [Rich(forms) for forms in run.get("results") or []],
        str(run.get("stdout") or ""),
        str(run.get("stderr") or ""),
        CellError(error.get("name", ""), error.get("value", ""), error.get("traceback", "")) if error else None,
        str(run.get("context") or ""),
        int(run.get("execution_count") or 0),
        float(run.get("duration_ms") or 0.0) / 1000,
        bool(run.get("truncated")),
        bool(run.get("timed_out")),
        int(run.get("exit_code") or 0),
    )
    if execution.timed_out:
        failure = Timeout(f"the cell was interrupted at its timeout, after {execution.duration:.1f} s", code="timeout")
        failure.execution = execution
        raise failure
    return execution


_NUMPY = re.compile(r"np\.(?:float|int|uint|bool|str)\w*\((.*)\)", re.S)
_NUMBERS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def value_of(text: str, results: Sequence[Mapping[str, Any]] = ()) -> Any:
    """Return the value that a text stands for, if JSON could hold it."""
    if results and "application/json" in results[-1]:
        return results[-1]["application/json"]
    scalar = _NUMPY.fullmatch(text)
    text = scalar[1] if scalar else text
    if text in _NUMBERS:
        return _NUMBERS[text]
    for parse in (ast.literal_eval, json.loads):
        try:
            value = parse(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if _is_json(value) else None
    return None


def _is_json(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(item) for key, item in value.items())
    return value is None or isinstance(value, (bool, int, float, str))


def command_of(command: Command) -> Dict[str, Any]:
    """Return the members of a request that say what to run."""
    if isinstance(command, str):
        return {"shell": command}
    if not isinstance(command, Iterable):
        raise invalid("command", f"it is a text for the shell, or a list of texts, and not {type(command).__name__}")
    argv = [os.fspath(part) if isinstance(part, os.PathLike) else part for part in command]
    if not argv or not all(isinstance(part, str) for part in argv):
        raise invalid("command", "it is a text for the shell, or a list of texts: a program and its arguments")
    return {"argv": argv}


_TIME = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_SECONDS = (86400, 3600, 60, 1, 0.001)


def seconds_of(time: Seconds, name: str = "time") -> float:
    """Return a time as a number."""
    if isinstance(time, timedelta):
        return time.total_seconds()
    if isinstance(time, str):
        match = _TIME.fullmatch(time.strip())
        if not match or not any(match.groups()):
            raise invalid(name, f'{time!r} is not a number of seconds, or a text such as "90s", "1h30m" or "2d"')
        return sum(float(number) * unit for number, unit in zip(match.groups("0"), _SECONDS))
    return float(time)


def milliseconds(seconds: Optional[Seconds], name: str) -> Optional[int]:
    """Return a time as the daemon takes it."""
    if seconds is None:
        return None
    value = seconds_of(seconds, name)
    if not 0 <= value < 3.2e8:
        raise invalid(name, f"{value:g} s is not a time from 0 to ten years")
    return max(1, round(value * 1000)) if value else 0


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?", re.I)
_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}


def mebibytes(size: Optional[Size], name: str) -> Optional[int]:
    """Return a size in MiB."""
    if size is None or isinstance(size, int):
        return size
    match = _SIZE.fullmatch(size.strip())
    if not match or not match[2]:
        raise invalid(name, f'{size!r} is not a number of MiB, or a text such as "512M" or "2G"')
    return max(1, round(float(match[1]) * _UNITS[match[2].upper()]))


def mounts_of(volumes: Optional[Mapping[str, str]]) -> Optional[List[Dict[str, Any]]]:
    """Return the JSON form of volumes by their directories; ":ro" at the end of a name is read-only."""
    if volumes is None:
        return None
    mounts = []
    for path, text in volumes.items():
        name, _, read_only = text.partition(":")
        if read_only not in ("", "ro"):
            raise invalid("volumes", f"{text!r} is not the name of a volume, or one with :ro")
        mounts.append(present(volume=name, path=path, read_only=True if read_only else None))
    return mounts


def network_of(network: Optional[Network], secrets: Optional[Mapping[str, str]] = None) -> Optional[Dict[str, Any]]:
    """Return the JSON form of a network, with headers that have secrets in them."""
    if network is None and not secrets:
        return None
    document: Dict[str, Any]
    if isinstance(network, str):
        document = {"profile": network}
    elif isinstance(network, Mapping):
        document = dict(network)
    else:
        document = {"allow": list(network)} if network is not None else {}
    rules = {name: dict(rule) for name, rule in (document.get("rules") or {}).items()}
    for place, value in (secrets or {}).items():
        domain, colon, header = place.rpartition(":")
        if not colon or not domain or not header:
            raise invalid("secrets", f'{place!r} is not DOMAIN:HEADER, such as "api.example.com:Authorization"')
        rules.setdefault(domain, {})["secret"] = {"header": header, "value": value}
    if rules:
        document["rules"] = rules
    return document


def lifecycle_of(
    ttl: Optional[Seconds],
    idle_timeout: Optional[Seconds],
    idle_action: Optional[str],
    auto_wake: Optional[bool] = None,
    keep_snapshots: Optional[int] = None,
    snapshot_max_age: Optional[Seconds] = None,
) -> Optional[Dict[str, Any]]:
    """Return when a sandbox ends or rests by itself."""
    return present(
        ttl_ms=milliseconds(ttl, "ttl"),
        idle_timeout_ms=milliseconds(idle_timeout, "idle_timeout"),
        idle_action=idle_action,
        auto_wake=auto_wake,
        keep_snapshots=keep_snapshots,
        snapshot_max_age_ms=milliseconds(snapshot_max_age, "snapshot_max_age"),
    ) or None


def present(**members: Any) -> Dict[str, Any]:
    """Return the members that are given."""
    return {name: value for name, value in members.items() if value is not None}


def text_env(env: Optional[Mapping[str, str]]) -> Optional[Dict[str, str]]:
    """Return an environment as a dict."""
    return dict(env) if env is not None else None


def invalid(name: str, detail: str) -> InvalidRequest:
    return InvalidRequest(detail, code="invalid_argument", field=name)


def gone(error: RametError, ref: str) -> bool:
    """Report whether an error says that the sandbox itself is not there."""
    return error.code == "not_found" and f'no sandbox "{ref}"' in error.detail
