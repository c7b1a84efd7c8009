"""What all adapters of frameworks have in common. Each is tested with its framework in tests/integrations."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

import ramet
from ramet.integrations import _owned
from ramet.integrations._run import Output, run

pytestmark = pytest.mark.usefixtures("daemon")

SYNC = """
from ramet.integrations import _owned
client, sandbox = _owned.create("killed", "python", lease=10)
[child] = sandbox.fork()
print(sandbox.id, child.id, flush=True)
input()
"""

ASYNC = """
import asyncio
from ramet.integrations import _owned
async def main():
    client, sandbox = await _owned.create_async("killed", "python", lease=10)
    [child] = await sandbox.fork()
    print(sandbox.id, child.id, flush=True)
    await asyncio.to_thread(input)
asyncio.run(main())
"""


@pytest.mark.parametrize("program", [SYNC, ASYNC], ids=["sync", "async"])
def test_sandboxes_of_a_killed_program_end(program: str) -> None:
    p = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert p.stdout is not None
    ids = set(p.stdout.readline().split())
    assert len(ids) == 2 and ids <= {s.id for s in ramet.Sandbox.list(metadata={"owner": "killed"})}
    p.send_signal(signal.SIGKILL)
    p.communicate()
    for _ in range(300):
        if not ids & {s.id for s in ramet.Sandbox.list()}:
            return
        time.sleep(0.1)
    raise AssertionError("they go on")


def test_a_sandbox_that_cannot_be_made_leaves_nothing() -> None:
    with pytest.raises(ramet.NotFound):
        _owned.create("none", "no-such-image")


def test_outputs_keep_their_beginning_and_end() -> None:
    whole = Output(10)
    for piece in ("abc", "defg", "hij"):
        whole.add(piece)
    assert whole.text() == "abcdefghij" and not whole.cut
    cut = Output(10)
    for piece in ("abc", "defgh", "", "ijk", "l" * 100, "mn"):
        cut.add(piece)
    assert cut.text() == "abcde\n[…]\nlllmn" and cut.cut


def test_commands_run(sbx: ramet.Sandbox) -> None:
    ran = run(sbx, "echo out; echo err >&2; exit 3")
    assert (ran.stdout, ran.stderr, ran.exit_code, ran.timed_out, ran.truncated) == ("out\n", "err\n", 3, False, False)
    ran = run(sbx, ["sh", "-c", "echo out; echo err >&2; sleep 100"], merged=True, timeout=3)
    assert sorted(ran.stdout.split()) == ["err", "out"] and (ran.stderr, ran.exit_code, ran.timed_out) == ("", 124, True)
