import asyncio
import io
import json
from pathlib import Path
from typing import Any, AsyncIterator, List

import pytest

pytest.importorskip("agents.sandbox", reason="openai-agents is not installed")

import pytest_asyncio
from agents import ModelResponse, RunConfig, Runner, Usage, set_tracing_disabled
from agents.models.interface import Model
from agents.sandbox import Manifest, SandboxAgent, SandboxRunConfig
from agents.sandbox.capabilities import Shell
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceArchiveWriteError, WorkspaceReadNotFoundError
from agents.sandbox.session.sandbox_session import SandboxSession
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import ramet
from ramet.integrations._run import MAX_OUTPUT
from ramet.integrations.openai_agents import RametSandboxClient, RametSandboxClientOptions

set_tracing_disabled(True)


class Scripted(Model):
    """A model that says what it was given, and keeps what it was told."""

    def __init__(self, *said: Any) -> None:
        self.said = list(said)
        self.told: List[str] = []

    async def get_response(self, *arguments: Any, **options: Any) -> ModelResponse:
        self.told.append(str(options.get("input", arguments[1:2])))
        return ModelResponse(output=[self.said.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError


def call(name: str, **arguments: Any) -> ResponseFunctionToolCall:
    return ResponseFunctionToolCall(call_id=name, name=name, arguments=json.dumps(arguments), type="function_call")


def text(said: str) -> ResponseOutputMessage:
    content = ResponseOutputText(text=said, type="output_text", annotations=[])
    return ResponseOutputMessage(id="m", content=[content], role="assistant", status="completed", type="message")


@pytest_asyncio.fixture
async def session() -> AsyncIterator[SandboxSession]:
    session = await RametSandboxClient().create(manifest=Manifest(entries={"a.txt": File(content=b"text")}))
    async with session:
        yield session


def sandbox(session: SandboxSession) -> ramet.AsyncSandbox:
    return session._inner.sandbox


async def running(session: SandboxSession, text: str) -> bool:
    return any(text in p.command for p in await sandbox(session).processes.list())


async def ended(session: SandboxSession, text: str) -> bool:
    """Whether it ends: the daemon hears a little later that nobody waits for it any more."""
    for _ in range(200):
        if not await running(session, text):
            return True
        await asyncio.sleep(0.05)
    return False


async def test_an_agent_works_in_it() -> None:
    model = Scripted(call("exec_command", cmd="cat a.txt; echo; echo $((6 * 7)) > b.txt"), text("done"))
    agent = SandboxAgent(name="coder", model=model, capabilities=[Shell()], default_manifest=Manifest(entries={"a.txt": File(content=b"text")}))
    config = RunConfig(sandbox=SandboxRunConfig(client=RametSandboxClient(), options=RametSandboxClientOptions()))
    before = {s.id for s in await ramet.AsyncSandbox.list()}
    assert (await Runner.run(agent, "go", run_config=config)).final_output == "done"
    assert "text" in model.told[1], model.told
    assert {s.id for s in await ramet.AsyncSandbox.list()} <= before


async def test_commands_and_files(session: SandboxSession) -> None:
    root = session.state.manifest.root
    r = await session.exec("pwd; cat a.txt; echo err >&2; exit 3")
    assert (r.stdout, r.stderr, r.exit_code) == (f"{root}\ntext".encode(), b"err\n", 3)
    assert (await session.exec("id", "-un", shell=False, user="nobody")).stdout == b"nobody\n"
    assert (await session.exec("no-such-program", shell=False)).exit_code == 127
    await session.write(Path("d/b"), io.BytesIO(b"\x00\xff"))
    assert (await session.read(Path("d/b"))).read() == b"\x00\xff"
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("none"))
    assert [e.path for e in await session.ls("d")] == [f"{root}/d/b"]
    cut = await session.exec("echo first; head -c 9000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert len(cut.stdout) < MAX_OUTPUT + 100 and cut.stdout.endswith(b"last\n")
    assert await session.running()


async def test_late_and_cancelled_commands_leave_no_process(session: SandboxSession) -> None:
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 4321 & sleep 4321", timeout=1)
    assert not await running(session, "4321")
    task = asyncio.ensure_future(session.exec("sleep 4322 & sleep 4322"))
    while not await running(session, "4322"):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ended(session, "4322")


async def test_workspaces_are_kept(session: SandboxSession) -> None:
    await session.write(Path("d/b"), io.BytesIO(b"b"))
    archive = await session.persist_workspace()
    async with await RametSandboxClient().create() as other:
        await other.hydrate_workspace(archive)
        assert (await other.read(Path("d/b"))).read() == b"b"
        with pytest.raises(WorkspaceArchiveWriteError):
            await other.hydrate_workspace(io.BytesIO(b"no archive"))


async def test_sessions_fork_and_end() -> None:
    client = RametSandboxClient()
    session = await client.create()
    async with session:
        await session.write(Path("n"), io.BytesIO(b"1"))
        one, two = await client.fork(session, 2)
        await one.write(Path("n"), io.BytesIO(b"2"))
        assert [(await s.read(Path("n"))).read() for s in (session, one, two)] == [b"1", b"2", b"1"]
        await client.promote(session, one)
        assert (await session.read(Path("n"))).read() == b"2"
        ids = {sandbox(session).id, sandbox(two).id}
    assert not ids & {s.id for s in await ramet.AsyncSandbox.list()}


async def test_sessions_are_resumed() -> None:
    client = RametSandboxClient()
    for options in (RametSandboxClientOptions(pause_on_exit=True), RametSandboxClientOptions(ttl=60)):
        session = await client.create(options=options)
        await session.start()
        await session.exec("echo 1 > n; sleep 4325 > /dev/null 2>&1 &")
        kept = client.serialize_session_state(session.state)
        if options.pause_on_exit:
            await session.aclose()
        again = await client.resume(client.deserialize_session_state(json.loads(json.dumps(kept, default=str))))
        async with again:
            assert (await again.read(Path("n"))).read() == b"1\n" and await running(again, "4325")
        await client.delete(again)
        assert sandbox(session).id not in {s.id for s in await ramet.AsyncSandbox.list()}
    # What is gone is made again.
    again = await client.resume(again.state)
    async with again:
        assert (await again.exec("ls -A")).stdout == b""


async def test_ports() -> None:
    options = RametSandboxClientOptions(exposed_ports=(8000,))
    async with await RametSandboxClient().create(options=options) as session:
        process = await sandbox(session).exec(["python3", "-m", "http.server", "8000", "--bind", "127.0.0.1"], background=True)
        await sandbox(session).port(8000).wait()
        endpoint = await session.resolve_exposed_port(8000)
        assert endpoint == await session.resolve_exposed_port(8000)
        reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert b"200 OK" in await reader.read()
        writer.close()
        await process.kill()
