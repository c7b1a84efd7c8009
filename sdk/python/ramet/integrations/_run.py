"""Commands whose output may be as long as it likes."""

from __future__ import annotations

import dataclasses
from typing import Any, Dict, List, Mapping, Optional, Union

import ramet

MAX_OUTPUT = 4 * 1024 * 1024
"""Characters of an output that are kept: the beginning and the end."""

TIMEOUT = 30 * 60.0
"""Seconds that a command may take where a framework says nothing."""

Command = Union[str, List[str]]


class Output:
    """The beginning and the end of an output."""

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        self._half = limit // 2
        self._begin: List[str] = []
        self._end: List[str] = []
        self._room = self._half
        self._size = 0
        self.cut = False

    def add(self, text: str) -> None:
        head, text = text[: self._room], text[self._room :]
        if head:
            self._begin.append(head)
            self._room -= len(head)
        if not text:
            return
        self._end.append(text)
        self._size += len(text)
        while self._size - len(self._end[0]) >= self._half:
            self._size -= len(self._end.pop(0))
            self.cut = True

    def text(self) -> str:
        end = "".join(self._end)
        if len(end) > self._half:
            end, self.cut = end[-self._half :], True
        return "".join(self._begin) + ("\n[…]\n" if self.cut else "") + end


@dataclasses.dataclass
class Ran:
    """The end of a command. One whose time was over was killed with its process group."""

    exit_code: int
    stdout: str
    stderr: str = ""
    truncated: bool = False
    timed_out: bool = False


class _Running:
    """What run() and run_async() have in common."""

    def __init__(self, limit: int, merged: bool) -> None:
        self._out = Output(limit)
        self._err = self._out if merged else Output(limit)
        self._merged = merged

    def options(
        self, env: Optional[Mapping[str, str]], cwd: Optional[str], user: Optional[str], stdin: Any, timeout: Optional[float]
    ) -> Dict[str, Any]:
        return {
            "env": env, "cwd": cwd, "user": user, "stdin": stdin, "timeout": timeout or None,
            "on_stdout": self._out.add, "on_stderr": self._err.add,
        }  # fmt: skip

    def ended(self, exit_code: int, timed_out: bool = False) -> Ran:
        err = "" if self._merged else self._err.text()
        return Ran(exit_code, self._out.text(), err, self._out.cut or self._err.cut, timed_out)


def run(
    sandbox: "ramet.Sandbox",
    command: Command,
    *,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    user: Optional[str] = None,
    stdin: Union[str, bytes, None] = None,
    timeout: Optional[float] = None,
    limit: int = MAX_OUTPUT,
    merged: bool = False,
) -> Ran:
    """Run a command, a text for the shell or a program with its arguments.

    timeout is in seconds; after it the exit code is 124. merged puts the errors where they came in the output.
    """
    running = _Running(limit, merged)
    try:
        result = sandbox.exec(shell(command), **running.options(env, cwd, user, stdin, timeout))
    except ramet.Timeout:
        return running.ended(124, True)
    return running.ended(result.exit_code)


async def run_async(
    sandbox: "ramet.AsyncSandbox",
    command: Command,
    *,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    user: Optional[str] = None,
    stdin: Union[str, bytes, None] = None,
    timeout: Optional[float] = None,
    limit: int = MAX_OUTPUT,
    merged: bool = False,
) -> Ran:
    """run() for a task of asyncio. If the task is cancelled the command is killed with its process group."""
    running = _Running(limit, merged)
    try:
        result = await sandbox.exec(shell(command), **running.options(env, cwd, user, stdin, timeout))
    except ramet.Timeout:
        return running.ended(124, True)
    return running.ended(result.exit_code)


def shell(command: Command) -> List[str]:
    """The program and arguments of a command."""
    return ["/bin/sh", "-c", command] if isinstance(command, str) else list(command)
