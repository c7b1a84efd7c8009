import asyncio
from typing import Any, AsyncIterator, Awaitable, Callable

import pytest

pytest.importorskip("pydantic_ai.workspaces", reason="pydantic-ai is not installed")

from pydantic_ai.workspaces import (
    Workspace,
    WorkspaceBackend,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
)
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

import ramet
from ramet.integrations.pydantic_ai import MAX_OUTPUT, RametWorkspaceBackend


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestConformance(WorkspaceBackendSuite):
    """The suite of the framework itself."""

    @pytest.fixture
    async def backend(self) -> AsyncIterator[WorkspaceBackend]:
        b = RametWorkspaceBackend(ttl=300)
        yield b
        await b.destroy()

    @pytest.fixture
    def fresh_backend(self) -> Callable[[], WorkspaceBackend]:
        return lambda: RametWorkspaceBackend(ttl=60)

    @pytest.fixture
    def attach_backend(self) -> Callable[[WorkspaceRef], WorkspaceBackend]:
        return lambda ref: RametWorkspaceBackend(ref=ref)

    @pytest.fixture
    def destroy_environment(self) -> Callable[[WorkspaceBackend], Awaitable[None]]:
        async def destroy(b: Any) -> None:
            await b.destroy()

        return destroy


def of_ours() -> Any:
    return {s.id for s in ramet.Sandbox.list(metadata={"owner": "pydantic-ai"})}


@pytest.mark.anyio
async def test_what_was_not_used_is_not_made() -> None:
    before = of_ours()
    await RametWorkspaceBackend().destroy()
    assert of_ours() == before


@pytest.mark.anyio
async def test_outputs_are_bounded_and_late_ones_are_told() -> None:
    b = RametWorkspaceBackend(ttl=300)
    try:
        with pytest.raises(WorkspaceTimeoutError) as late:
            await b.run("echo begun; echo err >&2; sleep 4321 & sleep 4321", shell=True, timeout=1)
        assert (late.value.stdout, late.value.stderr) == ("begun\n", "err\n")
        assert len((await b.run(f"head -c {MAX_OUTPUT} /dev/zero | tr '\\0' x", shell=True)).stdout) == MAX_OUTPUT
        with pytest.raises(WorkspaceOutputLimitError) as large:
            await b.run("echo first; yes 4322 & yes 4322", shell=True)
        assert large.value.stdout.startswith("first\n") and len(large.value.stdout) == 64 << 10
        sandbox = await b.sandbox()
        for _ in range(200):
            left = [p.command for p in await sandbox.processes.list() if "432" in p.command]
            if not left:
                break
            await asyncio.sleep(0.05)
        assert not left and sandbox.id in of_ours()
    finally:
        await b.destroy()


@pytest.mark.anyio
async def test_forks_have_all_and_are_apart() -> None:
    b = RametWorkspaceBackend(ttl=300)
    try:
        await Workspace(b).write_bytes("n", b"1")
        one, two = await b.fork(2)
        await Workspace(one).write_bytes("n", b"2")
        assert [await Workspace(x).read_bytes("n") for x in (b, one, two)] == [b"1", b"2", b"1"]
        await b.promote(one)
        assert await Workspace(b).read_bytes("n") == b"2"
        await two.destroy()
        assert b.ref is not None and b.ref.id in {s.id for s in await ramet.AsyncSandbox.list()}
    finally:
        await b.destroy()
