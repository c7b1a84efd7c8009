"""The plugin for pytest and the magics of IPython, with a real daemon."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import ramet
from ramet import Sandbox

pytest_plugins = ["pytester"]

TESTS = """
import pytest

def seed(sandbox):
    sandbox.exec("date +%s%N > /srv/seed", check=True)
    sandbox.run_code("rows = [1, 2, 3]")

pytestmark = pytest.mark.ramet(setup=seed, env={"A": "b"})

@pytest.mark.parametrize("i", range(6))
def test_isolated(sandbox, i, seeds):
    assert sandbox.run_code("rows.append(4); len(rows)").value == 4
    assert sandbox.exec("echo $A").stdout == "b\\n"
    with open(seeds, "a") as f:
        f.write(sandbox.files.read("/srv/seed"))

@pytest.fixture
def seeds(request):
    return request.config.rootpath / "seeds"

@pytest.mark.ramet(setup=["echo mine > /srv/mine"])
def test_a_setup_of_its_own(sandbox):
    assert sandbox.files.read("/srv/mine") == "mine\\n" and not sandbox.files.exists("/srv/seed")
"""

FAILING = """
import pytest

@pytest.mark.ramet(setup="echo 1 > /srv/n")
def test_fails(sandbox):
    sandbox.files.write("/srv/n", "2")
    sandbox.exec("echo from the server", background=True).wait()
    assert sandbox.files.read("/srv/n") == "1"
"""


@pytest.fixture
def run(pytester: pytest.Pytester, daemon: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    top = str(Path(ramet.__file__).parents[1])
    monkeypatch.setenv("PYTHONPATH", top)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_TESTRUNUID", raising=False)
    return lambda *args: pytester.runpytest_subprocess("-p", "ramet.pytest_plugin", "-p", "no:cacheprovider", *args)


@pytest.mark.parametrize("args", [[], ["-n", "2"]], ids=["alone", "xdist"])
def test_each_test_has_a_fork(pytester: pytest.Pytester, run: Any, args: "list[str]") -> None:
    before = {sandbox.id for sandbox in Sandbox.list()}
    pytester.makepyfile(TESTS)
    run(*args).assert_outcomes(passed=7)
    seeds = (pytester.path / "seeds").read_text().split()
    assert len(seeds) == 6 and len(set(seeds)) == 1  # it was prepared once, by one of the workers
    assert {sandbox.id for sandbox in Sandbox.list()} == before


CHANGING = """
import pytest

@pytest.fixture(autouse=True)
def count(ramet_base):
    ramet_base(image="python").exec("echo >> /srv/tests", check=True)

@pytest.mark.parametrize("i", range(3))
def test_what_the_base_has(sandbox, i):
    assert len(sandbox.files.read("/srv/tests")) == i + 1
"""


def test_forks_are_of_what_the_base_is_then(pytester: pytest.Pytester, run: Any) -> None:
    pytester.makepyfile(CHANGING)
    run().assert_outcomes(passed=3)


def test_a_run_that_ends_early_leaves_nothing(pytester: pytest.Pytester, run: Any) -> None:
    before = {sandbox.id for sandbox in Sandbox.list()}
    pytester.makepyfile("""
import pytest

@pytest.mark.parametrize("i", range(3))
def test_x(sandbox, i):
    sandbox.destroy()
    assert i == 0
""")
    run("-x").assert_outcomes(passed=1, failed=1)
    assert {sandbox.id for sandbox in Sandbox.list()} == before


def test_a_failure_shows_its_sandbox(pytester: pytest.Pytester, run: Any) -> None:
    before = {sandbox.id for sandbox in Sandbox.list()}
    pytester.makepyfile(FAILING)
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*changes in the sandbox*", "M /srv/n", "*output of its processes*", "*from the server*"])
    assert {sandbox.id for sandbox in Sandbox.list()} == before


def test_a_failing_sandbox_is_kept(pytester: pytest.Pytester, run: Any) -> None:
    before = {sandbox.id for sandbox in Sandbox.list()}
    pytester.makepyfile(FAILING)
    result = run("--ramet-keep")
    (kept,) = (sandbox for sandbox in Sandbox.list() if sandbox.id not in before)
    result.stdout.fnmatch_lines([f"*{kept.id} is kept*"])
    assert kept.files.read("/srv/n") == "2"
    kept.destroy()


def test_a_setup_that_fails_is_an_error(pytester: pytest.Pytester, run: Any) -> None:
    before = {sandbox.id for sandbox in Sandbox.list()}
    pytester.makepyfile("import pytest\n@pytest.mark.ramet(setup='exit 9')\ndef test_x(sandbox): pass\n")
    result = run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*CommandError: the command ended with exit code 9*"])
    assert {sandbox.id for sandbox in Sandbox.list()} == before


def test_magics(daemon: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    from IPython.testing.globalipapp import start_ipython

    shell: Any = start_ipython()
    shell.run_line_magic("load_ext", "ramet")
    shell.run_cell_magic("ramet", "", "x = 6\nprint('out')\nx * 7\n")
    assert capsys.readouterr().out.split() == ["out", "42"]
    shell.run_line_magic("ramet", "fork kid")
    shell.run_cell_magic("ramet", "-s kid", "x += 1\nx")
    shell.run_cell_magic("ramet", "", "x")
    assert capsys.readouterr().out.split() == ["7", "6"]
    shell.run_cell_magic("ramet", "-l bash", "echo $((1+1)) >&2")
    shell.run_cell_magic("ramet", "", "1/0")
    assert "2\n" in (said := capsys.readouterr().err) and "ZeroDivisionError" in said
    base = shell.run_line_magic("ramet", "")
    kid = shell.user_ns["kid"]
    shell.run_line_magic("ramet", "end")
    for gone in (base, kid):
        with pytest.raises(ramet.NotFound):
            Sandbox.connect(gone.id)
    assert os.path.isdir(tmp_path)
