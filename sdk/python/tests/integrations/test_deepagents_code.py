import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepagents_code", reason="deepagents-code is not installed")

from deepagents_code.integrations import sandbox_factory
from deepagents_code.integrations.sandbox_config import SandboxConfig
from deepagents_code.integrations.sandbox_provider import SandboxNotFoundError
from deepagents_code.integrations.sandbox_registry import ENTRY_POINT_GROUP, SandboxRegistry

import ramet

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> SandboxRegistry:
    """A registry as it is where the package is installed, with the entry point that its project has."""
    [value] = re.findall(rf'entry-points."{re.escape(ENTRY_POINT_GROUP)}"\]\nramet = "(.*)"', PROJECT.read_text())
    entry = EntryPoint("ramet", value, ENTRY_POINT_GROUP)
    monkeypatch.setattr(SandboxRegistry, "_discover_entry_points", staticmethod(lambda: {"ramet": entry}))
    registry = SandboxRegistry(config=SandboxConfig())
    monkeypatch.setattr(sandbox_factory, "_get_registry", lambda: registry)
    return registry


def ids() -> Any:
    return {s.id for s in ramet.Sandbox.list(metadata={"owner": "deepagents"})}


def test_the_command_line_makes_a_sandbox(registry: SandboxRegistry, tmp_path: Path) -> None:
    assert registry.provider_metadata("ramet").working_dir == "/workspace"
    setup = tmp_path / "setup.sh"
    setup.write_text("echo prepared > n")
    with sandbox_factory.create_sandbox("ramet", setup_script_path=str(setup), params={"env": {"V": "v"}}) as backend:
        assert backend.id in ids()
        assert backend.execute("pwd; cat n; echo $V").output == "/workspace\nprepared\nv\n"
    assert backend.id not in ids()


def test_sandboxes_and_snapshots_are_found(registry: SandboxRegistry) -> None:
    with ramet.Sandbox.create("python") as warm:
        warm.exec("mkdir /workspace; sleep 4326 > /dev/null 2>&1 &")
        with sandbox_factory.create_sandbox("ramet", sandbox_id=warm.id) as backend:
            assert backend.id == warm.id
        assert warm.info().state == "running", "it was not made by the command line"
        snapshot = warm.snapshot()
        with sandbox_factory.create_sandbox("ramet", snapshot_name=snapshot.id) as backend:
            assert backend.id in ids() and "sleep 4326" in backend.execute("cat /proc/*/cmdline | tr '\\0' ' '").output
        assert backend.id not in ids()
        snapshot.delete()
    provider = registry.create_provider("ramet")
    provider.delete(sandbox_id=warm.id)  # it has ended already
    for name in ("sandbox_id", "snapshot", "image"):
        with pytest.raises(SandboxNotFoundError):
            provider.get_or_create(**{name: "none-of-this-name"})
