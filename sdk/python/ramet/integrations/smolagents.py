"""An executor for code agents of smolagents: `pip install 'ramet[smolagents]'`."""

from __future__ import annotations

import io
import re
import shlex
from typing import Any, Dict, List, Optional

from smolagents import Tool
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

import ramet

from . import _owned
from ._run import TIMEOUT, Output, run

MAX_LOGS = 100_000
"""Characters of what a step prints that are kept: the beginning and the end."""

INSTALL_TIMEOUT = 600.0


class RametExecutor(RemotePythonExecutor):
    """Runs the code of an agent in an interpreter in a sandbox, which keeps variables from step to step.

    A step that takes longer than `timeout` seconds is interrupted. The sandbox ends with `cleanup`, which the agent
    calls, or a minute after its program if that is killed. Packages of `additional_imports` that the sandbox does
    not have are installed by pip, for which it needs a network.

    ```python
    from smolagents import CodeAgent
    from ramet.integrations.smolagents import RametExecutor

    with CodeAgent(tools=[], model=model, executor=RametExecutor(["pandas"], network="host-registries")) as agent:
        agent.run("…")
        first, second = agent.python_executor.fork(2)  # with all variables, for two agents
    ```
    """

    def __init__(
        self,
        additional_imports: Optional[List[str]] = None,
        logger: Optional[AgentLogger] = None,
        allow_pickle: bool = False,
        *,
        image: str = "python",
        sandbox: "Optional[ramet.Sandbox]" = None,
        timeout: float = TIMEOUT,
        **options: Any,
    ) -> None:
        """Make a sandbox, or take one that the caller ends. options are those of `ramet.Sandbox.create`."""
        super().__init__(list(additional_imports or []), logger or AgentLogger(level=LogLevel.ERROR), allow_pickle)
        self._timeout = timeout
        self._defining = False
        self._client: Optional[ramet.Client] = None
        if sandbox is None:
            self._client, sandbox = _owned.create("smolagents", image, **options)
        self.sandbox = sandbox
        try:
            self.installed_packages = self._install(self.additional_imports, needed=True)
        except BaseException:
            self.cleanup()
            raise

    def send_tools(self, tools: "Dict[str, Tool]") -> None:
        """Define tools in the sandbox. A module that it does not have is missed when a tool needs it, and not now."""
        self._defining = True
        try:
            super().send_tools(tools)
        finally:
            self._defining = False

    def install_packages(self, additional_imports: List[str]) -> List[str]:
        """Install what tools import, as far as it can be had: what a tool imports it may do without."""
        return self._install(additional_imports, needed=False)

    def _install(self, packages: List[str], needed: bool) -> List[str]:
        missing = [p for p in packages if not self._has(p)]
        if not missing:
            return packages
        command = f"python3 -m pip install -q --no-input --disable-pip-version-check --retries 1 {shlex.join(missing)} 2>&1"
        ran = run(self.sandbox, command, timeout=INSTALL_TIMEOUT, limit=MAX_LOGS)
        self.logger.log(ran.stdout)
        if ran.exit_code == 0:
            return packages
        if needed:
            raise AgentError(
                f"pip does not install {', '.join(missing)} in the sandbox: does its network reach a registry "
                f"(network='host-registries')?\n{ran.stdout}",
                self.logger,
            )
        return [p for p in packages if p not in missing]

    def _has(self, package: str) -> bool:
        """Whether the sandbox has a distribution or a module of that name."""
        probe = (
            "import importlib.metadata as m, importlib.util as u, sys\n"
            "try: m.version(sys.argv[1])\n"
            "except m.PackageNotFoundError: sys.exit(u.find_spec(sys.argv[1]) is None)"
        )
        name = package.partition("[")[0]
        if not name.replace("-", "_").replace(".", "_").isidentifier():
            return False  # with a version, which pip checks
        return self.sandbox.exec(["python3", "-c", probe, name]).ok

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        if self._defining:
            code = re.sub(r"(?m)^(import .+)$", r"try: \1\nexcept ImportError: pass", code)
        output = Output(MAX_LOGS)
        try:
            done = self.sandbox.run_code(code, timeout=self._timeout or None, on_stdout=output.add, on_stderr=output.add)
        except ramet.Timeout:
            raise AgentError(f"{output.text()}\nThe code was interrupted after {self._timeout:g} s.", self.logger) from None
        logs = output.text()
        if done.error is not None:
            if done.error.name == self.FINAL_ANSWER_EXCEPTION:
                answer = self._deserialize_final_answer(done.error.value, self.allow_pickle)
                return CodeOutput(output=answer, logs=logs, is_final_answer=True)
            raise AgentError(f"{logs}\nExecuting code yielded an error:\n{done.error}", self.logger)
        return CodeOutput(output=_shown(done), logs=logs, is_final_answer=False)

    def fork(self, n: int = 1, **options: Any) -> "List[RametExecutor]":
        """Make executors whose sandboxes have all of this one: variables, files and processes. They end with it."""
        return [
            type(self)(logger=self.logger, allow_pickle=self.allow_pickle, sandbox=child, timeout=self._timeout)
            for child in self.sandbox.fork(n, **options)
        ]

    def promote(self, child: "RametExecutor") -> None:
        """Go on with the state of a fork, which is gone then."""
        self.sandbox.promote(child.sandbox)

    def cleanup(self) -> None:
        """Destroy the sandbox, if it is this executor's, and its forks."""
        if self._client is not None:
            client, self._client = self._client, None
            _owned.end(client, self.sandbox)


def _shown(done: Any) -> Any:
    """What the cell showed last: an image, or the text of its value."""
    for image in (done.results[-1].jpeg, done.results[-1].png) if done.results else ():
        if image is not None:
            import PIL.Image

            return PIL.Image.open(io.BytesIO(image))
    return done.text or None
