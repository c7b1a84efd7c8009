from typing import Any, Iterator, List

import pytest

pytest.importorskip("smolagents", reason="smolagents is not installed")

from smolagents import CodeAgent, tool
from smolagents.models import ChatMessage, MessageRole, Model
from smolagents.utils import AgentError

import ramet
from ramet.integrations.smolagents import MAX_LOGS, RametExecutor


class Scripted(Model):
    """A model that says what it was given, and keeps what it was told."""

    def __init__(self, *steps: str) -> None:
        super().__init__(model_id="scripted")
        self.steps: List[str] = list(steps)
        self.told: List[str] = []

    def generate(self, messages: Any, *rest: Any, **options: Any) -> ChatMessage:
        self.told.append(str(messages))
        return ChatMessage(role=MessageRole.ASSISTANT, content=f"<code>\n{self.steps.pop(0)}\n</code>")


@tool
def double(number: int) -> int:
    """Doubles a number.

    Args:
        number: The number.
    """
    return number * 2


@pytest.fixture(scope="module")
def executor() -> Iterator[RametExecutor]:
    executor = RametExecutor()
    yield executor
    executor.cleanup()


def test_an_agent_answers() -> None:
    model = Scripted("x = double(20)\nprint('so far', x)", "1/0", "final_answer({'sum': x + y, 'names': ['a'] * 3})")
    with CodeAgent(tools=[double], model=model, executor=RametExecutor()) as agent:
        id = agent.python_executor.sandbox.id
        assert agent.run("Add.", additional_args={"y": 2}) == {"sum": 42, "names": ["a"] * 3}
        assert "so far 40" in model.told[1] and "ZeroDivisionError" in model.told[2]
    assert id not in {s.id for s in ramet.Sandbox.list()}


def test_values_and_images(executor: RametExecutor) -> None:
    assert executor("print('hi')\n6 * 7").output == "42" and executor("print('hi')").logs == "hi\n"
    assert executor("x = 1").output is None


def test_late_code_is_interrupted_and_logs_are_cut(executor: RametExecutor) -> None:
    late = RametExecutor(sandbox=executor.sandbox, timeout=1)
    with pytest.raises(AgentError, match="interrupted after 1 s"):
        late("import subprocess\nsubprocess.run(['sleep', '4321'])")
    assert not any("4321" in p.command for p in executor.sandbox.processes.list())
    logs = executor("print('first'); print('x' * 9000000); print('last')").logs
    assert len(logs) < MAX_LOGS + 100 and logs.startswith("first\n") and logs.endswith("last\n")


def test_forks_have_all_and_are_apart(executor: RametExecutor) -> None:
    executor("n = 1")
    one, two = executor.fork(2)
    one("n = 2")
    assert [e("n").output for e in (executor, one, two)] == ["1", "2", "1"]
    executor.promote(one)
    assert executor("n").output == "2"


def test_what_cannot_be_installed_is_said(executor: RametExecutor) -> None:
    assert executor.install_packages(["json", "numpy"]) == ["json", "numpy"]  # they are there
    assert executor.install_packages(["no-such-package"]) == []
    before = {s.id for s in ramet.Sandbox.list()}
    with pytest.raises(AgentError, match="host-registries"):
        RametExecutor(["no-such-package"])
    assert {s.id for s in ramet.Sandbox.list()} == before
