import asyncio
from pathlib import Path
from typing import Any, AsyncGenerator, AsyncIterator, Iterator, List

import pytest

pytest.importorskip("google.adk", reason="google-adk is not installed")

import pytest_asyncio
from google.adk.agents import Agent
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, File
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

import ramet
from ramet.integrations.adk import MAX_OUTPUT, RametCodeExecutor, RametEnvironment


class Scripted(BaseLlm):
    """A model that says what it was given, and keeps what it was told."""

    said: List[Any] = []
    told: List[str] = []

    async def generate_content_async(self, request: Any, stream: bool = False) -> AsyncGenerator[LlmResponse, None]:
        self.told.append(str(request.contents))
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part.from_text(text=self.said.pop(0))]))


@pytest_asyncio.fixture
async def environment() -> AsyncIterator[RametEnvironment]:
    environment = RametEnvironment("python")
    await environment.initialize()
    await environment.initialize()  # a second time is none
    yield environment
    await environment.close()
    await environment.close()


@pytest.fixture(scope="module")
def executor() -> Iterator[RametCodeExecutor]:
    executor = RametCodeExecutor(timeout_seconds=20)
    yield executor
    executor.close()


async def running(environment: RametEnvironment, text: str) -> bool:
    return any(text in p.command for p in await environment.sandbox.processes.list())


async def ended(environment: RametEnvironment, text: str) -> bool:
    """Whether it ends: the daemon hears a little later that nobody waits for it any more."""
    for _ in range(200):
        if not await running(environment, text):
            return True
        await asyncio.sleep(0.05)
    return False


async def test_commands_and_files(environment: RametEnvironment) -> None:
    r = await environment.execute("pwd; echo err >&2; exit 3")
    assert (r.exit_code, r.stdout, r.stderr, r.timed_out) == (3, "/workspace\n", "err\n", False)
    await environment.write_file(Path("a/b.txt"), "text")
    await environment.write_file(Path("/srv/c"), b"\x00\xff")
    assert await environment.read_file(Path("/workspace/a/b.txt")) == b"text" and await environment.read_file(Path("/srv/c")) == b"\x00\xff"
    with pytest.raises(FileNotFoundError):
        await environment.read_file(Path("none"))
    cut = await environment.execute("echo first; head -c 9000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert len(cut.stdout) < MAX_OUTPUT + 100 and cut.stdout.startswith("first\n") and cut.stdout.endswith("last\n")


async def test_late_and_cancelled_commands_leave_no_process(environment: RametEnvironment) -> None:
    r = await environment.execute("echo begun; sleep 4321 & sleep 4321", timeout=1)
    assert r.timed_out and r.exit_code == 124 and r.stdout == "begun\n" and not await running(environment, "4321")
    task = asyncio.ensure_future(environment.execute("sleep 4322 & sleep 4322"))
    while not await running(environment, "4322"):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ended(environment, "4322")


async def test_environments_fork_and_end() -> None:
    environment = RametEnvironment("python")
    with pytest.raises(RuntimeError, match="not initialized"):
        await environment.execute("true")
    await environment.initialize()
    await environment.write_file(Path("n"), "1")
    one, two = await environment.fork(2)
    await one.write_file(Path("n"), "2")
    assert [await e.read_file(Path("n")) for e in (environment, one, two)] == [b"1", b"2", b"1"]
    await environment.promote(one)
    assert await environment.read_file(Path("n")) == b"2"
    ids = {environment.sandbox.id, two.sandbox.id}
    await environment.close()
    assert not ids & {s.id for s in await ramet.AsyncSandbox.list()}


async def test_an_agent_runs_code(executor: RametCodeExecutor) -> None:
    model = Scripted(model="scripted", said=["```python\nx = 6 * 7\nprint(x)\n```", "It is 42."], told=[])
    runner = InMemoryRunner(agent=Agent(model=model, name="coder", code_executor=executor), app_name="test")
    session = await runner.session_service.create_session(app_name="test", user_id="user")
    message = types.Content(role="user", parts=[types.Part.from_text(text="What is 6 times 7?")])
    events = [e async for e in runner.run_async(user_id="user", session_id=session.id, new_message=message)]
    assert "42" in model.told[1] and "It is 42." in str(events[-1].content)


def run(executor: RametCodeExecutor, code: str, **options: Any) -> Any:
    return executor.execute_code(None, CodeExecutionInput(code=code, **options))


def test_code_has_files_and_state(executor: RametCodeExecutor) -> None:
    r = run(executor, "y = open('data.csv').read()\nprint(y)\nlen(y)", input_files=[File("data.csv", "a,b")], execution_id="s/1")
    assert (r.stdout, r.stderr, r.exit_code) == ("a,b\n3\n", "", 0)
    assert run(executor, "y", execution_id="s/1").stdout == "'a,b'\n"
    r = run(executor, "y", execution_id="s/2")
    assert r.exit_code == 1 and "NameError" in r.stderr
    late = executor.model_copy(update={"timeout_seconds": 1})
    late._client, late._sandbox = None, executor.sandbox
    assert run(late, "import subprocess; subprocess.run(['sleep', '4323'])").exit_code == 124
    assert not any("4323" in p.command for p in executor.sandbox.processes.list())


def test_executors_fork_and_end() -> None:
    executor = RametCodeExecutor()
    run(executor, "n = 1")
    one, two = executor.fork(2)
    run(one, "n = 2")
    assert [run(e, "n").stdout for e in (executor, one, two)] == ["1\n", "2\n", "1\n"]
    executor.promote(one)
    assert run(executor, "n").stdout == "2\n"
    ids = {executor.sandbox.id, two.sandbox.id}
    executor.close()
    assert not ids & {s.id for s in ramet.Sandbox.list()}
