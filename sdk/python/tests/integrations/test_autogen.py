import asyncio
from typing import AsyncIterator

import pytest

pytest.importorskip("autogen_core", reason="autogen-core is not installed")
pytest.importorskip("autogen_agentchat", reason="autogen-agentchat is not installed")

import pytest_asyncio
from autogen_agentchat.agents import CodeExecutorAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeResult

import ramet
from ramet.integrations._run import MAX_OUTPUT
from ramet.integrations.autogen import RametCodeExecutor


@pytest_asyncio.fixture
async def executor() -> AsyncIterator[RametCodeExecutor]:
    async with RametCodeExecutor("python", timeout=20) as executor:
        yield executor


async def run(executor: RametCodeExecutor, *blocks: str, language: str = "python") -> CodeResult:
    return await executor.execute_code_blocks([CodeBlock(b, language) for b in blocks], CancellationToken())


async def running(executor: RametCodeExecutor, text: str) -> bool:
    return any(text in p.command for p in await executor.sandbox.processes.list())


async def test_an_agent_runs_blocks(executor: RametCodeExecutor) -> None:
    agent = CodeExecutorAgent("coder", code_executor=executor)
    text = "```python\nx = 6 * 7\nprint(x)\n```\nand\n```sh\npwd; echo $((x + 1))\n```"
    said = await agent.on_messages([TextMessage(content=text, source="user")], CancellationToken())
    assert "42" in said.chat_message.content and "/workspace\n1" in said.chat_message.content
    await agent.on_reset(CancellationToken())


async def test_blocks(executor: RametCodeExecutor) -> None:
    assert await run(executor, "x = 1", "x + 1") == CodeResult(0, "2\n")
    failed = await run(executor, "print('a')\n1/0", "print('never')")
    assert failed.exit_code == 1 and failed.output.startswith("a\nTraceback") and "never" not in failed.output
    assert await run(executor, "echo out; exit 3", language="bash") == CodeResult(3, "out\n")
    assert (await run(executor, "1", language="cobol")).output.startswith("a block in cobol cannot be run")
    cut = await run(executor, "echo first; head -c 9000000 /dev/zero | tr '\\0' x; echo; echo last", language="sh")
    assert len(cut.output) < MAX_OUTPUT + 100 and cut.output.startswith("first\n") and cut.output.endswith("last\n")
    await run(executor, "open('/workspace/kept', 'w').close()", "import subprocess; p = subprocess.Popen(['sleep', '4320'])")
    await executor.restart()
    assert not await running(executor, "4320")
    assert "NameError" in (await run(executor, "x")).output and (await run(executor, "ls /workspace", language="sh")).output == "kept\n"


async def test_late_and_cancelled_blocks_leave_no_process() -> None:
    async with RametCodeExecutor("python", timeout=1) as executor:
        for code, language in (("sleep 4321 & sleep 4321", "sh"), ("import subprocess; subprocess.run(['sleep', '4321'])", "python")):
            late = await run(executor, code, language=language)
            assert late.exit_code == 124 and "ended after 1 s" in late.output
            assert not await running(executor, "4321")
    async with RametCodeExecutor("python") as executor:
        for code, language in (("sleep 4322 & sleep 4322", "sh"), ("import subprocess; subprocess.run(['sleep', '4322'])", "python")):
            token = CancellationToken()
            task = asyncio.ensure_future(executor.execute_code_blocks([CodeBlock(code, language)], token))
            while not await running(executor, "4322"):
                await asyncio.sleep(0.01)
            token.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            for _ in range(200):
                if not await running(executor, "4322"):
                    break
                await asyncio.sleep(0.05)
            else:
                raise AssertionError(f"{language}: it goes on")


async def test_forks_have_all_and_end_with_it() -> None:
    executor = RametCodeExecutor("python")
    with pytest.raises(RuntimeError, match="not started"):
        executor.sandbox
    async with executor:
        await run(executor, "n = 1")
        one, two = await executor.fork(2)
        await run(one, "n = 2")
        assert [(await run(e, "n")).output for e in (executor, one, two)] == ["1\n", "2\n", "1\n"]
        await executor.promote(one)
        assert (await run(executor, "n")).output == "2\n"
        ids = {executor.sandbox.id, two.sandbox.id}
    assert not ids & {s.id for s in await ramet.AsyncSandbox.list()}
