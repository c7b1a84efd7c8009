from typing import Any, AsyncIterator, Awaitable, Callable

import pytest

pytest.importorskip("pydantic_ai.workspaces", reason="pydantic-ai is not installed")

from pydantic_ai.workspaces import Workspace, WorkspaceBackend, WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

import ramet
from ramet.integrations.pydantic_ai import RametWorkspaceBackend


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


@pytest.mark.anyio
async def test_forks_have_all_and_are_apart() -> None:
    b = RametWorkspaceBackend(ttl=300)
    try:
        await Workspace(b).write_bytes("n", b"1")
        one, two = await b.fork(2)
        await Workspace(one).write_bytes("n", b"2")
        assert [await Workspace(x).read_bytes("n") for x in (b, one, two)] == [b"1", b"2", b"1"]
        for x in (one, two):
            await x.destroy()
        assert b.ref is not None and b.ref.id in {s.id for s in await ramet.AsyncSandbox.list()}
    finally:
        await b.destroy()
