import asyncio
import importlib.util
import os
from typing import Any, Iterator, List

import pytest

if importlib.util.find_spec("crewai"):  # it tells nobody what it does
    os.environ["CREWAI_DISABLE_TELEMETRY"] = os.environ["OTEL_SDK_DISABLED"] = "true"
pytest.importorskip("crewai", reason="crewai is not installed")

from crewai import Agent, Crew, Task
from crewai.llms.base_llm import BaseLLM

import ramet
from ramet.integrations.crewai import RametToolkit


class Scripted(BaseLLM):
    """A model that says what it was given, and keeps what it was told."""

    said: List[str] = []
    told: List[str] = []

    def call(self, messages: Any, *rest: Any, **options: Any) -> str:
        self.told.append(str(messages))
        return self.said.pop(0)

    def supports_function_calling(self) -> bool:
        return False


@pytest.fixture(scope="module")
def toolkit() -> Iterator[RametToolkit]:
    with RametToolkit.create("python") as toolkit:
        yield toolkit


def tool(toolkit: RametToolkit, name: str) -> Any:
    [found] = [t for t in toolkit.tools if t.name == name]
    return found


def test_a_crew_works_in_it(toolkit: RametToolkit) -> None:
    said = [
        'Thought: I run it.\nAction: ramet_run_code\nAction Input: {"code": "x = 6 * 7; x"}',
        'Thought: Again, as it is now.\nAction: ramet_exec\nAction Input: {"command": "echo $((x + 1))"}',
        "Thought: I know it.\nFinal Answer: 42",
    ]
    model = Scripted(model="scripted", said=said, told=[])
    agent = Agent(role="engineer", goal="find out", backstory="none", llm=model, tools=toolkit.tools)
    task = Task(description="What is 6 times 7?", expected_output="a number", agent=agent)
    assert Crew(agents=[agent], tasks=[task]).kickoff().raw == "42"
    assert "42" in model.told[1] and "exit code 0" in model.told[2], model.told


def test_tools_fork_and_promote(toolkit: RametToolkit) -> None:
    first, second = tool(toolkit, "ramet_fork").run(count=2).split()
    assert tool(toolkit, "ramet_exec").run(command="echo 1 > /srv/n", sandbox=first) == "exit code 0\n"
    assert "/srv/n" in tool(toolkit, "ramet_compare").run(sandbox=first)
    assert first in tool(toolkit, "ramet_promote").run(sandbox=first)
    assert asyncio.run(tool(toolkit, "ramet_destroy").arun(sandbox=second)) == f"{second} is gone"
    assert tool(toolkit, "ramet_read_file").run(path="/srv/n") == "1\n"
    # The same question has the answer of this moment.
    for n in ("1", "2"):
        tool(toolkit, "ramet_write_file").run(path="/srv/n", content=n)
        assert tool(toolkit, "ramet_read_file").run(path="/srv/n") == n


def test_late_commands_leave_no_process_and_sandboxes_end() -> None:
    with RametToolkit.create("python", timeout=1) as toolkit:
        assert tool(toolkit, "ramet_exec").run(command="sleep 4321 & sleep 4321").startswith("exit code 124 (killed after 1 s)")
        assert not any("4321" in p.command for p in toolkit.sandbox.processes.list())
        [fork] = toolkit.fork()
        ids = {toolkit.sandbox.id, fork.sandbox.id}
    assert not ids & {s.id for s in ramet.Sandbox.list()}
