"""Sandboxes and snapshots."""

from __future__ import annotations

import os
import weakref
from typing import Any, AsyncIterator, BinaryIO, Dict, Iterable, List, Literal, Mapping, Optional, Tuple, Union, overload

from .._explore import Plan, plan_of
from .._errors import ForkError, NotFound, RametError, SandboxGone, error_of
from .._models import (
    BisectResult, Diff, Event, ExplorationInfo, ForkResult, Image, MergeResult, PortInfo, NetworkTestResult, PublishedPort, PushResult, SandboxInfo, SandboxNetwork,
    SnapshotInfo, Stats, Step, Tree,
)  # fmt: skip
from .._types import (
    Command, Execution, Network, Result, Seconds, Size, command_of, gone, invalid, lifecycle_of, mebibytes,
    milliseconds, mounts_of, network_of, present, text_env,
)  # fmt: skip
from . import _io
from ._client import AsyncClient, default_client
from ._contexts import AsyncContext, AsyncContexts, AsyncRunStream, run_code
from ._events import AsyncEvents, AsyncNetworkLog
from ._explore import AsyncExploration, explorations
from ._exec import AsyncExecStream, Input, OnText, open_exec
from ._files import AsyncFiles
from ._images import OnProgress, with_progress
from ._lease import OWNER, AsyncLease, labels
from ._ports import AsyncPort
from ._processes import AsyncProcess, AsyncProcesses, AsyncTerminal
from ._secrets import AsyncHeld
from ._transport import Query, segment

Env = Optional[Mapping[str, str]]


class AsyncSandboxes(List["AsyncSandbox"]):
    """Sandboxes that were made together: a list, which can be used with `with`.

    Leaving the block destroys those that are left.
    """

    pause_ms: float = 0.0
    """How long the source stood still."""
    snapshot_ms: float = 0.0
    """From the call to the finished snapshot."""
    return_ms: float = 0.0
    """From the call to its return, in the daemon."""
    errors: List[RametError]
    """Why sandboxes could not be made, with partial=True."""

    async def __aenter__(self) -> "AsyncSandboxes":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.destroy()

    async def destroy(self) -> None:
        """Destroy those that are left."""
        for sandbox in self:
            await sandbox._discard()


class AsyncSandbox:
    """An isolated system with files, memory and processes of its own, which can be forked while it runs.

    >>> async with await AsyncSandbox.create("python") as base:
    ...     _ = await base.run_code("x = 40")
    ...     one, two = await base.fork(2)
    ...     _ = await one.run_code("x += 1")
    ...     (await one.run_code("x + 1")).value, (await two.run_code("x + 2")).value
    (42, 42)

    Leaving the `with` block destroys it, and the children that were forked from this object and
    are left; see detach().
    """

    def __init__(self, client: AsyncClient, info: SandboxInfo) -> None:
        self._client = client
        self._transport = client._transport
        self._info = info
        self._children: Dict[str, "AsyncSandbox"] = {}
        self._owner: Optional["AsyncSandbox"] = None
        self._detached = False

    # Making sandboxes

    @classmethod
    async def create(
        cls,
        image: str = "python",
        *,
        name: Optional[str] = None,
        env: Env = None,
        secret_env: Env = None,
        cpus: Optional[float] = None,
        memory: Optional[Size] = None,
        disk: Optional[Size] = None,
        pids: Optional[int] = None,
        open_files: Optional[int] = None,
        network: Optional[Network] = None,
        secrets: Optional[Mapping[str, str]] = None,
        ttl: Optional[Seconds] = None,
        idle_timeout: Optional[Seconds] = None,
        idle_action: Optional[str] = None,
        auto_wake: Optional[bool] = None,
        keep_snapshots: Optional[int] = None,
        snapshot_max_age: Optional[Seconds] = None,
        metadata: Optional[Mapping[str, str]] = None,
        auto_checkpoint: Optional[int] = None,
        self_control: Optional[Mapping[str, Any]] = None,
        volumes: Optional[Mapping[str, str]] = None,
        require: Optional[Iterable[str]] = None,
        client: Optional[AsyncClient] = None,
        hostname: Optional[str] = None,
    ) -> "AsyncSandbox":
        """Create a sandbox from an image or a snapshot.

        The image "python" (Debian's Python and NumPy) is built when it is first needed. memory and
        disk are in MiB, or texts such as "2G"; ttl and idle_timeout in seconds. network is the name
        of a profile ("open"), a list of hosts that are allowed, or a document of rules; without it
        the sandbox has no network. secrets are headers that are put into requests outside of the
        sandbox: {"api.example.com:Authorization": "Bearer ${NAME}"}. secret_env are variables of its
        commands that nothing shows, that no snapshot has, and that children have only if fork() asks
        for it. auto_checkpoint is how many steps of its timeline are kept. volumes are the names of
        volumes by their directories in the sandbox, with ":ro" those that it cannot change:
        {"/mnt/data": "data", "/srv/models": "models:ro"}.
        """
        client = client or default_client()
        ttl, leased = _leased(client, ttl)
        limits = present(
            cpus=cpus, memory_mib=mebibytes(memory, "memory"), disk_mib=mebibytes(disk, "disk"), pids=pids,
            open_files=open_files,
        )  # fmt: skip
        body = present(
            image=image, name=name, env=text_env(env), secret_env=text_env(secret_env),
            metadata=labels(metadata, client._owner),
            limits=limits or None,
            lifecycle=lifecycle_of(ttl, idle_timeout, idle_action, auto_wake, keep_snapshots, snapshot_max_age),
            network=network_of(network, secrets),
            auto_checkpoint={"keep": auto_checkpoint} if auto_checkpoint is not None else None,
            self_control=dict(self_control) if self_control is not None else None,
            volumes=mounts_of(volumes),
            require=list(require) if require is not None else None,
            hostname=hostname,
        )  # fmt: skip
        try:
            info = await client._transport.call("POST", "/v1/sandboxes", body=body)
        except NotFound:
            if not await client.images.provide(image):
                raise
            info = await client._transport.call("POST", "/v1/sandboxes", body=body)
        sandbox = cls(client, SandboxInfo(info))
        if leased is not None:
            leased.add(sandbox)
        return sandbox

    @classmethod
    async def connect(cls, id: str, *, client: Optional[AsyncClient] = None) -> "AsyncSandbox":
        """Return a sandbox that exists, by its id or name."""
        client = client or default_client()
        return cls(client, SandboxInfo(await client._transport.call("GET", f"/v1/sandboxes/{segment(id)}")))

    @classmethod
    async def list(
        cls,
        *,
        state: Optional[str] = None,
        image: Optional[str] = None,
        name: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        owner: Optional[str] = None,
        parent: Optional[str] = None,
        ancestor: Optional[str] = None,
        client: Optional[AsyncClient] = None,
    ) -> "List[AsyncSandbox]":
        """Return the sandboxes that match all filters, the oldest first. owner is that of a client."""
        client = client or default_client()
        metadata = {**(metadata or {}), **present(**{OWNER: owner})}
        query: Query = list(present(state=state, image=image, name=name, parent=parent, ancestor=ancestor).items())
        query += [("metadata", f"{key}={value}") for key, value in (metadata or {}).items()]
        return [cls(client, SandboxInfo(item)) for item in await client._transport.pages("/v1/sandboxes", query)]

    @classmethod
    async def restore(cls, snapshot: "Union[str, AsyncSnapshot]", *, client: Optional[AsyncClient] = None, **options: Any) -> "AsyncSandbox":
        """Make a sandbox from a snapshot: its processes go on where it was taken. See AsyncSnapshot.restore."""
        if not isinstance(snapshot, AsyncSnapshot):
            snapshot = await AsyncSnapshot.get(snapshot, client=client)
        restored: AsyncSandbox = await snapshot.restore(**options)
        return restored

    # What it is

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        return f"{type(self).__name__}(id={self.id!r}{name}, state={self.state!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> str:
        """Its id."""
        return self._info.id

    @property
    def name(self) -> str:
        """Its name, or an empty text."""
        return self._info.name

    @property
    def state(self) -> str:
        """Its state when it was last asked for: see info()."""
        return self._info.state

    @property
    def parent(self) -> Optional[str]:
        """The id of the sandbox that it was forked from."""
        return self._info.parent or None

    @property
    def metadata(self) -> Dict[str, str]:
        """Its labels."""
        return dict(self._info.metadata)

    @property
    def client(self) -> AsyncClient:
        """The client of its daemon."""
        return self._client

    @property
    def _path(self) -> str:
        return f"/v1/sandboxes/{segment(self.id)}"

    async def _call(self, method: str, rest: str, **options: Any) -> Any:
        try:
            return await self._transport.call(method, self._path + rest, sandbox=self.id, **options)
        except RametError as error:
            raise self._gone(error) from error.__cause__

    def _gone(self, error: RametError) -> RametError:
        if gone(error, self.id):
            self._info.__dict__["state"] = "destroyed"
            return SandboxGone(f"sandbox {self.id} is gone: it was destroyed, promoted, or its time was over", code="not_found", status=404)
        return error

    async def _act(self, rest: str, **options: Any) -> None:
        self._info = SandboxInfo(await self._call("POST", rest, **options))

    async def info(self) -> SandboxInfo:
        """Return its record: state, limits, isolation, memory, disk."""
        self._info = SandboxInfo(await self._call("GET", ""))
        return self._info

    async def stats(self) -> Stats:
        """Return the memory, disk and processor time that it uses."""
        return Stats(await self._call("GET", "/stats"))

    async def update(
        self,
        *,
        name: Optional[str] = None,
        metadata: Optional[Mapping[str, Optional[str]]] = None,
        ttl: Optional[Seconds] = None,
        idle_timeout: Optional[Seconds] = None,
        idle_action: Optional[str] = None,
        auto_wake: Optional[bool] = None,
        keep_snapshots: Optional[int] = None,
        snapshot_max_age: Optional[Seconds] = None,
    ) -> None:
        """Change its name, labels (None removes one), and when it ends or rests by itself (0 is never)."""
        body = present(
            name=name, metadata=dict(metadata) if metadata is not None else None,
            lifecycle=lifecycle_of(ttl, idle_timeout, idle_action, auto_wake, keep_snapshots, snapshot_max_age),
        )  # fmt: skip
        self._info = SandboxInfo(await self._call("PATCH", "", body=body))

    # Running things

    @overload
    async def exec(
        self, command: Command, *, env: Env = ..., cwd: Optional[str] = ..., user: Optional[str] = ...,
        stdin: Optional[Input] = ..., timeout: Optional[Seconds] = ..., check: bool = ...,
        on_stdout: Optional[OnText] = ..., on_stderr: Optional[OnText] = ...,
        stream: Literal[False] = ..., background: Literal[False] = ...,
    ) -> Result: ...  # fmt: skip

    @overload
    async def exec(
        self, command: Command, *, env: Env = ..., cwd: Optional[str] = ..., user: Optional[str] = ...,
        stdin: Optional[Input] = ..., timeout: Optional[Seconds] = ..., stream: Literal[True],
    ) -> AsyncExecStream: ...  # fmt: skip

    @overload
    async def exec(
        self, command: Command, *, env: Env = ..., cwd: Optional[str] = ..., user: Optional[str] = ...,
        stdin: Optional[Input] = ..., timeout: Optional[Seconds] = ..., background: Literal[True],
    ) -> AsyncProcess: ...  # fmt: skip

    async def exec(
        self,
        command: Command,
        *,
        env: Env = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: Optional[Input] = None,
        timeout: Optional[Seconds] = None,
        check: bool = False,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        stream: bool = False,
        background: bool = False,
    ) -> Union[Result, AsyncExecStream, AsyncProcess]:
        """Run a command: a text for the shell, or a list of a program and its arguments.

        A command that fails is a result, with check=True an error. There is no limit on its time
        unless timeout is given: then it is killed with its process group, and Timeout has its
        output. stdin is text, bytes, a file, or an iterator of bytes. With stream the output comes
        while it runs; with background it goes on without a client, once it has all of stdin.

        >>> async with await AsyncSandbox.create("python") as sbx:
        ...     (await sbx.exec("echo $((6 * 7))")).stdout
        '42\\n'
        """
        if background:
            begun = await self.processes.start(command, env=env, cwd=cwd, user=user, timeout=timeout, stdin=stdin is not None)
            if stdin is not None:
                await begun.feed(stdin)
            return begun
        request = present(
            **command_of(command), env=text_env(env), cwd=cwd, user=user, timeout_ms=milliseconds(timeout, "timeout")
        )
        try:
            running = await open_exec(self._transport, self.id, request, stdin)
            if stream:
                return running
            result = await running.collect(on_stdout, on_stderr)
        except RametError as error:
            raise self._gone(error) from error.__cause__
        return result.check() if check else result

    @overload
    async def run_code(
        self, code: str, *, language: str = ..., context: Union[str, AsyncContext, None] = ...,
        timeout: Optional[Seconds] = ..., check: bool = ..., on_stdout: Optional[OnText] = ...,
        on_stderr: Optional[OnText] = ..., stream: Literal[False] = ...,
    ) -> Execution: ...  # fmt: skip

    @overload
    async def run_code(
        self, code: str, *, language: str = ..., context: Union[str, AsyncContext, None] = ...,
        timeout: Optional[Seconds] = ..., stream: Literal[True],
    ) -> AsyncRunStream: ...  # fmt: skip

    async def run_code(
        self,
        code: str,
        *,
        language: str = "python",
        context: Union[str, AsyncContext, None] = None,
        timeout: Optional[Seconds] = None,
        check: bool = False,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        stream: bool = False,
    ) -> Union[Execution, AsyncRunStream]:
        """Run code in an interpreter that keeps its variables: python, node or bash.

        A context that does not exist is created. A cell that fails is a result, with check=True an
        error. At the timeout the cell is interrupted, and Timeout has its output.

        >>> async with await AsyncSandbox.create("python") as sbx:
        ...     _ = await sbx.run_code("words = ['a', 'b']")
        ...     (await sbx.run_code("words * 2")).value
        ['a', 'b', 'a', 'b']
        """
        name = context
        if isinstance(context, AsyncContext):
            name, language = context.name, context.language
        request = present(code=code, language=language, context=name, timeout_ms=milliseconds(timeout, "timeout"))
        try:
            if stream:
                events = await self._transport.events(
                    "POST", self._path + "/run-code", body=request, sandbox=self.id, once=True
                )
                return AsyncRunStream(events, language)
            execution = await run_code(self._transport, self.id, request, on_stdout, on_stderr)
        except RametError as error:
            raise self._gone(error) from error.__cause__
        return execution.check() if check else execution

    async def pty(
        self,
        command: Optional[Command] = None,
        *,
        cols: int = 80,
        rows: int = 24,
        env: Env = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
    ) -> AsyncTerminal:
        """Start a program with a terminal; a shell if no command is given."""
        return await self.processes.terminal(command, cols=cols, rows=rows, env=env, cwd=cwd, user=user)

    @property
    def files(self) -> AsyncFiles:
        """Its files."""
        return AsyncFiles(self._transport, self.id)

    @property
    def processes(self) -> AsyncProcesses:
        """Its processes."""
        return AsyncProcesses(self._transport, self.id)

    @property
    def contexts(self) -> AsyncContexts:
        """Its interpreters."""
        return AsyncContexts(self._transport, self.id)

    @property
    def commands(self) -> "AsyncCommands":
        """exec() by the name that E2B has for it."""
        return AsyncCommands(self)

    def port(self, port: int) -> AsyncPort:
        """Return a TCP port of it."""
        return AsyncPort(self._transport, self.id, port)

    async def ports(self) -> List[PortInfo]:
        """Return the ports that processes listen on."""
        return [PortInfo(item) for item in (await self._call("GET", "/ports"))["items"]]

    async def published_ports(self) -> List[PublishedPort]:
        """Return the ports of the daemon's host that lead to it: see Port.publish()."""
        return [PublishedPort(item) for item in (await self._call("GET", "/ports/published"))["items"]]

    async def unpublish(self, host_port: int) -> None:
        """End a port of the daemon's host, with its connections."""
        await self._call("DELETE", f"/ports/published/{int(host_port)}")

    # Its network

    async def network(self) -> SandboxNetwork:
        """Return what it may reach."""
        return SandboxNetwork(await self._call("GET", "/network"))

    async def set_network(self, network: Network, *, secrets: Optional[Mapping[str, str]] = None) -> SandboxNetwork:
        """Replace what it may reach. Connections that are not allowed any more end."""
        return SandboxNetwork(await self._call("PUT", "/network", body=network_of(network, secrets)))

    async def test_network(self, host: str, port: Optional[int] = None, *, protocol: Optional[str] = None) -> NetworkTestResult:
        """Return whether a connection would be allowed, and by which rule. Nothing is sent."""
        body = present(host=host, port=port, protocol=protocol)
        return NetworkTestResult(await self._call("POST", "/network/test", body=body))

    def network_log(self, *, follow: bool = False) -> AsyncNetworkLog:
        """Iterate over the decisions about its connections."""
        return AsyncNetworkLog(self._transport, self._path + "/network/log", self.id, follow)

    @property
    def held(self) -> AsyncHeld:
        """The requests that rules of its network, or fork(hold=True), let wait until somebody decides."""
        return AsyncHeld(self._transport, self.id)

    # Forks, comparisons, and taking over their states

    async def fork(
        self,
        n: int = 1,
        *,
        names: Optional[Iterable[str]] = None,
        network: Optional[Network] = None,
        hold: Union[bool, str, None] = None,
        record: bool = False,
        env: Env = None,
        secret_env: bool = False,
        metadata: Optional[Mapping[str, str]] = None,
        ttl: Optional[Seconds] = None,
        idle_timeout: Optional[Seconds] = None,
        idle_action: Optional[str] = None,
        timeout: Optional[Seconds] = None,
        wait: bool = True,
        partial: bool = False,
        require: Optional[Iterable[str]] = None,
        hostname: Optional[str] = None,
        new_hostname: bool = False,
    ) -> AsyncSandboxes:
        """Make children that have all of this sandbox: files, memory, processes and open files.

        It stands still for milliseconds. Connections to the outside do not carry over: the child
        sees a reset. A child that could not be made raises ForkError, which has the others in
        `children`; with partial=True they are returned, and `errors` says why.

        With hold, requests of the children that change something (all but GET, HEAD and OPTIONS) wait
        until a child is promoted or they are released: see `held`. With record, the children are
        answered alike: what the first one was answered is the answer to others that ask the same. With
        secret_env, commands in the children have the secret variables of the parent. The children have the
        host name of the parent, or `hostname`; with new_hostname each has one of its own.

        >>> async with await AsyncSandbox.create("python") as base:
        ...     _ = await base.files.write("/root/n", "1")
        ...     children = await base.fork(3)
        ...     [await child.files.read("/root/n") for child in children]
        ['1', '1', '1']
        """
        listed = list(names) if names is not None else None
        ttl, leased = _leased(self._client, ttl)
        body = present(
            count=max(n, len(listed)) if listed else n, names=listed, env=text_env(env),
            metadata=labels(metadata, self._client._owner),
            lifecycle=lifecycle_of(ttl, idle_timeout, idle_action), timeout_ms=milliseconds(timeout, "timeout"),
            network=network_of(network), hold=_hold_of(hold), record=record or None,
            secret_env=secret_env or None,
            wait=None if wait else False, require=list(require) if require is not None else None,
            hostname=hostname, new_hostname=new_hostname or None,
        )  # fmt: skip
        made = _made(self._client, ForkResult(await self._call("POST", "/fork", body=body)), partial)
        for child in made:
            if leased is not None:
                leased.add(child)
            child._owner = self
            self._children[child.id] = child
        return made

    async def explore(
        self, plan: Union[Plan, Command, None] = None, *, wait: bool = True, **options: Any
    ) -> AsyncExploration:
        """Fork it into attempts, run a command or code in each, score them, and promote, merge or keep the best.

        It is described by a Plan, or by a command with the options of one. The others are stopped early
        if `search` says so, and destroyed. With wait=False it is returned when its first attempts are there,
        and goes on without its client: iterate over its events, and wait() for its end. Raises ExploreError
        if it fails; that no attempt succeeds is a result. An interrupt while it waits cancels it.

        >>> async with await AsyncSandbox.create("python") as base:
        ...     tries = [{"N": 2}, {"N": 3}]
        ...     found = await base.explore("echo $((N * N)) > /srv/n; cat /srv/n", variants=tries, score="number", then="promote")
        ...     found.winner.score, (await base.files.read("/srv/n")).strip()
        (9, '9')
        """
        request = {"body": plan_of(plan, options), "headers": {"Idempotency-Key": os.urandom(16).hex()}}

        async def begin() -> AsyncExploration:
            return AsyncExploration(self, ExplorationInfo(await self._call("POST", "/explorations", **request)))

        async def end() -> None:  # the answer, which an interrupt prevented, is asked for again
            await (await begin()).cancel()

        exploration = await _io.interruptible(begin, end)
        return await _io.interruptible(exploration.wait, exploration.cancel) if wait else exploration

    async def explorations(self, *, state: Optional[str] = None) -> List[AsyncExploration]:
        """Return its explorations that the daemon knows, the oldest first, without outputs and comparisons."""
        return await explorations(self, state)

    def _adopt(self, id: str) -> "AsyncSandbox":
        """Return a child that was not made by fork(), which ends with this object's block as those do."""
        child = AsyncSandbox(self._client, SandboxInfo({"id": id, "name": "", "state": "running", "parent": self.id, "metadata": self.metadata}))
        child._owner = self
        self._children[id] = child
        if self._client._lease is not None:
            self._client._lease.add(child)
        return child

    async def promote(self, child: "Union[str, AsyncSandbox]") -> "AsyncSandbox":
        """Go on with the state of a child: its files, memory and processes. The child is gone."""
        ref = child if isinstance(child, str) else child.id
        answer = await self._transport.call("POST", f"/v1/sandboxes/{segment(ref)}/promote", sandbox=ref)
        if answer["id"] != self.id:
            raise invalid("child", f"{ref} was a child of {answer['id']}, which has its state now")
        self._info = SandboxInfo(answer)
        self._children = {id: known for id, known in self._children.items() if ref not in (id, known.name)}
        return self

    merge_into = promote

    async def merge(
        self,
        *children: "Union[str, AsyncSandbox, AsyncSnapshot]",
        strategy: str = "leave",
        dry_run: bool = False,
        paths: Optional[Iterable[str]] = None,
        exclude: Optional[Iterable[str]] = None,
    ) -> MergeResult:
        """Take over what others changed in their files since their fork points: a three-way merge.

        strategy is what happens to conflicts: leave them as they are here, take "ours" or "theirs",
        or "fail". Conflicts are a result, and no error.
        """
        body = present(**{"from": [_ref(child) for child in children]}, strategy=strategy, dry_run=dry_run or None,
                       paths=list(paths) if paths is not None else None,
                       exclude=list(exclude) if exclude is not None else None)  # fmt: skip
        return MergeResult(await self._call("POST", "/merge", body=body))

    async def diff(
        self,
        other: "Union[str, AsyncSandbox, AsyncSnapshot]",
        paths: Optional[Iterable[str]] = None,
        *,
        hunks: bool = False,
        stat: bool = False,
        processes: Optional[bool] = None,
        variables: Optional[bool] = None,
    ) -> Diff:
        """Compare with another sandbox or snapshot: what has the other that this one has not.

        Processes, and variables of interpreters, are compared if both are running sandboxes.
        """
        live = isinstance(other, AsyncSandbox) and self.state == other.state == "running"
        query: Query = [("to", _ref(other))]
        query += [("path", path) for path in paths or ()]
        flags = {
            "hunks": hunks, "stat": stat, "processes": live if processes is None else processes,
            "variables": live if variables is None else variables,
        }  # fmt: skip
        query += [(name, "true") for name, value in flags.items() if value]
        return Diff(await self._call("GET", "/diff", query=query))

    async def tree(self) -> Tree:
        """Return the lineage below it, which terminals and notebooks show as a tree."""
        answer = await self._transport.call("GET", "/v1/tree", query=[("sandbox", self.id)])
        return Tree(answer["items"][0])

    # Snapshots and the timeline

    async def snapshot(
        self,
        name: Optional[str] = None,
        *,
        memory: bool = False,
        wait: bool = True,
        metadata: Optional[Mapping[str, str]] = None,
    ) -> "AsyncSnapshot":
        """Make a snapshot: files, memory and processes. The sandbox goes on meanwhile.

        With memory it is not written to disk, and is gone when the daemon ends.
        """
        body = present(name=name, memory=memory or None, wait=None if wait else False, metadata=text_env(metadata))
        return AsyncSnapshot(self._client, SnapshotInfo(await self._call("POST", "/snapshots", body=body)))

    async def snapshots(self) -> "List[AsyncSnapshot]":
        """Return its snapshots, the oldest first."""
        return await AsyncSnapshot.list(sandbox=self.id, client=self._client)

    async def rollback(
        self, snapshot: "Union[str, AsyncSnapshot, None]" = None, *, step: Optional[int] = None
    ) -> "AsyncSandbox":
        """Return to a snapshot of it, to its latest one if none is named, or to a step of its timeline.

        It keeps its id and its name.
        """
        if snapshot is None and step is None:
            taken = await self.snapshots()
            if not taken:
                raise NotFound(f"sandbox {self.id} has no snapshot", code="not_found", remedy="make one with snapshot()")
            snapshot = taken[-1]
        body = {"step": step} if snapshot is None else present(snapshot=_ref(snapshot), step=step)
        await self._act("/rollback", body=body)
        return self

    async def timeline(self) -> List[Step]:
        """Return the steps that it can return to, if it was created with auto_checkpoint."""
        return [Step(item) for item in (await self._call("GET", "/timeline"))["items"]]

    async def bisect(
        self,
        command: Command,
        *,
        env: Env = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        timeout: Optional[Seconds] = None,
    ) -> BisectResult:
        """Find the first step of its timeline at which a command fails. The sandbox is not changed."""
        body = present(
            **command_of(command), env=text_env(env), cwd=cwd, user=user, timeout_ms=milliseconds(timeout, "timeout")
        )
        return BisectResult(await self._call("POST", "/bisect", body=body))

    async def commit(self, name: str, *, message: Optional[str] = None, replace: bool = False) -> Image:
        """Make an image of its files, without memory and processes."""
        return Image(await self._call("POST", "/commit", body=present(name=name, message=message, replace=replace or None)))

    def events(
        self, *, kinds: Iterable[str] = (), since: int = 0, follow: bool = False
    ) -> AsyncEvents:
        """Iterate over its events. With follow the iteration goes on until it is destroyed."""
        return AsyncEvents(self._transport, self._path + "/events", self.id, kinds, since, follow)

    async def wait_until(self, state: str) -> None:
        """Wait until it is in a state: "running" after a fork with wait=False, or "destroyed"."""
        try:
            async with self.events(since=-1, follow=True) as events:
                while (await self.info()).state != state:
                    if self.state == "failed":
                        raise SandboxGone(f"sandbox {self.id} failed: {self._info.reason}", code="sandbox_died")
                    try:
                        await events.__anext__()
                    except StopAsyncIteration:
                        pass  # it was destroyed, which info() finds
        except NotFound as error:
            if state != "destroyed":
                raise self._gone(error) from error.__cause__

    # Rest and end

    async def pause(self) -> None:
        """Stop its processes. Their memory stays."""
        await self._act("/pause")

    async def resume(self) -> None:
        """Let its processes go on; a hibernated sandbox wakes."""
        if self.state == "hibernated":
            await self.wake()
        else:
            await self._act("/resume")

    async def hibernate(self) -> None:
        """Write it to disk and free its memory. A call that needs it wakes it."""
        await self._act("/hibernate")

    async def wake(self) -> None:
        """Bring it back to memory, and let its processes go on."""
        await self._act("/wake")

    async def destroy(self) -> None:
        """End its processes and remove its files. Children and snapshots stay. A second call raises SandboxGone."""
        try:
            await self._call("DELETE", "")
        except SandboxGone:
            self._forget()
            raise
        self._info.__dict__["state"] = "destroyed"
        self._forget()

    kill = destroy
    close = destroy

    def _forget(self) -> None:
        if self._owner is not None:
            self._owner._children.pop(self.id, None)

    def detach(self) -> "AsyncSandbox":
        """Keep it when a `with` block of it, of its parent or of its client is left, and return it."""
        self._detached = True
        return self

    async def __aenter__(self) -> "AsyncSandbox":
        _entered.add(self)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._discard()

    async def _discard(self) -> None:
        """Destroy it and the children that are left, unless it is to be kept."""
        _entered.discard(self)
        for child in list(self._children.values()):
            await child._discard()
        if self._detached or self.state == "destroyed":
            return
        try:
            await self.destroy()
        except NotFound:
            pass


class AsyncCommands:
    """exec() by the name that E2B has for it."""

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def run(self, cmd: Command, background: bool = False, **options: Any) -> Any:
        """Run a command, as exec() does."""
        run: Any = self._sandbox.exec
        return await run(cmd, background=background, **options)


class AsyncSnapshot:
    """A frozen state, of which any number of sandboxes can be made."""

    def __init__(self, client: AsyncClient, info: SnapshotInfo) -> None:
        self._client = client
        self._transport = client._transport
        self._info = info

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        return f"{type(self).__name__}(id={self.id!r}{name}, state={self.state!r})"

    @property
    def id(self) -> str:
        """Its id."""
        return self._info.id

    @property
    def name(self) -> str:
        """Its name, or an empty text."""
        return self._info.name or ""

    @property
    def state(self) -> str:
        """Its state when it was last asked for: creating, uploading, ready, failed or deleted."""
        return self._info.state

    @property
    def _path(self) -> str:
        return f"/v1/snapshots/{segment(self.id)}"

    @classmethod
    async def get(cls, id: str, *, client: Optional[AsyncClient] = None) -> "AsyncSnapshot":
        """Return a snapshot by its id or name."""
        client = client or default_client()
        return cls(client, SnapshotInfo(await client._transport.call("GET", f"/v1/snapshots/{segment(id)}")))

    @classmethod
    async def list(
        cls,
        *,
        state: Optional[str] = None,
        name: Optional[str] = None,
        sandbox: Optional[str] = None,
        metadata: Optional[Mapping[str, str]] = None,
        client: Optional[AsyncClient] = None,
    ) -> "List[AsyncSnapshot]":
        """Return the snapshots that match all filters, the oldest first."""
        client = client or default_client()
        query: Query = list(present(state=state, name=name, sandbox=sandbox).items())
        query += [("metadata", f"{key}={value}") for key, value in (metadata or {}).items()]
        return [cls(client, SnapshotInfo(item)) for item in await client._transport.pages("/v1/snapshots", query)]

    async def info(self) -> SnapshotInfo:
        """Return its record."""
        self._info = SnapshotInfo(await self._transport.call("GET", self._path))
        return self._info

    @overload
    async def restore(
        self, n: None = ..., *, names: Optional[Iterable[str]] = ..., network: Optional[Network] = ...,
        hold: Union[bool, str, None] = ..., record: bool = ..., env: Env = ...,
        metadata: Optional[Mapping[str, str]] = ..., ttl: Optional[Seconds] = ...,
        idle_timeout: Optional[Seconds] = ..., idle_action: Optional[str] = ..., partial: bool = ...,
        require: Optional[Iterable[str]] = ..., hostname: Optional[str] = ..., new_hostname: bool = ...,
    ) -> AsyncSandbox: ...  # fmt: skip

    @overload
    async def restore(
        self, n: int, *, names: Optional[Iterable[str]] = ..., network: Optional[Network] = ...,
        hold: Union[bool, str, None] = ..., record: bool = ..., env: Env = ...,
        metadata: Optional[Mapping[str, str]] = ..., ttl: Optional[Seconds] = ...,
        idle_timeout: Optional[Seconds] = ..., idle_action: Optional[str] = ..., partial: bool = ...,
        require: Optional[Iterable[str]] = ..., hostname: Optional[str] = ..., new_hostname: bool = ...,
    ) -> AsyncSandboxes: ...  # fmt: skip

    async def restore(
        self,
        n: Optional[int] = None,
        *,
        names: Optional[Iterable[str]] = None,
        network: Optional[Network] = None,
        hold: Union[bool, str, None] = None,
        record: bool = False,
        env: Env = None,
        metadata: Optional[Mapping[str, str]] = None,
        ttl: Optional[Seconds] = None,
        idle_timeout: Optional[Seconds] = None,
        idle_action: Optional[str] = None,
        partial: bool = False,
        require: Optional[Iterable[str]] = None,
        hostname: Optional[str] = None,
        new_hostname: bool = False,
    ) -> Union[AsyncSandbox, AsyncSandboxes]:
        """Make a sandbox whose processes go on where the snapshot was taken; with a number, a list of them.

        hold, record, hostname and new_hostname are as of Sandbox.fork().
        """
        ttl, leased = _leased(self._client, ttl)
        body = present(
            count=n or 1, names=list(names) if names is not None else None, env=text_env(env),
            metadata=labels(metadata, self._client._owner),
            lifecycle=lifecycle_of(ttl, idle_timeout, idle_action), network=network_of(network),
            hold=_hold_of(hold), record=record or None, require=list(require) if require is not None else None,
            hostname=hostname, new_hostname=new_hostname or None,
        )  # fmt: skip
        answer = await self._transport.call("POST", self._path + "/restore", body=body)
        made = _made(self._client, ForkResult(answer), partial and n is not None)
        if leased is not None:
            for sandbox in made:
                leased.add(sandbox)
        return made[0] if n is None else made

    async def pack(
        self, local: "Union[str, os.PathLike[str]]", *, image: bool = True, sign: bool = False
    ) -> int:
        """Write it to a file of this machine, from which other machines make it, and return its size in bytes.

        The file has the environment of the sandbox and all of its memory.
        """
        query: Query = [(name, "true") for name, on in (("without_image", not image), ("sign", sign)) if on]
        response = await self._transport.send("GET", self._path + "/pack", query=query, accept="*/*")
        size = 0
        try:
            with open(os.fspath(local), "wb") as file:
                async for piece in self._transport.pieces(response):
                    size += len(piece)
                    await _io.run(file.write, piece)
        finally:
            await response.aclose()
        return size

    @classmethod
    async def unpack(
        cls,
        local: "Union[str, os.PathLike[str]]",
        *,
        name: Optional[str] = None,
        trust: Iterable[str] = (),
        client: Optional[AsyncClient] = None,
    ) -> "AsyncSnapshot":
        """Make a snapshot of a file that pack has written, here or on another machine.

        With trust, one of these keys must have signed it.
        """
        client = client or default_client()
        query: Query = [("trust", key) for key in trust]
        if name is not None:
            query.append(("name", name))
        with open(os.fspath(local), "rb") as file:
            answer = await client._transport.call(
                "POST", "/v1/snapshots/unpack", query=query, content=_contents(file),
                headers={"Content-Type": "application/x-tar"},
            )  # fmt: skip
        return cls(client, SnapshotInfo(answer))

    async def push(
        self, ref: str, *, image: bool = True, sign: bool = False, on_progress: Optional[OnProgress] = None
    ) -> PushResult:
        """Send it to a container registry."""
        body = present(ref=ref, without_image=not image or None, sign=sign or None)
        return PushResult(await with_progress(self._transport, self._path + "/push", body, "pushed", on_progress))

    @classmethod
    async def pull(
        cls,
        ref: str,
        *,
        name: Optional[str] = None,
        trust: Iterable[str] = (),
        on_progress: Optional[OnProgress] = None,
        client: Optional[AsyncClient] = None,
    ) -> "AsyncSnapshot":
        """Make a snapshot of one in a container registry. trust is as of unpack()."""
        client = client or default_client()
        body = present(ref=ref, name=name, trust=list(trust) or None)
        answer = await with_progress(client._transport, "/v1/snapshots/pull", body, "snapshot", on_progress)
        return cls(client, SnapshotInfo(answer))

    async def verify(self) -> SnapshotInfo:
        """Compare it on disk with its digests."""
        self._info = SnapshotInfo(await self._transport.call("POST", self._path + "/verify"))
        return self._info

    async def commit(self, name: str, *, message: Optional[str] = None, replace: bool = False) -> Image:
        """Make an image of its files."""
        body = present(name=name, message=message, replace=replace or None)
        return Image(await self._transport.call("POST", self._path + "/commit", body=body))

    async def delete(self, *, cascade: bool = False, flatten: bool = False) -> None:
        """Delete it. With cascade those that depend on it go too, with flatten they become independent."""
        query: Query = [(name, "true") for name, on in (("cascade", cascade), ("flatten", flatten)) if on]
        await self._transport.call("DELETE", self._path, query=query)


async def _contents(file: BinaryIO) -> AsyncIterator[bytes]:
    """Iterate over a file in pieces."""
    while True:
        piece = await _io.run(file.read, 1 << 18)
        if not piece:
            return
        yield piece


def _leased(client: AsyncClient, ttl: Optional[Seconds]) -> "Tuple[Optional[Seconds], Optional[AsyncLease]]":
    """Return the time to live of a sandbox that is being made, and the lease that renews it."""
    lease = client._lease
    if lease is None or ttl is not None:
        return ttl, None
    lease.check()
    return lease.seconds, lease


def _hold_of(hold: Union[bool, str, None]) -> Optional[str]:
    """Return which requests wait: True stands for those that change something."""
    return "writes" if hold is True else hold or None


def _ref(other: "Union[str, AsyncSandbox, AsyncSnapshot]") -> str:
    return other if isinstance(other, str) else other.id


def _made(client: AsyncClient, result: ForkResult, partial: bool) -> AsyncSandboxes:
    """Return the sandboxes of a fork or restore, or raise that some could not be made."""
    made = AsyncSandboxes(AsyncSandbox(client, child.sandbox) for child in result.children if child.sandbox)
    made.pause_ms, made.snapshot_ms, made.return_ms = result.pause_ms, result.snapshot_ms, result.return_ms
    made.errors = [error_of(child.error.to_dict()) for child in result.children if child.error]
    if made.errors and not partial:
        error = ForkError(
            f"{len(made.errors)} of {len(result.children)} sandboxes could not be made: {made.errors[0]}",
            code=made.errors[0].code,
        )
        error.children, error.errors = list(made), made.errors
        raise error
    return made


_entered: "weakref.WeakSet[AsyncSandbox]" = weakref.WeakSet()


async def _discard_all() -> None:
    for sandbox in list(_entered):
        try:
            await sandbox._discard()
        except RametError:
            pass  # the daemon has gone


_io.at_exit(_discard_all)
