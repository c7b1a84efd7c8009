"""An environment of Harbor: `pip install 'ramet[harbor]'`, and `harbor run --env ramet.integrations.harbor:RametEnvironment`.

All trials of one task are forks of one sandbox, which is prepared once.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import dataclasses
import weakref
from pathlib import Path
from typing import Any, ClassVar, Dict, List, Optional, Tuple, Type, Union

from harbor.environments.base import BaseEnvironment, ExecResult, SandboxBuildFailedError
from harbor.environments.capabilities import EnvironmentCapabilities, EnvironmentResourceCapabilities
from harbor.environments.definition import require_agent_environment_definition, should_use_prebuilt_docker_image
from harbor.environments.options import EnvironmentOptions
from harbor.models.task.config import NetworkMode, NetworkPolicy
from pydantic import Field

import ramet

from . import _dockerfile, _owned
from ._run import run_async

REST = 600.0
"""Seconds after which the sandbox of a task is written to disk if no trial begins. It can be forked there, too."""

REGISTRIES = {"profile": "host-registries"}
"""What a public network reaches besides public addresses: the registries that the host is set up with."""


class RametOptions(EnvironmentOptions):
    """What `--ek NAME=VALUE` says."""

    image: Optional[str] = Field(default=None, description="Image of Ramet in place of that of the task.")
    setup: Optional[str] = Field(default=None, description="Command that runs once, before all trials.")
    build_network: str = Field(default="open", description="Network while the sandbox is prepared: a profile.")
    cold: bool = Field(default=False, description="Prepare a sandbox for each trial, in place of one for all.")


@dataclasses.dataclass
class _Warm:
    """The sandbox that trials are forks of, and what its image says."""

    sandbox: "ramet.AsyncSandbox"
    made: _dockerfile.Made


class _Job:
    """The sandboxes of one event loop. They end with the program, and a minute later if that is killed."""

    def __init__(self) -> None:
        self.client = ramet.AsyncClient(owner="harbor", lease=_owned.LEASE)
        self._opened: "Optional[asyncio.Task[Any]]" = None
        self.warm: "Dict[Tuple[Any, ...], asyncio.Task[_Warm]]" = {}

    async def open(self) -> None:
        if self._opened is None:
            self._opened = asyncio.ensure_future(self.client.__aenter__())
        await asyncio.shield(self._opened)


_jobs: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Job]" = weakref.WeakKeyDictionary()
_made: List[str] = []


@atexit.register
def _end() -> None:
    """End what is left when the program does: the event loop is closed then."""
    if not _made:
        return
    with contextlib.suppress(ramet.RametError):
        with ramet.Client() as client:
            for id in _made:
                with contextlib.suppress(ramet.RametError):
                    client.get(id).destroy()


class RametEnvironment(BaseEnvironment):
    """A sandbox for one trial, a fork of the one that is prepared for its task: image, Dockerfile, `setup`.

    A command whose time is over, or whose task is cancelled, is killed with its process group. Of an output the
    beginning and the end are kept. The network of the trial is the policy of the task, and can change while it
    runs; while the sandbox is prepared it is `build_network`.

    ```sh
    harbor run -p ./task -a oracle --env ramet.integrations.harbor:RametEnvironment --ek image=python
    ```
    """

    options_model: ClassVar[Optional[Type[EnvironmentOptions]]] = RametOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._sandbox: Optional[ramet.AsyncSandbox] = None
        self._image_made = _dockerfile.Made()
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "ramet"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
            network_allowlist_ipv4_addresses=True,
            network_allowlist_ipv6_addresses=True,
            network_allowlist_ipv4_cidrs=True,
            network_allowlist_ipv6_cidrs=True,
            dynamic_network_policy=True,
        )

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True, fractional_cpus=True)

    @property
    def sandbox(self) -> "ramet.AsyncSandbox":
        """The sandbox of the trial, between `start` and `stop`."""
        if self._sandbox is None:
            raise RuntimeError("the environment is not started")
        return self._sandbox

    def _validate_definition(self) -> None:
        if self._said.image is None:
            require_agent_environment_definition(self.environment_dir, docker_image=self.task_env_config.docker_image)
        if (self.environment_dir / "docker-compose.yaml").exists():
            raise ValueError("a sandbox is one machine: docker-compose.yaml is not supported")

    @property
    def _said(self) -> RametOptions:
        return self.options if isinstance(self.options, RametOptions) else RametOptions()

    async def start(self, force_build: bool) -> None:
        loop = asyncio.get_running_loop()
        job = _jobs.setdefault(loop, _Job())
        await job.open()
        cpus = self._resource_limit_value("cpu", auto_mode=_limit())
        memory = self._resource_limit_value("memory", auto_mode=_limit())
        if self._said.cold:
            warm = await self._prepare(job, force_build, cpus, memory)
            self._sandbox = warm.sandbox
        else:
            key = (
                self.environment_id, self._said.image, self._said.setup, self._said.build_network, cpus, memory,
                self._effective_storage_mb,
            )  # fmt: skip
            if key not in job.warm or (job.warm[key].done() and (job.warm[key].cancelled() or job.warm[key].exception())):
                job.warm[key] = asyncio.ensure_future(self._prepare(job, force_build, cpus, memory))
            # A trial that is cancelled does not end what others wait for.
            warm = await asyncio.shield(job.warm[key])
            [self._sandbox] = await warm.sandbox.fork(network=_network(self._network_policy), idle_timeout=0)
        self._image_made = warm.made
        try:
            if self._said.cold:
                await self.sandbox.set_network(_network(self._network_policy))
            await self.ensure_dirs(self._mount_targets(writable_only=True))
            await self._upload_environment_dir_after_start()
        except BaseException:
            await self.stop(True)
            raise

    async def _prepare(self, job: _Job, force_build: bool, cpus: Any, memory: Any) -> _Warm:
        """Make the sandbox that trials of the task are forks of."""
        dockerfile = self.environment_dir / "Dockerfile"
        image, instructions = self._said.image, []
        try:
            if dockerfile.exists() and not should_use_prebuilt_docker_image(
                self.environment_dir, docker_image=self.task_env_config.docker_image, force_build=force_build
            ):
                instructions = _dockerfile.parse(dockerfile.read_text())
                image = image or _dockerfile.base_of(instructions)
            image = image or self.task_env_config.docker_image or "python"
            sandbox = await ramet.AsyncSandbox.create(
                image,
                client=job.client,
                cpus=cpus,
                memory=memory,
                disk=self._effective_storage_mb,
                idle_timeout=0 if self._said.cold else REST,
                idle_action="hibernate",
                network={"profile": self._said.build_network, "allow": [REGISTRIES]},
            )
            _made.append(sandbox.id)
            try:
                made = await _dockerfile.carry_out(sandbox, instructions, str(self.environment_dir))
                if self._said.setup:
                    await sandbox.exec(self._said.setup, cwd=made.workdir, env=made.env, check=True)
            except BaseException:
                await sandbox.destroy()
                raise
        except (_dockerfile.DockerfileError, ramet.CommandError) as e:
            raise SandboxBuildFailedError(str(e)) from e
        return _Warm(sandbox, made)

    async def stop(self, delete: bool) -> None:
        """End the sandbox of the trial. Without delete it goes on, until the program ends."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is None:
            return
        if not delete:
            self.logger.info(f"sandbox {sandbox.id} is kept until the end of this program")
            return
        with contextlib.suppress(ramet.NotFound):
            await sandbox.destroy()

    async def _apply_network_policy(self, network_policy: NetworkPolicy) -> None:
        await self.sandbox.set_network(_network(network_policy))

    async def exec(
        self,
        command: str,
        cwd: Optional[str] = None,
        env: Optional[Dict[str, str]] = None,
        timeout_sec: Optional[int] = None,
        user: Union[str, int, None] = None,
    ) -> ExecResult:
        who = self._resolve_user(user)
        ran = await run_async(
            self.sandbox,
            [self._image_made.shell, "-c", command],
            cwd=cwd or self.task_env_config.workdir or self._image_made.workdir,
            env={**self._image_made.env, **(self._merge_env(env) or {})},
            user=self._image_made.user if who is None else str(who),
            timeout=timeout_sec,
        )
        if ran.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        tell = self._output_callback()
        if tell is not None:
            for text, stream in ((ran.stdout, "stdout"), (ran.stderr, "stderr")):
                if text:
                    await tell(text, stream)  # type: ignore[arg-type]
        return ExecResult(stdout=ran.stdout, stderr=ran.stderr, return_code=ran.exit_code)

    async def upload_file(self, source_path: Union[Path, str], target_path: str) -> None:
        await self.sandbox.files.upload(source_path, target_path)

    async def upload_dir(self, source_dir: Union[Path, str], target_dir: str) -> None:
        await self.sandbox.files.upload(source_dir, target_dir)

    async def download_file(self, source_path: str, target_path: Union[Path, str]) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        await self.sandbox.files.download(source_path, target_path)

    async def download_dir(self, source_dir: str, target_dir: Union[Path, str]) -> None:
        Path(target_dir).mkdir(parents=True, exist_ok=True)
        await self.sandbox.files.download(source_dir, target_dir)

    async def fork(self, n: int = 1) -> "List[ramet.AsyncSandbox]":
        """Make children that have all of the trial's sandbox. They end with it, or with their own destroy()."""
        return list(await self.sandbox.fork(n))

    async def promote(self, child: "ramet.AsyncSandbox") -> None:
        """Go on with the state of a child, which is gone then."""
        await self.sandbox.promote(child)


def _limit() -> Any:
    from harbor.models.trial.config import ResourceMode

    return ResourceMode.LIMIT


def _network(policy: NetworkPolicy) -> Dict[str, Any]:
    """The document of a policy."""
    if policy.network_mode == NetworkMode.NO_NETWORK:
        return {"profile": "none"}
    if policy.network_mode == NetworkMode.ALLOWLIST:
        return {"allow": list(policy.allowed_hosts)}
    return {"profile": "open", "allow": [REGISTRIES]}
