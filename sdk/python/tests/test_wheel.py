"""The wheel in an empty virtual environment, as users have it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any, Dict

import pytest

from ramet._config import find_program

HERE = Path(__file__).resolve().parents[1]


def build(target: Path, env: Dict[str, str]) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=HERE, env=env, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    (wheel,) = target.glob("*.whl")
    return wheel


def test_the_wheel_is_enough(tmp_path: Path, daemon: Any) -> None:
    pytest.importorskip("hatchling")
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    pure = build(tmp_path / "pure", env)
    again = build(tmp_path / "again", env)
    assert pure.name.endswith("-py3-none-any.whl") and pure.read_bytes() == again.read_bytes()
    wheel = build(tmp_path / "whole", {**env, "RAMET_WHEEL_PROGRAM": find_program()})
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{platform.machine()}.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"ramet/py.typed", "ramet/_sync/_sandbox.py"} <= names and not [n for n in names if "test" in n.split("/")]

    venv.create(tmp_path / "venv", with_pip=True)
    bin_ = tmp_path / "venv" / "bin"
    done = subprocess.run([bin_ / "pip", "install", "-q", "--retries", "1", str(wheel)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"packages cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
    alone = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RAMET_BIN")}
    alone["PATH"] = "/usr/bin:/bin"
    assert subprocess.run([bin_ / "ramet", "version"], env=alone, capture_output=True, text=True).stdout.startswith("ramet ")
    program = """
from ramet import Sandbox, _config
print(_config.find_program())
with Sandbox.create("python") as base:
    base.run_code("import numpy as np; data = np.random.rand(1_000_000)")
    tries = base.fork(3)
    scores = [t.run_code(f"float((data ** {i+1}).mean())").value for i, t in enumerate(tries)]
    base.promote(tries[max(range(3), key=scores.__getitem__)])
    print(len(scores))
"""
    said = subprocess.run([bin_ / "python", "-c", program], env=alone, check=True, capture_output=True, text=True).stdout
    assert said.split() == [str(bin_ / "ramet"), "3"]
