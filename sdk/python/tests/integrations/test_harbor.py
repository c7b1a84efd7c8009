import asyncio
import json
import logging
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any, AsyncIterator, Dict

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks nobody
pytest.importorskip("harbor", reason="harbor is not installed")

import pytest_asyncio
from harbor.environments.base import SandboxBuildFailedError
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.paths import TrialPaths

import ramet
from ramet.integrations import _dockerfile
from ramet.integrations._run import MAX_OUTPUT
from ramet.integrations.harbor import RametEnvironment

TASK = Path(__file__).parent / "harbor_task"
LOG = logging.getLogger("test")
OFFLINE = NetworkPolicy(network_mode=NetworkMode.NO_NETWORK)


def make(directory: Path, name: str, config: "Dict[str, Any]" = {}, **options: Any) -> RametEnvironment:
    paths = TrialPaths(directory / "trial")
    paths.mkdir()
    (directory / "environment").mkdir(exist_ok=True)
    return RametEnvironment(
        directory / "environment", "task", name, paths, EnvironmentConfig(**config), LOG,
        network_policy=options.pop("network_policy", OFFLINE), **options,
    )  # fmt: skip


@pytest_asyncio.fixture
async def environment(tmp_path: Path) -> AsyncIterator[RametEnvironment]:
    environment = make(tmp_path, "one", {"docker_image": "python"})
    await environment.start(False)
    yield environment
    await environment.stop(True)


async def running(environment: RametEnvironment, text: str) -> bool:
    return any(text in p.command for p in await environment.sandbox.processes.list())


async def ended(environment: RametEnvironment, text: str) -> bool:
    """Whether it ends: the daemon hears a little later that nobody waits for it any more."""
    for _ in range(200):
        if not await running(environment, text):
            return True
        await asyncio.sleep(0.05)
    return False


def test_a_job_prepares_once(tmp_path: Path) -> None:
    before = {s.id for s in ramet.Sandbox.list()}
    done = subprocess.run(
        [str(Path(sys.executable).parent / "harbor"), "run", "-p", str(TASK), "-a", "oracle", "-k", "3", "-n", "3", "-y", "-q",
         "--env", "ramet.integrations.harbor:RametEnvironment", "--ek", "setup=python3 serve.py", "-o", str(tmp_path), "--job-name", "job"],
        capture_output=True, text=True, env={**os.environ, "HARBOR_TELEMETRY": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    trials = list((tmp_path / "job").glob("*/verifier"))
    assert [(t / "reward.txt").read_text() for t in trials] == ["1\n"] * 3, done.stdout
    assert len({(t / "prepared").read_text() for t in trials}) == 1, "they are not forks of one sandbox"
    assert [(t / "served").read_text() for t in trials] == ["1000000\n"] * 3, "the server that was started before them is not there"
    assert json.loads((tmp_path / "job" / "result.json").read_text())["stats"]
    assert {s.id for s in ramet.Sandbox.list()} <= before, "sandboxes are left"


async def test_commands_and_files(environment: RametEnvironment, tmp_path: Path) -> None:
    r = await environment.exec("pwd; echo err >&2; echo $V; exit 3", cwd="/srv", env={"V": "v"})
    assert (r.stdout, r.stderr, r.return_code) == ("/srv\nv\n", "err\n", 3)
    assert (await environment.exec("id -un", user="nobody")).stdout == "nobody\n"
    assert (await environment.exec("id -u", user=1)).stdout == "1\n"
    (tmp_path / "up" / "sub").mkdir(parents=True)
    (tmp_path / "up" / "sub" / "a").write_text("a")
    await environment.upload_dir(tmp_path / "up", "/srv/up")
    await environment.upload_file(tmp_path / "up" / "sub" / "a", "/srv/new/b")
    await environment.download_dir("/srv", tmp_path / "down")
    await environment.download_file("/srv/new/b", tmp_path / "deep" / "b")
    assert (tmp_path / "down" / "up" / "sub" / "a").read_text() == "a" and (tmp_path / "deep" / "b").read_text() == "a"
    assert await environment.is_dir("/srv/up") and await environment.is_file("/srv/new/b")
    cut = await environment.exec("echo first; head -c 9000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert cut.stdout is not None and len(cut.stdout) < MAX_OUTPUT + 100 and cut.stdout.endswith("last\n")


async def test_late_and_cancelled_commands_leave_no_process(environment: RametEnvironment) -> None:
    with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
        await environment.exec("sleep 4321 & sleep 4321", timeout_sec=1)
    assert not await running(environment, "4321")
    task = asyncio.ensure_future(environment.exec("sleep 4322 & sleep 4322"))
    while not await running(environment, "4322"):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ended(environment, "4322")


async def test_trials_are_forks_and_apart(tmp_path: Path) -> None:
    trials = [make(tmp_path, f"t{i}", {"docker_image": "python"}, setup="echo prepared > /srv/n; date +%N >> /srv/n") for i in range(3)]
    await asyncio.gather(*(t.start(False) for t in trials))
    await trials[0].exec("echo own >> /srv/n")
    read = [(await t.exec("cat /srv/n")).stdout for t in trials]
    assert read[0] == f"{read[1]}own\n" and read[1] == read[2]
    assert len({t.sandbox.parent for t in trials}) == 1
    [child] = await trials[1].fork()
    assert (await child.exec("cat /srv/n")).stdout == read[1]
    await child.exec("echo child > /srv/n")
    await trials[1].promote(child)
    assert (await trials[1].exec("cat /srv/n")).stdout == "child\n"
    cold = make(tmp_path, "cold", {"docker_image": "python"}, setup="echo prepared > /srv/n; date +%N >> /srv/n", cold=True)
    await cold.start(False)
    assert cold.sandbox.parent is None and (await cold.exec("cat /srv/n")).stdout not in read
    assert not (await cold.sandbox.test_network("a.example.org", 443)).allowed
    own = cold.sandbox.id
    for t in trials + [cold]:
        await t.stop(True)
    assert own not in {s.id for s in await ramet.AsyncSandbox.list()}


async def test_networks(environment: RametEnvironment) -> None:
    assert not (await environment.sandbox.test_network("a.example.org", 443)).allowed
    await environment.set_network_policy(NetworkPolicy(network_mode=NetworkMode.ALLOWLIST, allowed_hosts=["*.example.org", "192.0.2.0/24"]))
    assert (await environment.sandbox.test_network("a.example.org", 443)).allowed
    assert not (await environment.sandbox.test_network("a.example.com", 443)).allowed
    await environment.set_network_policy(NetworkPolicy())
    assert (await environment.sandbox.test_network("a.example.com", 443)).allowed


async def test_dockerfiles(tmp_path: Path) -> None:
    (tmp_path / "environment" / "d").mkdir(parents=True)
    (tmp_path / "environment" / "d" / "x").write_text("x")
    with tarfile.open(tmp_path / "environment" / "a.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "environment" / "d" / "x", "w/x")
    (tmp_path / "environment" / "Dockerfile").write_text(
        'ARG BASE=python\n# a comment\nFROM ${BASE} AS only\nARG BASE\nARG HOW=well\nENV PATH=/opt/bin:$PATH\nENV ONE=1 TWO="2 2" \\\n    THREE=${ONE}3\n'
        "WORKDIR /srv\nWORKDIR app\nCOPY d/ .\nCOPY --chmod=600 d/x y/\nADD a.tar.gz z/\nRUN echo $TWO-$THREE-$HOW-$BASE > out && \\\n    pwd >> out\n"
        'RUN ["/bin/sh", "-c", "id -un >> out"]\nUSER nobody\nCMD ["sh"]\n'
    )
    environment = make(tmp_path, "one")
    await environment.start(False)
    r = await environment.exec("pwd; id -un; echo $THREE; cat out x z/w/x; ls -l y/x | cut -c1-10; echo $PATH | cut -d: -f1", cwd=None)
    assert (r.stdout or "") + (r.stderr or "") == "/srv/app\nnobody\n3\n2 2-3-well-python\n/srv/app\nroot\nxx-rw-------\n/opt/bin\n", r
    await environment.stop(True)
    for text, said in (
        ("FROM python\nRUN exit 7\n", "line 2: RUN exit 7: exit code 7"),
        ("FROM python\nCOPY ../../secret .\n", "line 2: COPY ../../secret: there is no such file"),
        ("FROM python\nRUN --mount=type=bind,target=/x true\n", "line 2: RUN --mount=type=bind,target=/x is not known here"),
        ("FROM python\nONBUILD RUN true\n", "line 2: ONBUILD is not known here"),
        ("FROM a AS b\nFROM b\n", "one stage"),
    ):
        (tmp_path / "environment" / "Dockerfile").write_text(text)
        with pytest.raises(SandboxBuildFailedError, match=said.replace("(", "\\(")):
            await make(tmp_path, "two").start(False)


def test_dockerfiles_are_read() -> None:
    assert _dockerfile.base_of(_dockerfile.parse("ARG V=3\nFROM --platform=linux/amd64 python:${V:-2}\n")) == "python:3"
    for text in ("", "RUN true", "FROM a\nRUN b \\"):
        with pytest.raises(_dockerfile.DockerfileError):
            _dockerfile.base_of(_dockerfile.parse(text))
