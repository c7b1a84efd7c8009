"""Plans of explorations."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Dict, Iterable, List, Mapping, Optional, Union

from ._types import Command, Network, Seconds, command_of, invalid, mebibytes, milliseconds, network_of, present

Text = Union[str, int, float]
Contents = Union[str, bytes]


@dataclass(frozen=True)
class Variant:
    """How an attempt differs from others.

    Its command or code is run instead of that of the plan; its args, variables and files are added.
    """

    command: Optional[Command] = None
    """A text for the shell, or a list of a program and its arguments."""
    code: Optional[str] = None
    """Code for an interpreter."""
    name: Optional[str] = None
    """For people: tables call the attempt so."""
    args: Iterable[Text] = ()
    """Arguments; those of a text for the shell are $1, $2 and so on."""
    env: Optional[Mapping[str, Text]] = None
    """Variables, which the table shows."""
    files: Optional[Mapping[str, Contents]] = None
    """Files, by their absolute paths."""
    stdin: Optional[str] = None
    """Text given to the command."""

    def to_dict(self) -> Dict[str, Any]:
        """Return the JSON object of the REST interface."""
        return present(
            name=self.name, **_run_of(self.command, self.code), args=_texts(self.args), env=_env(self.env),
            files=_files(self.files), stdin=self.stdin,
        )  # fmt: skip


@dataclass(frozen=True)
class Score:
    """How an attempt is scored.

    by is what the score is: "exit_code" (1 if it is 0, else 0), "number" (the last line of the output),
    "regexp" (the number in the first group of the last match of pattern), "json" (the number at path, such as
    "metrics.loss"), "value" (of the last expression of code) or "duration" (seconds). With a command or code, that
    is run in the attempt afterwards, and what it says is scored.
    """

    by: str = "exit_code"
    pattern: Optional[str] = None
    path: Optional[str] = None
    command: Optional[Command] = None
    code: Optional[str] = None
    stderr: bool = False
    """The text is that of the standard error."""
    file: Optional[str] = None
    """The text is that of this file in the attempt."""
    goal: Optional[str] = None
    """Which scores are good: "max", or "min" (by duration that is the default)."""
    at_least: Optional[float] = None
    """An attempt with a lower score has failed."""
    at_most: Optional[float] = None
    """An attempt with a higher score has failed."""
    failed: bool = False
    """Attempts whose run fails are scored, too, and may win."""

    def to_dict(self) -> Dict[str, Any]:
        """Return the JSON object of the REST interface."""
        return present(
            by=self.by, pattern=self.pattern, path=self.path, stderr=self.stderr or None, file=self.file,
            command=_run_of(self.command, self.code) or None, goal=self.goal, at_least=self.at_least,
            at_most=self.at_most, failed=self.failed or None,
        )  # fmt: skip


@dataclass(frozen=True)
class Search:
    """Which attempts run on, and how often.

    strategy is "all" (one round, all run to their end), "first" (until enough have succeeded), "halving" (the
    worse ones are stopped after each round, the others run again with a larger RAMET_BUDGET) or "beam" (the best
    ones are forked after each round, and their children run).
    """

    strategy: str = "all"
    successes: Optional[int] = None
    """first: how many successes are enough."""
    rounds: Optional[int] = None
    """halving, beam: how many rounds there are."""
    survivors: Optional[int] = None
    """halving: how many attempts are left at least. beam: how many are forked."""
    branch: Optional[int] = None
    """beam: children of each survivor."""
    factor: Optional[float] = None
    """halving: a round has so many times fewer attempts, and a budget so many times larger."""
    budget: Optional[float] = None
    """RAMET_BUDGET of the first round, in whatever the command counts."""
    target: Optional[float] = None
    """The exploration ends once an attempt has this score or a better one."""

    def to_dict(self) -> Dict[str, Any]:
        """Return the JSON object of the REST interface."""
        return present(**self.__dict__)


@dataclass(frozen=True)
class Plan:
    """What an exploration does: a sandbox is forked into attempts, which run a command or code and are scored.

    variants are Variants, or mappings of variables. There are width attempts, or as many as variants. score and
    search may be the `by` and the `strategy` alone. then is what becomes of the winners: "promote" gives the state of
    the best one to the sandbox, "merge" brings the files of all to it. keep is which attempts are left as
    sandboxes: "none", "winners" (if nothing becomes of them) or "all".
    """

    command: Optional[Command] = None
    """A text for the shell, or a list of a program and its arguments."""
    code: Optional[str] = None
    """Code for an interpreter of each attempt, which has the variables of the sandbox's."""
    language: Optional[str] = None
    """Of the code: "python", "node" or "bash"."""
    context: Optional[str] = None
    """Name of the context that runs the code."""
    variants: Iterable[Union[Variant, Mapping[str, Text]]] = ()
    """How attempts differ: they get the variants in order."""
    width: Optional[int] = None
    """Attempts of the first round."""
    args: Iterable[Text] = ()
    """Arguments; those of a text for the shell are $1, $2 and so on."""
    env: Optional[Mapping[str, Text]] = None
    """Variables of all attempts, besides RAMET_ATTEMPT, RAMET_ROUND and RAMET_BUDGET."""
    files: Optional[Mapping[str, Contents]] = None
    """Files that each attempt gets, by their absolute paths."""
    cwd: Optional[str] = None
    user: Optional[str] = None
    stdin: Optional[str] = None
    timeout: Optional[Seconds] = None
    """Of each run, which has failed then."""
    score: Union[Score, str, None] = None
    search: Union[Search, str, None] = None
    winners: Optional[int] = None
    """How many of the best attempts win; 1 if absent."""
    then: Optional[str] = None
    merge: Optional[Mapping[str, Any]] = None
    """How files are merged: "paths", "exclude" and "strategy", as of Sandbox.merge()."""
    keep: Optional[str] = None
    diff: Union[bool, Iterable[str]] = False
    """Compare attempts with the sandbox: all files, or those at these paths."""
    variables: bool = False
    """Compare variables of interpreters, too."""
    parallel: Optional[int] = None
    """Attempts whose commands run at once."""
    min_width: Optional[int] = None
    """A round may have as few attempts as this, if a quota or the memory of the host allows no more."""
    max_attempts: Optional[int] = None
    """Attempts in all rounds."""
    max_depth: Optional[int] = None
    """Generations of attempts."""
    max_time: Optional[Seconds] = None
    """Of the exploration: attempts that have not ended by then are stopped."""
    max_memory: Union[int, str, None] = None
    """Of all attempts together, in MiB or as "2G": beyond it, the one that has the most is stopped."""
    metadata: Optional[Mapping[str, str]] = None
    """Labels of the attempts, besides those of the sandbox."""
    network: Optional[Network] = None
    """What attempts may reach, if that differs from the sandbox."""
    hold: Union[bool, str, None] = None
    """Requests of attempts that change something wait until the attempt is promoted, and are dropped with it."""
    record: bool = False
    """What the first attempt was answered is the answer to others that ask the same."""
    secret_env: bool = False
    """Commands have the secret variables of the sandbox."""

    def to_dict(self) -> Dict[str, Any]:
        """Return the JSON object of the REST interface."""
        run = present(
            **_run_of(self.command, self.code), language=self.language, context=self.context, args=_texts(self.args),
            env=_env(self.env), files=_files(self.files), cwd=self.cwd, user=self.user, stdin=self.stdin,
            timeout_ms=milliseconds(self.timeout, "timeout"),
        )  # fmt: skip
        score = Score(self.score) if isinstance(self.score, str) else self.score
        search = Search(self.search) if isinstance(self.search, str) else self.search
        limits = present(
            parallel=self.parallel, min_width=self.min_width, attempts=self.max_attempts, depth=self.max_depth,
            timeout_ms=milliseconds(self.max_time, "max_time"), memory_mib=mebibytes(self.max_memory, "max_memory"),
        )  # fmt: skip
        return present(
            run=run or None, width=self.width, variants=[_variant(one) for one in self.variants] or None,
            score=score.to_dict() if score is not None else None,
            search=search.to_dict() if search is not None else None,
            winners=self.winners, then=self.then, merge=dict(self.merge) if self.merge is not None else None,
            keep=self.keep, diff=self._diff(), limits=limits or None,
            metadata=dict(self.metadata) if self.metadata is not None else None, network=network_of(self.network),
            hold="writes" if self.hold is True else self.hold or None, record=self.record or None,
            secret_env=self.secret_env or None,
        )  # fmt: skip

    def _diff(self) -> Optional[Dict[str, Any]]:
        if self.diff is False and not self.variables:
            return None
        paths = None if isinstance(self.diff, bool) else list(self.diff)
        return present(paths=paths, variables=self.variables or None)


def plan_of(plan: Union[Plan, Command, None], options: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the JSON object of a plan, or of a command with the options of one."""
    if isinstance(plan, Plan):
        if options:
            raise invalid(next(iter(options)), "it is said in the plan that is given")
        return plan.to_dict()
    return Plan(**options).to_dict() if plan is None else Plan(plan, **options).to_dict()


def _variant(one: Union[Variant, Mapping[str, Text]]) -> Dict[str, Any]:
    if isinstance(one, Variant):
        return one.to_dict()
    if not isinstance(one, Mapping):
        raise invalid("variants", f"{one!r} is neither a Variant nor a mapping of variables")
    return Variant(env=one).to_dict()


def _run_of(command: Optional[Command], code: Optional[str]) -> Dict[str, Any]:
    if command is not None and code is not None:
        raise invalid("code", "there is a command and code: give one of them")
    return command_of(command) if command is not None else present(code=code)


def _texts(args: Iterable[Text]) -> Optional[List[str]]:
    if isinstance(args, str):
        raise invalid("args", "it is a list of arguments, and not a text")
    return [str(arg) for arg in args] or None


def _env(env: Optional[Mapping[str, Text]]) -> Optional[Dict[str, str]]:
    return {name: str(value) for name, value in env.items()} if env else None


def _files(files: Optional[Mapping[str, Contents]]) -> Optional[List[Dict[str, str]]]:
    listed = []
    for path, contents in (files or {}).items():
        text = {"text": contents} if isinstance(contents, str) else {"data": base64.b64encode(contents).decode()}
        listed.append({"path": path, **text})
    return listed or None
