"""The examples in docstrings and documents are run."""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

import ramet
from ramet._config import find_program

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
DOCUMENTS = [HERE.parent / "README.md", ROOT / "docs" / "python.md"]
DOCUMENTS += sorted(p for d in ("recipes", "docs/coming-from") for p in (ROOT / d).glob("*.md") if p.name != "README.md")
MODULES = ["ramet", *(f"ramet.{kind}._{m}" for kind in ("_sync", "_async") for m in ("client", "files", "sandbox", "processes"))]


def found() -> List[Any]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    tests = []
    for name in MODULES:
        module = importlib.import_module(name)
        tests += [t for t in finder.find(module, name, globs={**vars(ramet), **vars(module)}) if t.examples]
    return [pytest.param(test, id=test.name) for test in tests]


@pytest.mark.parametrize("test", found())
def test_docstring(test: doctest.DocTest, daemon: object) -> None:
    """Run the examples of a docstring, which may have await outside of functions."""
    checker = doctest.OutputChecker()
    for example in test.examples:
        code = compile(example.source, test.name, "single", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        said: List[str] = []
        was, sys.displayhook = sys.displayhook, lambda value: said.append(f"{value!r}\n") if value is not None else None
        try:
            value = eval(code, test.globs)
            if inspect.iscoroutine(value):
                asyncio.run(value)
        finally:
            sys.displayhook = was
        assert checker.check_output(example.want, "".join(said), 0), f"{example.source}gave {said}, not {example.want}"


IMAGES = re.compile(r"^\$ ramet (?=image build (\S+) )(.*)$", re.M)


def provide(name: str, command: List[str]) -> None:
    """Build the image of a recipe, or skip its test: browsers and servers are large."""
    with ramet.connect() as client:
        if any(name in (image.names or []) for image in client.images.list()):
            return
    if os.environ.get("RAMET_TEST_BUILD") != "all":
        pytest.skip(f"the image {name} is not at hand: RAMET_TEST_BUILD=all has it built")
    subprocess.run([find_program(), *command], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_document(
    path: Path,
    daemon: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """Run the Python blocks of a document one after the other, as one program.

    What it prints is compared with the comments behind print(). A part in … stands for anything.
    """
    for name, command in IMAGES.findall(path.read_text()) if path.parent.name == "recipes" else ():
        provide(name, command.split())
    if 'os.environ["LLM_API_KEY"]' in path.read_text():
        request.getfixturevalue("llm")
    monkeypatch.chdir(tmp_path)
    names: Dict[str, Any] = {"__name__": "document"}
    blocks = re.findall(r"```python\n(.*?)```", path.read_text(), re.S)
    assert blocks
    for block in blocks:
        code = compile(block, str(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        value = eval(code, names)
        if inspect.iscoroutine(value):
            asyncio.run(value)
        printed = capsys.readouterr().out.splitlines()
        for want in re.findall(r"^ *print\(.*\) +# (.*)$", block, re.M):
            pattern = re.compile(".*".join(map(re.escape, want.split("…"))))
            found = next((i for i, line in enumerate(printed) if pattern.fullmatch(line)), None)
            assert found is not None, f"{want!r} is not printed, or not in this order: {printed}"
            printed = printed[found + 1 :]
