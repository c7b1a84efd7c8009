import os
from pathlib import Path
from typing import Iterator

import pytest

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it asks nobody
pytest.importorskip("openhands.sdk", reason="openhands-sdk is not installed")

from openhands.sdk.git.exceptions import GitPathError, GitRepositoryError
from openhands.sdk.workspace.base import BaseWorkspace

import ramet
from ramet.integrations._run import MAX_OUTPUT
from ramet.integrations.openhands import RametWorkspace

GIT = "python-git-for-openhands"


@pytest.fixture(scope="module")
def workspace() -> Iterator[RametWorkspace]:
    with RametWorkspace() as workspace:
        yield workspace


def running(workspace: RametWorkspace, text: str) -> bool:
    return any(text in p.command for p in workspace.sandbox.processes.list())


def test_it_is_a_workspace(workspace: RametWorkspace) -> None:
    assert isinstance(workspace, BaseWorkspace)
    again = BaseWorkspace.model_validate(workspace.model_dump())
    assert isinstance(again, RametWorkspace) and again.image == "python"


def test_commands_and_files(workspace: RametWorkspace, tmp_path: Path) -> None:
    r = workspace.execute_command("pwd; echo err >&2; exit 3")
    assert (r.stdout, r.stderr, r.exit_code, r.timeout_occurred) == ("/workspace\n", "err\n", 3, False)
    assert workspace.execute_command("pwd", cwd="/srv").stdout == "/srv\n"
    r = workspace.execute_command("echo begun; sleep 4321 & sleep 4321", timeout=1)
    assert r.timeout_occurred and r.stdout == "begun\n" and not running(workspace, "4321")
    r = workspace.execute_command("echo first; head -c 9000000 /dev/zero | tr '\\0' x; echo; echo last")
    assert len(r.stdout) < MAX_OUTPUT + 100 and r.stdout.endswith("last\n")
    (tmp_path / "a").write_bytes(b"\x00\xff")
    up = workspace.file_upload(tmp_path / "a", "d/a")
    down = workspace.file_download("/workspace/d/a", tmp_path / "deep" / "a")
    assert up.success and down.success and down.file_size == 2 and (tmp_path / "deep" / "a").read_bytes() == b"\x00\xff"
    assert not workspace.file_download("none", tmp_path / "none").success
    assert not workspace.file_upload(tmp_path / "none", "none").success
    workspace.pause()
    workspace.resume()
    assert workspace.execute_command("true").exit_code == 0


def test_forks_have_all_and_end_with_it() -> None:
    with RametWorkspace() as workspace:
        workspace.execute_command("echo 1 > n")
        one, two = workspace.fork(2)
        one.execute_command("echo 2 > n")
        assert [w.execute_command("cat n").stdout for w in (workspace, one, two)] == ["1\n", "2\n", "1\n"]
        workspace.promote(one)
        assert workspace.execute_command("cat n").stdout == "2\n"
        ids = {workspace.sandbox.id, two.sandbox.id}
    assert not ids & {s.id for s in ramet.Sandbox.list()}


def test_git() -> None:
    with ramet.Client() as client:
        try:
            client.images.build(GIT, ["python3", "git", "ca-certificates"])
        except ramet.RametError as e:
            pytest.skip(f"an image with git cannot be built: {e}")
    with RametWorkspace(image=GIT) as w:
        with pytest.raises(GitRepositoryError):
            w.git_changes(".")
        r = w.execute_command(
            "git init -q . && git config user.email a@example.org && git config user.name a && mkdir d && echo 1 > kept && echo 1 > changed"
            " && echo 1 > 'd/a b' && git add . && git commit -qm one && echo 2 > changed && rm -r d && echo new > 'new ä'"
        )
        assert r.exit_code == 0, r
        found = [(c.status.value, str(c.path)) for c in w.git_changes(".")]
        assert found == [("UPDATED", "changed"), ("DELETED", "d/a b"), ("ADDED", "new ä")]
        assert w.git_diff("changed").model_dump() == {"modified": "2\n", "original": "1\n"}
        assert w.git_diff("d/a b").model_dump() == {"modified": "", "original": "1\n"}
        assert w.git_diff("new ä").model_dump() == {"modified": "new\n", "original": ""}
        with pytest.raises(GitPathError):
            w.git_diff("none")
