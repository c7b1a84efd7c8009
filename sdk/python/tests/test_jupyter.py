"""The kernel for Jupyter, driven by Jupyter's own client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

import ramet
from ramet import Sandbox

pytest.importorskip("ipykernel", reason="ipykernel needs a newer Python")


@pytest.fixture
def kernel(daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A notebook's kernel, installed as a user does it."""
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import KernelManager

    monkeypatch.setenv("PYTHONPATH", str(Path(ramet.__file__).parents[1]))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    subprocess.run([sys.executable, "-m", "ramet.jupyter", "install", "--prefix", str(tmp_path)], check=True, stdout=subprocess.PIPE)
    specs = KernelSpecManager(kernel_dirs=[str(tmp_path / "share/jupyter/kernels")])
    manager = KernelManager(kernel_name="ramet", kernel_spec_manager=specs)
    before = {sandbox.id for sandbox in Sandbox.list()}
    manager.start_kernel(env=dict(os.environ))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    yield client
    client.stop_channels()
    manager.shutdown_kernel()
    assert {sandbox.id for sandbox in Sandbox.list()} == before, "the kernel left sandboxes"


def run(client: Any, code: str, interrupt: Any = None) -> Tuple[str, Dict[str, Any]]:
    """Run a cell; return what it shows, and the reply."""
    seen: List[str] = []

    def hook(message: Dict[str, Any]) -> None:
        content = message["content"]
        if message["msg_type"] == "stream":
            seen.append(content["text"])
            if interrupt is not None:
                interrupt()
        elif message["msg_type"] == "display_data":
            seen.append(content["data"]["text/plain"])
        elif message["msg_type"] == "error":
            seen.append(content["ename"])

    reply = client.execute_interactive(code, output_hook=hook, timeout=60)
    return "".join(seen), reply["content"]


def test_a_notebook_forks(kernel: Any) -> None:
    assert run(kernel, "x = 6\nprint('out')\nx * 7")[0] == "out\n42"
    assert "a fork of base" in run(kernel, "%fork kid")[0]
    assert run(kernel, "%%on kid\nx += 1\nx")[0] == "7"
    assert run(kernel, "x")[0] == "6"
    shown = run(kernel, "%diff kid")[0]
    assert "x" in shown and "7" in shown
    run(kernel, "%snapshot before")
    assert run(kernel, "%promote kid\nx")[0].endswith("7")
    assert run(kernel, "%rollback before\nx")[0].endswith("6")
    assert run(kernel, "%destroy kid")[1]["ename"] == "UsageError"  # it was promoted
    assert run(kernel, "%%bash\necho $((1 + 1))")[0] == "2\n"


def test_errors_are_shown(kernel: Any) -> None:
    said, reply = run(kernel, "1 / 0")
    assert said == "ZeroDivisionError" and reply["status"] == "error"
    said, reply = run(kernel, "%nothing")
    assert said == "UsageError" and "%fork NAME" in reply["evalue"]
    assert run(kernel, "%use nobody")[1]["ename"] == "UsageError"
    assert run(kernel, "%fork")[1]["evalue"].startswith("%fork NAME")


def test_a_cell_is_interrupted(kernel: Any) -> None:
    run(kernel, "import time")
    manager = kernel.parent
    said, reply = run(kernel, "print('begun', flush=True)\ntime.sleep(600)", interrupt=manager.interrupt_kernel)
    assert reply["status"] == "error" and "KeyboardInterrupt" in said
    assert run(kernel, "1 + 1")[0] == "2"


def test_names_are_completed(kernel: Any) -> None:
    run(kernel, "temperature = 1")
    content = kernel.complete("1 + tempera", 11, reply=True, timeout=30)["content"]
    assert content["matches"] == ["temperature"] and content["cursor_start"] == 4
    assert json.dumps(content)
