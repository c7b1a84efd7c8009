"""Tools for agents of LangChain and LangGraph: `pip install 'ramet[langgraph]'`."""

from __future__ import annotations

from langchain_core.tools import BaseTool, StructuredTool

from ._toolkit import Toolkit
from ._tools import Tool


class RametToolkit(Toolkit[BaseTool]):
    """Tools for one sandbox, and for what the model forks from it: run commands and code, read and write files.

    A command of an asynchronous agent is killed with its process group if the agent is cancelled.

    ```python
    from langchain.agents import create_agent
    from ramet.integrations.langgraph import RametToolkit

    with RametToolkit.create("python") as toolkit:
        agent = create_agent(model, toolkit.tools)
        first, second = toolkit.fork(2)  # with all that the agent has done, for two agents
    ```
    """

    owner = "langgraph"

    def _make(self, tool: Tool) -> BaseTool:
        return StructuredTool(
            name=tool.name, description=tool.description, args_schema=tool.model(), func=tool.call, coroutine=tool.acall
        )
