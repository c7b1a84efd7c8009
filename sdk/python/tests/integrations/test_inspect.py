import asyncio
import time
from typing import Any, List

import pytest

pytest.importorskip("inspect_ai", reason="inspect-ai is not installed")

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, Target, accuracy, scorer
from inspect_ai.solver import TaskState, use_tools, generate
from inspect_ai.tool import bash
from inspect_ai.util import SandboxEnvironmentSpec, sandbox
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

pytest.importorskip("pytest_asyncio", reason="pytest-asyncio is not installed")

import ramet
from ramet.integrations.inspect import RametConfig, RametSandboxEnvironment


# What does not hold in the image "python", whose commands run as root.
UNMET = {
    "test_exec_as_user": "the image has no adduser",
    "test_exec_large_command": "arguments and environment have 1 MiB at most",
    "test_read_file_not_allowed": "root reads what its mode denies",
    "test_write_binary_file_without_permissions": "root writes what its mode denies",
    "test_write_text_file_without_permissions": "root writes what its mode denies",
}


@pytest.fixture
async def sandbox_env(request: pytest.FixtureRequest) -> Any:
    """What the framework's own checks are run with: a fork for each."""
    if reason := UNMET.get(request.node.originalname):
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    await RametSandboxEnvironment.task_init("check", None)
    envs = await RametSandboxEnvironment.sample_init("check", None, {})
    yield envs["default"]
    await RametSandboxEnvironment.sample_cleanup("check", None, envs, False)
    await RametSandboxEnvironment.task_cleanup("check", None, True)


def test_late_and_cancelled_commands_leave_no_process() -> None:
    async def run() -> None:
        envs = await RametSandboxEnvironment.sample_init("late", None, {})
        env = envs["default"].as_type(RametSandboxEnvironment)
        try:
            with pytest.raises(TimeoutError):
                await env.exec(["sh", "-c", "sleep 4321 & sleep 4321"], timeout=1)
            task = asyncio.create_task(env.exec(["sh", "-c", "touch /begun; sleep 4321 & sleep 4321"]))
            while not await env.sandbox.files.exists("/begun"):
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(500):
                if not [p for p in await env.sandbox.processes.list() if "4321" in p.command]:
                    return
                await asyncio.sleep(0.02)
            raise AssertionError("a process is left")
        finally:
            await RametSandboxEnvironment.sample_cleanup("late", None, envs, False)
            await RametSandboxEnvironment.task_cleanup("late", None, True)

    asyncio.run(run())


@scorer(metrics=[accuracy()])
def fixed() -> Any:
    async def score(state: TaskState, target: Target) -> Score:
        r = await sandbox().exec(["python3", "check.py"])
        others = await sandbox().exec(["sh", "-c", "ls mine-*"])
        alone = others.stdout.split() == [f"mine-{state.sample_id}"]
        [child] = await sandbox().as_type(RametSandboxEnvironment).fork()
        inherited = await child.read_file("calc.py") == await sandbox().read_file("calc.py")
        return Score(value="C" if r.success and alone and inherited else "I", explanation=r.stderr + others.stdout)

    return score


def test_a_task_runs_in_forks_of_one_prepared_repository(tmp_path: Any) -> None:
    """A scripted model repairs a repository in eight samples, each a fork of the one that was prepared."""
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    (repository / "check.py").write_text("import calc\nassert calc.add(2, 3) == 5\n")
    config = RametConfig(files=((str(repository), "/workspace"),), setup=("date +%s%N > /prepared",))

    def turns(n: int) -> List[ModelOutput]:
        out = []
        for _ in range(n):
            out.append(ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "sed -i 's/-/+/' calc.py; touch mine-$(cat /tmp/sample)"}))
            out.append(ModelOutput.from_content("mockllm/model", "done"))
        for o in out:
            o.usage = ModelUsage()  # else tokens are counted with a table from the network
        return out

    began = time.monotonic()
    [log] = eval(
        Task(
            dataset=[Sample(id=i, input="Repair calc.py.", setup=f"echo {i} > /tmp/sample") for i in range(8)],
            solver=[use_tools(bash()), generate()],
            scorer=fixed(),
            sandbox=SandboxEnvironmentSpec("ramet", config),
        ),
        model=get_model("mockllm/model", custom_outputs=turns(8)),
        max_samples=1,  # the model's turns are in order
        display="none",
        log_dir=str(tmp_path / "logs"),
    )
    assert log.status == "success", (log.error, [s.error for s in log.samples or []])
    assert log.results and log.results.scores[0].metrics["accuracy"].value == 1, [s.scores for s in log.samples or []][:2]
    print(f"8 samples in {time.monotonic() - began:.1f} s")
    assert not ramet.Sandbox.list(metadata={"owner": "inspect"})
