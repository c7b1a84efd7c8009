"""Sandboxes of the OpenAI Agents SDK: `pip install 'ramet[openai-agents]'`."""

from __future__ import annotations

import contextlib
import io
import uuid
from pathlib import Path
from typing import Any, Dict, List, Literal, Optional, Tuple, Union

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.dependencies import Dependencies
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER, RuntimeHelperScript
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.sandbox_session import SandboxSession
from agents.sandbox.session.sandbox_session_state import SandboxSessionState
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes
from pydantic import Field

import ramet

from . import _owned
from ._run import TIMEOUT, run_async


class RametSandboxClientOptions(BaseSandboxClientOptions):
    """How a sandbox is made, and what becomes of it.

    With `pause_on_exit` the end of a session writes the sandbox to disk, with its memory and its processes, and
    resuming the session wakes it. Else the session destroys it. A sandbox whose program is killed ends a minute
    later, or after `ttl` seconds if that is given: then a session can be resumed by another program.
    """

    type: Literal["ramet"] = "ramet"
    image: str = "python"
    network: Union[str, Tuple[str, ...], Dict[str, Any], None] = None
    env: Dict[str, str] = Field(default_factory=dict)
    cpus: Optional[float] = None
    memory: Union[int, str, None] = None
    ttl: Optional[float] = None
    pause_on_exit: bool = False
    timeout: float = TIMEOUT
    exposed_ports: Tuple[int, ...] = ()


class RametSandboxSessionState(SandboxSessionState):
    """A session as it is kept."""

    type: Literal["ramet"] = "ramet"
    sandbox_id: str
    options: RametSandboxClientOptions


class RametSandboxSession(BaseSandboxSession):
    """A session in a sandbox. A command whose time is over, or whose task is cancelled, is killed with its process group."""

    state: RametSandboxSessionState

    def __init__(
        self, state: RametSandboxSessionState, sandbox: "ramet.AsyncSandbox", client: "Optional[ramet.AsyncClient]"
    ) -> None:
        self.state = state
        self.sandbox = sandbox
        self._client = client

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            for published in await self.sandbox.published_ports():
                if published.port == port:
                    return ExposedPortEndpoint(host=published.address, port=published.host_port)
            made = await self.sandbox.port(port).publish()
        except ramet.RametError as e:
            raise ExposedPortUnavailableError(
                port=port, exposed_ports=self.state.exposed_ports, reason="backend_unavailable",
                context={"backend": "ramet"}, cause=e,
            ) from e  # fmt: skip
        return ExposedPortEndpoint(host=made.address, port=made.host_port)

    async def _validate_path_access(self, path: Union[Path, str], *, for_write: bool = False) -> Path:
        return await self._validate_remote_path_access(path, for_write=for_write)

    def _runtime_helpers(self) -> Tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object:
        return self.state.sandbox_id

    async def _prepare_backend_workspace(self) -> None:
        root = self._workspace_root_path()
        try:
            await self.sandbox.files.mkdir(root.as_posix())
        except ramet.RametError as e:
            raise WorkspaceStartError(path=root, cause=e) from e

    async def _shutdown_backend(self) -> None:
        try:
            if self.state.options.pause_on_exit:
                await self.sandbox.update(ttl=0)
                self.sandbox.detach()
                await self.sandbox.hibernate()
            else:
                with contextlib.suppress(ramet.NotFound):
                    await self.sandbox.destroy()
        finally:
            client, self._client = self._client, None
            if client is not None:
                await client.aclose()

    async def _exec_internal(self, *command: Union[str, Path], timeout: Optional[float] = None) -> ExecResult:
        argv, user = [str(part) for part in command], None
        if argv[:2] == ["sudo", "-u"] and argv[3:4] == ["--"]:  # how the framework says the user
            user, argv = argv[2], argv[4:]
        root = self._workspace_root_path().as_posix()
        env = {**self.state.options.env, **await self.state.manifest.environment.resolve()}
        try:
            ran = await run_async(
                self.sandbox, argv, env=env, cwd=root if self._ready else None, user=user,
                timeout=self.state.options.timeout if timeout is None else max(timeout, 0.001),
            )  # fmt: skip
        except ramet.CommandError as e:  # there is no such program
            return ExecResult(stdout=b"", stderr=f"{e}\n".encode(), exit_code=127)
        except ramet.RametError as e:
            raise ExecTransportError(command=command, cause=e, message=str(e)) from e
        if ran.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        return ExecResult(stdout=ran.stdout.encode(), stderr=ran.stderr.encode(), exit_code=ran.exit_code)

    @property
    def _ready(self) -> bool:
        return self.state.workspace_root_ready

    async def read(self, path: Path, *, user: Union[str, User, None] = None) -> io.IOBase:
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        there = await self._validate_path_access(path)
        try:
            return io.BytesIO(await self.sandbox.files.read_bytes(there.as_posix()))
        except ramet.SandboxGone as e:
            raise WorkspaceArchiveReadError(path=path, cause=e) from e
        except ramet.NotFound as e:
            raise WorkspaceReadNotFoundError(path=path, cause=e) from e
        except ramet.RametError as e:
            raise WorkspaceArchiveReadError(path=path, cause=e) from e

    async def write(self, path: Path, data: io.IOBase, *, user: Union[str, User, None] = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        there = await self._validate_path_access(path, for_write=True)
        content = data.read()
        try:
            await self.sandbox.files.write(there.as_posix(), content)
        except ramet.RametError as e:
            raise WorkspaceArchiveWriteError(path=there, cause=e) from e

    async def running(self) -> bool:
        try:
            return (await self.sandbox.info()).state == "running"
        except ramet.RametError:
            return False

    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        excludes = " ".join(shell_tar_exclude_args(self._persist_workspace_skip_relpaths()))
        archive = io.BytesIO()
        said = ""
        try:
            async with await self.sandbox.exec(f'tar {excludes} -C "$ROOT" -cf - .', env={"ROOT": root.as_posix()}, stream=True) as out:
                async for chunk in out:
                    if chunk.stream == "stdout":
                        archive.write(chunk.data)
                    else:
                        said += chunk.text
            ended = out.result
        except ramet.RametError as e:
            raise WorkspaceArchiveReadError(path=root, cause=e) from e
        if ended is None or ended.exit_code != 0:
            raise WorkspaceArchiveReadError(path=root, context={"reason": "tar failed", "stderr": said[-4000:]})
        archive.seek(0)
        return archive

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        raw = data.read()
        try:
            validate_tar_bytes(raw, allow_external_symlink_targets=False)
        except UnsafeTarMemberError as e:
            raise WorkspaceArchiveWriteError(path=root, context={"reason": "unsafe_or_invalid_tar", "detail": str(e)}, cause=e) from e
        try:
            await self.sandbox.files.mkdir(root.as_posix())
            done = await self.sandbox.exec(["tar", "-C", root.as_posix(), "-xf", "-"], stdin=raw)
        except ramet.RametError as e:
            raise WorkspaceArchiveWriteError(path=root, cause=e) from e
        if not done.ok:
            raise WorkspaceArchiveWriteError(path=root, context={"reason": "tar failed", "stderr": done.stderr[-4000:]})

    async def fork(self, n: int = 1) -> "List[RametSandboxSession]":
        """Make sessions whose sandboxes have all of this one: files, memory and processes. They end with it."""
        out = []
        for child in await self.sandbox.fork(n):
            state = self.state.model_copy(update={"session_id": uuid.uuid4(), "sandbox_id": child.id})
            out.append(RametSandboxSession(state, child, None))
        return out

    async def promote(self, child: "RametSandboxSession") -> None:
        """Go on with the state of a fork, which is gone then."""
        await self.sandbox.promote(child.sandbox)


class RametSandboxClient(BaseSandboxClient[RametSandboxClientOptions]):
    """Makes sandboxes for agents.

    ```python
    from agents import RunConfig, Runner
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from ramet.integrations.openai_agents import RametSandboxClient, RametSandboxClientOptions

    client = RametSandboxClient()
    session = await client.create(options=RametSandboxClientOptions(image="python"))
    async with session:
        await Runner.run(agent, "…", run_config=RunConfig(sandbox=SandboxRunConfig(session=session)))
        first, second = await client.fork(session, 2)  # with all that the agent has done, for two ways to go on
    ```
    """

    backend_id = "ramet"
    supports_default_options = True

    def __init__(self, *, instrumentation: Optional[Instrumentation] = None, dependencies: Optional[Dependencies] = None) -> None:
        self._instrumentation = instrumentation if instrumentation is not None else Instrumentation()
        self._dependencies = dependencies

    async def create(
        self,
        *,
        snapshot: Union[SnapshotSpec, SnapshotBase, None] = None,
        manifest: Optional[Manifest] = None,
        options: Optional[RametSandboxClientOptions] = None,
    ) -> SandboxSession:
        options = options if options is not None else RametSandboxClientOptions()
        manifest = self._validate_manifest_for_create(manifest if manifest is not None else Manifest())
        client, sandbox = await _make(options)
        id = uuid.uuid4()
        state = RametSandboxSessionState(
            session_id=id, manifest=manifest, snapshot=resolve_snapshot(snapshot, str(id)), sandbox_id=sandbox.id,
            options=options, exposed_ports=options.exposed_ports,
        )  # fmt: skip
        return self._wrap_session(RametSandboxSession(state, sandbox, client), instrumentation=self._instrumentation)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Destroy what is left of a session, a paused sandbox too."""
        inner = _inner(session)
        with contextlib.suppress(ramet.NotFound):
            await (await ramet.AsyncSandbox.connect(inner.state.sandbox_id)).destroy()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, RametSandboxSessionState):
            raise TypeError(f"the state is one of {state.type}, not of ramet")
        state.assert_path_grants_rebound()
        preserved = True
        client: Optional[ramet.AsyncClient] = None
        try:
            sandbox = await ramet.AsyncSandbox.connect(state.sandbox_id)
            if sandbox.state == "hibernated":
                await sandbox.wake()
        except ramet.NotFound:
            client, sandbox = await _make(state.options)
            state.sandbox_id, state.workspace_root_ready, preserved = sandbox.id, False, False
        session = RametSandboxSession(state, sandbox, client)
        session._set_start_state_preserved(preserved, system=preserved)
        return self._wrap_session(session, instrumentation=self._instrumentation)

    def deserialize_session_state(self, payload: Dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, RametSandboxSessionState)

    async def fork(self, session: SandboxSession, n: int = 1) -> List[SandboxSession]:
        """Make sessions that go on from a running one, with its files, memory and processes. They end with it."""
        return [self._wrap_session(child, instrumentation=self._instrumentation) for child in await _inner(session).fork(n)]

    async def promote(self, session: SandboxSession, child: SandboxSession) -> None:
        """Let a session go on with the state of its fork, which is gone then."""
        await _inner(session).promote(_inner(child))


def _inner(session: SandboxSession) -> RametSandboxSession:
    inner = session._inner
    if not isinstance(inner, RametSandboxSession):
        raise TypeError(f"the session is a {type(inner).__name__}, not one of ramet")
    return inner


async def _make(options: RametSandboxClientOptions) -> "Tuple[Optional[ramet.AsyncClient], ramet.AsyncSandbox]":
    network: Any = list(options.network) if isinstance(options.network, tuple) else options.network
    said: Dict[str, Any] = {"network": network, "cpus": options.cpus, "memory": options.memory}
    if options.ttl is None:
        return await _owned.create_async("openai-agents", options.image, **said)
    sandbox = await ramet.AsyncSandbox.create(options.image, ttl=options.ttl, metadata={"owner": "openai-agents"}, **said)
    return None, sandbox
