"""Instructions of Dockerfiles, for sandboxes that are made as images are described."""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import posixpath
import re
import shlex
import tarfile
import tempfile
from typing import Dict, List, Optional

import ramet

IGNORED = ("CMD", "ENTRYPOINT", "EXPOSE", "LABEL", "HEALTHCHECK", "STOPSIGNAL", "MAINTAINER", "VOLUME")
"""Instructions that say nothing of the files of an image."""

RUN_TIMEOUT = 1800.0


class DockerfileError(ValueError):
    """An instruction that cannot be carried out. It is named."""


@dataclasses.dataclass(frozen=True)
class Instruction:
    line: int
    name: str
    value: str


def parse(text: str) -> List[Instruction]:
    """Read a Dockerfile of one stage."""
    found: List[Instruction] = []
    value, begin = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("#") or (not stripped and not value):
            continue
        begin = begin or number
        if stripped.endswith("\\"):
            value += stripped[:-1] + " "
            continue
        name, _, rest = (value + stripped).strip().partition(" ")
        found.append(Instruction(begin, name.upper(), rest.strip()))
        value, begin = "", 0
    if value:
        raise DockerfileError(f"line {begin}: the last instruction does not end")
    if sum(i.name == "FROM" for i in found) != 1:
        raise DockerfileError("it does not have one stage: one instruction FROM")
    return found


def base_of(instructions: List[Instruction]) -> str:
    """The image that it begins with."""
    values: Dict[str, str] = {}
    for i in instructions:
        if i.name == "ARG":
            _assign(values, i, default="")
        elif i.name == "FROM":
            words = [w for w in shlex.split(_expand(i.value, values)) if not w.startswith("--")]
            if len(words) == 1 or (len(words) == 3 and words[1].lower() == "as"):
                return words[0]
            raise DockerfileError(f"line {i.line}: FROM {i.value}: it does not name one image")
    raise DockerfileError("it has no FROM")


@dataclasses.dataclass
class Made:
    """What an image says of the commands that run in it."""

    shell: str = "/bin/sh"
    env: Dict[str, str] = dataclasses.field(default_factory=dict)
    workdir: str = "/"
    user: Optional[str] = None


async def carry_out(sandbox: "ramet.AsyncSandbox", instructions: List[Instruction], context: str) -> Made:
    """Do in a sandbox what the instructions say. Files to copy are below context."""
    made = Made(workdir=(await sandbox.exec("pwd")).stdout.strip() or "/")
    if (await sandbox.exec("test -x /bin/bash")).ok:
        made.shell = "/bin/bash"
    # What the image itself sets is there in all commands: it is needed for ENV PATH=/opt/bin:$PATH.
    image = dict(v.partition("=")[::2] for v in (await sandbox.exec("cat /proc/self/environ")).stdout.split("\0") if v)
    before: Dict[str, str] = {}  # arguments before FROM, which count behind it only if ARG names them again
    arguments: Dict[str, str] = {}
    for i in instructions:
        values = {**image, **arguments, **made.env}
        if i.name == "FROM":
            before, arguments = arguments, {}
        elif i.name == "RUN":
            await _run(sandbox, i, made, {**arguments, **made.env})
        elif i.name in ("COPY", "ADD"):
            await _copy(sandbox, i, made, values, context)
        elif i.name == "WORKDIR":
            made.workdir = posixpath.normpath(posixpath.join(made.workdir, _expand(i.value, values)))
            await sandbox.files.mkdir(made.workdir)
        elif i.name == "ENV":
            _assign(made.env, i, values=values)
        elif i.name == "ARG":
            _assign(arguments, i, default=before.get(i.value.strip(), ""), values=values)
        elif i.name == "USER":
            made.user = _expand(i.value, values).split(":")[0]
        elif i.name not in IGNORED:
            raise DockerfileError(f"line {i.line}: {i.name} is not known here")
    return made


async def _run(sandbox: "ramet.AsyncSandbox", i: Instruction, made: Made, values: Dict[str, str]) -> None:
    value = i.value
    while value.startswith("--"):
        option, _, value = value.partition(" ")
        value = value.lstrip()
        # What is cached between builds, or not kept, is part of no image.
        if not re.match(r"--(mount=(.*,)?type=(cache|tmpfs)(,|$)|network=default$)", option):
            raise DockerfileError(f"line {i.line}: RUN {option} is not known here")
    if value.startswith("<<"):
        raise DockerfileError(f"line {i.line}: RUN with a document in it is not known here")
    argv = _json(value) or ["/bin/sh", "-c", value]
    # A shell expands its variables by itself.
    r = await sandbox.exec(argv, env=values, cwd=made.workdir, user=made.user, timeout=RUN_TIMEOUT)
    if not r.ok:
        raise DockerfileError(f"line {i.line}: RUN {i.value}: exit code {r.exit_code}\n{(r.stdout + r.stderr)[-4000:]}")


async def _copy(sandbox: "ramet.AsyncSandbox", i: Instruction, made: Made, values: Dict[str, str], context: str) -> None:
    words = _json(i.value) or shlex.split(_expand(i.value, values))
    options = [w for w in words if w.startswith("--")]
    words = [w for w in words if not w.startswith("--")]
    owner = mode = None
    for option in options:
        name, _, said = option[2:].partition("=")
        if name == "chown":
            owner = said
        elif name == "chmod":
            mode = said
        else:
            raise DockerfileError(f"line {i.line}: {i.name} {option} is not known here")
    if len(words) < 2:
        raise DockerfileError(f"line {i.line}: {i.name} needs a source and a destination")
    *sources, there = words
    target = posixpath.join(made.workdir, there)
    found: List[str] = []
    for source in sources:
        if source.startswith(("http:", "https:")):
            raise DockerfileError(f"line {i.line}: {i.name} of a URL is not known here")
        here = os.path.normpath(os.path.join(context, source.lstrip("/")))
        matches = sorted(glob.glob(here))
        root = os.path.realpath(context)
        if not matches or any(os.path.commonpath([root, os.path.realpath(m)]) != root for m in matches):
            raise DockerfileError(f"line {i.line}: {i.name} {source}: there is no such file in {context}")
        found += matches
    into = there.endswith("/") or len(found) > 1
    for here in found:
        if i.name == "ADD" and os.path.isfile(here) and tarfile.is_tarfile(here):
            await _unpack(sandbox, i, here, target)
            continue
        to = posixpath.join(target, os.path.basename(here)) if into and os.path.isfile(here) else target
        if os.path.isfile(here) and not into and (await sandbox.exec(["test", "-d", target])).ok:
            to = posixpath.join(target, os.path.basename(here))
        await sandbox.files.upload(here, posixpath.normpath(to))
        for program, said in (("chown", owner), ("chmod", mode)):
            if said:
                await sandbox.exec([program, "-R", said, to], check=True)


async def _unpack(sandbox: "ramet.AsyncSandbox", i: Instruction, here: str, target: str) -> None:
    """Do what ADD does with an archive."""
    await sandbox.files.mkdir(target)
    with tarfile.open(here) as packed, tempfile.TemporaryDirectory() as directory:
        try:
            packed.extractall(directory, filter="tar")
        except tarfile.TarError as e:
            raise DockerfileError(f"line {i.line}: ADD {here}: {e}") from e
        await sandbox.files.upload(directory, target)


def _json(value: str) -> Optional[List[str]]:
    """The words of the form [\"a\", \"b\"]; None if it is another form."""
    if not value.startswith("["):
        return None
    try:
        words = json.loads(value)
    except ValueError:
        return None
    return words if isinstance(words, list) and all(isinstance(w, str) for w in words) else None


def _assign(to: Dict[str, str], i: Instruction, default: Optional[str] = None, values: Optional[Dict[str, str]] = None) -> None:
    """Set variables: NAME=VALUE …, or the old form NAME VALUE."""
    values = to if values is None else values
    if "=" not in i.value.split(" ")[0] and default is None:
        name, _, value = i.value.partition(" ")
        to[name] = _expand(value.strip(), values)
        return
    for word in shlex.split(i.value):
        name, equals, value = word.partition("=")
        if not equals and default is None:
            raise DockerfileError(f"line {i.line}: {i.name} {i.value}: {word!r} is not NAME=VALUE")
        to[name] = _expand(value if equals else default or "", values)


def _expand(text: str, values: Dict[str, str]) -> str:
    """Put values in the place of $NAME, ${NAME} and ${NAME:-DEFAULT}."""

    def value(m: "re.Match[str]") -> str:
        name = m.group(1) or m.group(2)
        return values.get(name) or (m.group(3) or "")

    return re.sub(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)(?::-([^}]*))?\})", value, text)
