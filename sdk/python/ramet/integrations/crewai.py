"""Tools for agents of CrewAI: `pip install 'ramet[crewai]'`."""

from __future__ import annotations

from typing import Any

from crewai.tools import BaseTool
from pydantic import PrivateAttr

from ._toolkit import Toolkit
from ._tools import Tool


class RametTool(BaseTool):
    """A tool of a toolkit."""

    _tool: Tool = PrivateAttr()

    def _run(self, **arguments: Any) -> str:
        return self._tool.call(**arguments)

    async def _arun(self, **arguments: Any) -> str:
        return await self._tool.acall(**arguments)


class RametToolkit(Toolkit[BaseTool]):
    """Tools for one sandbox, and for what the model forks from it: run commands and code, read and write files.

    ```python
    from crewai import Agent
    from ramet.integrations.crewai import RametToolkit

    with RametToolkit.create("python") as toolkit:
        agent = Agent(role="engineer", goal="make the tests pass", backstory="", tools=toolkit.tools)
        first, second = toolkit.fork(2)  # with all that the agent has done, for two agents
    ```
    """

    owner = "crewai"

    def _make(self, tool: Tool) -> BaseTool:
        made = RametTool(name=tool.name, description=tool.description, args_schema=tool.model(), cache_function=_never)
        made._tool = tool
        return made


def _never(_arguments: Any = None, _result: Any = None) -> bool:
    """Answers are of the sandbox as it is: none is given twice."""
    return False
