import asyncio
import time
from typing import Any, Iterator, List

import pytest

pytest.importorskip("langgraph", reason="langgraph is not installed")
pytest.importorskip("langchain", reason="langchain is not installed")

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

import ramet
from ramet.integrations.langgraph import RametToolkit


class Scripted(GenericFakeChatModel):
    """A model that says what it was given."""

    def bind_tools(self, tools: Any, **options: Any) -> "Scripted":
        return self


def call(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": name}])


def answers(result: Any) -> List[str]:
    return [m.content for m in result["messages"] if isinstance(m, ToolMessage)]


@pytest.fixture(scope="module")
def toolkit() -> Iterator[RametToolkit]:
    with RametToolkit.create("python", cwd="/srv", max_forks=2) as toolkit:
        yield toolkit


def tool(toolkit: RametToolkit, name: str) -> Any:
    [found] = [t for t in toolkit.tools if t.name == name]
    return found


def running(toolkit: RametToolkit, text: str) -> bool:
    return any(text in p.command for p in toolkit.sandbox.processes.list())


def ended(toolkit: RametToolkit, text: str) -> bool:
    """Whether it ends: the daemon hears a little later that nobody waits for it any more."""
    for _ in range(200):
        if not running(toolkit, text):
            return True
        time.sleep(0.05)
    return False


def test_an_agent_tries_two_ways(toolkit: RametToolkit) -> None:
    said = iter([
        call("ramet_run_code", code="x = 40"),
        call("ramet_write_file", path="/srv/a.txt", content="one\n"),
        call("ramet_fork", count=2),
        AIMessage("done"),
    ])  # fmt: skip
    agent = create_agent(Scripted(messages=said), toolkit.tools)
    got = answers(agent.invoke({"messages": [("user", "go")]}))
    assert got[:2] == ["done, without output", "wrote 4 bytes to /srv/a.txt"]
    first, second = got[2].split()
    said = iter([
        call("ramet_run_code", code="x + 2", sandbox=first),
        call("ramet_exec", command="pwd; echo two >> a.txt; false", sandbox=second),
        call("ramet_compare", sandbox=second),
        call("ramet_fork"),
        call("ramet_exec", command="true", sandbox="sbx_aaaaaaaaaaaaaaaa"),
        call("ramet_promote", sandbox=second),
        call("ramet_destroy", sandbox=first),
        call("ramet_read_file", path="a.txt"),
        call("ramet_read_file", path="/srv/a.txt"),
        AIMessage("done"),
    ])  # fmt: skip
    agent = create_agent(Scripted(messages=said), toolkit.tools)
    got = answers(asyncio.run(agent.ainvoke({"messages": [("user", "go on")]})))
    assert got[0] == "42\n" and got[1] == "exit code 1\n/srv\n"
    assert "+two" in got[2] and got[3].startswith("limit_exceeded: ") and "no child of this sandbox" in got[4]
    assert got[7].startswith("invalid_argument: ") and got[8] == "one\ntwo\n", got


def test_late_and_cancelled_commands_leave_no_process(toolkit: RametToolkit) -> None:
    with RametToolkit.create("python", timeout=1) as late:
        assert tool(late, "ramet_exec").invoke({"command": "sleep 4321 & sleep 4321"}).startswith("exit code 124 (killed after 1 s)")
        assert not running(late, "4321")

    async def cancelled() -> None:
        task = asyncio.ensure_future(tool(toolkit, "ramet_exec").ainvoke({"command": "sleep 4322 & sleep 4322"}))
        while not await asyncio.to_thread(running, toolkit, "4322"):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert ended(toolkit, "4322")


def test_large_outputs_are_cut(toolkit: RametToolkit) -> None:
    for name, arguments in (
        ("ramet_exec", {"command": "echo first; head -c 9000000 /dev/zero | tr '\\0' x; echo; echo last"}),
        ("ramet_run_code", {"code": "print('first'); print('x' * 9000000); print('last')"}),
    ):
        answer = tool(toolkit, name).invoke(arguments)
        assert len(answer) < 24_100 and "first\n" in answer[:30] and answer.endswith("last\n"), name


def test_toolkits_fork_and_end() -> None:
    with RametToolkit.create("python", max_forks=0) as toolkit:
        assert [t.name for t in toolkit.tools] == ["ramet_exec", "ramet_run_code", "ramet_read_file", "ramet_write_file"]
        tool(toolkit, "ramet_run_code").invoke({"code": "x = 1"})
        one, two = toolkit.fork(2)
        tool(one, "ramet_run_code").invoke({"code": "x = 2"})
        assert [tool(t, "ramet_run_code").invoke({"code": "x"}) for t in (toolkit, one, two)] == ["1\n", "2\n", "1\n"]
        toolkit.promote(one)
        assert tool(toolkit, "ramet_run_code").invoke({"code": "x"}) == "2\n"
        ids = {toolkit.sandbox.id, one.sandbox.id, two.sandbox.id}
    assert not ids & {s.id for s in ramet.Sandbox.list()}
    with pytest.raises(ramet.SandboxGone):
        tool(toolkit, "ramet_exec").invoke({"command": "true"})
