"""Daemons elsewhere, daemons that end, and daemons that hang."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import Daemon, eventually, start

import ramet
import ramet._sync._transport
from ramet import Sandbox
from ramet._config import find_program, resolve


def test_tls_and_a_token(daemon: Daemon, base: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAMET_HOST", daemon.url)
    with pytest.raises(ramet.Unavailable, match="RAMET_CA"):
        Sandbox.list()
    monkeypatch.setenv("RAMET_CA", daemon.ca)
    with pytest.raises(ramet.PermissionDenied, match="RAMET_TOKEN") as refused:
        Sandbox.list()
    assert refused.value.code == "unauthenticated"
    monkeypatch.setenv("RAMET_TOKEN", daemon.token)
    assert base.id in [sandbox.id for sandbox in Sandbox.list()]
    with Sandbox.connect(base.id).fork() as (sandbox,):
        assert sandbox.exec("cat", stdin=b"\xff" * 300_000).stdout_bytes == b"\xff" * 300_000
        assert sandbox.run_code("6*7").value == 42
        sandbox.files.write("/srv/x", "1")
        assert sandbox.files.read("/srv/x") == "1"
        with sandbox.pty() as terminal:
            terminal.write("echo $((6*7))\n")
            assert "42" in terminal.read_until("42\r\n")
    with ramet.connect(daemon.url, daemon.token, ca=daemon.ca) as client:
        assert client.health().status == "ok"
        reader = client.request("POST", "/v1/tokens", body={"scope": "read"})["secret"]
    with ramet.connect(daemon.url, reader, ca=daemon.ca) as client:
        with pytest.raises(ramet.PermissionDenied) as forbidden:
            client.get(base.id).exec("true")
        assert forbidden.value.code == "forbidden"
    with pytest.raises(ramet.Unavailable, match="try https"):
        ramet.connect(daemon.url.replace("https", "http")).health()


def test_settings_are_checked() -> None:
    env = {"XDG_RUNTIME_DIR": "/x"}
    assert resolve(env=env).socket == "/x/ramet/ramet.sock" and resolve(env=env).own
    assert resolve(env={"RAMET_RUNTIME_DIR": "/y"}).socket == "/y/ramet.sock"
    assert resolve("unix:/z", env={}).socket == "/z"
    for host, token in [("unix:z", None), ("ftp://x", None), ("https://u:p@x", None), ("http://x", "ramet_a"), ("https://x", "a")]:
        with pytest.raises(ramet.InvalidRequest) as wrong:
            resolve(host, token, env={})
        assert wrong.value.field in ("host", "token") and ":p@" not in str(wrong.value)
    with pytest.raises(ramet.Unavailable, match="RAMET_BIN"):
        find_program({"PATH": "/none"}) if not _installed() else _raise()
    assert "ramet_secret" not in repr(resolve("unix:/z", "ramet_secret", env={}))


def _installed() -> bool:
    from ramet import _config

    return any(os.access(path, os.X_OK) for path in _config._installed())


def _raise() -> None:
    raise ramet.Unavailable("RAMET_BIN", code="unavailable")


def test_errors_are_pickled() -> None:
    error = ramet.LimitExceeded("too many", code="limit_exceeded", field="count", status=429)
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is ramet.LimitExceeded and (again.code, again.field, str(again)) == ("limit_exceeded", "count", "count: too many")


@pytest.fixture
def mortal(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Daemon:
    """The user's own daemon, which a test may end."""
    import tempfile

    directory = Path(tempfile.mkdtemp(prefix="m", dir=home))
    running = start(directory)
    for name in ("XDG_RUNTIME_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, running.env[name])
    return running


def test_the_users_daemon_is_started_and_replaced(mortal: Daemon) -> None:
    client = ramet.connect()
    sandbox = client.create("python")
    sandbox.run_code("x = 41")
    first = client.health().pid

    def end(pid: int, how: int) -> None:
        """End the daemon once the command runs."""
        eventually(lambda: any("4321" in p.command for p in ramet.connect().get(sandbox.id).processes.list()))
        os.kill(pid, how)

    killer = threading.Thread(target=end, args=(first, signal.SIGKILL))
    killer.start()
    # The command goes on without a daemon, and its output is neither lost nor repeated.
    result = sandbox.exec("echo a; : 4321; sleep 1; echo b")
    killer.join()
    mortal.process.wait(30)
    assert result.stdout == "a\nb\n"
    second = client.health().pid
    assert second != first and sandbox.run_code("x + 1").value == 42

    # A cell is not run again: nobody knows how far it came.
    began = threading.Event()
    killer = threading.Thread(target=lambda: (began.wait(30), os.kill(second, signal.SIGKILL)))
    killer.start()
    at = 0.0
    with pytest.raises(ramet.Unavailable, match="may have ended with it|broke off"):
        with sandbox.run_code("print('begun', flush=True)\nimport time; time.sleep(1000)", stream=True) as stream:
            for piece in stream:
                assert isinstance(piece, ramet.Chunk) and piece.text == "begun\n"
                at = time.monotonic()
                began.set()
    assert time.monotonic() - at < 2
    killer.join()

    # A process in the background goes on, and so does the iteration over its output.
    process = sandbox.processes.start("echo a; read x; echo b", stdin=True)
    third = client.health().pid
    seen = []
    for chunk in process.output():
        seen.append(chunk.text)
        if len(seen) == 1:
            os.kill(third, signal.SIGKILL)
            eventually(lambda: client.health().pid != third)
            process.write("\n")
    assert seen == ["a\n", "b\n"]

    # A daemon that hangs does not hang its clients.
    hung = client.health().pid
    pausing = threading.Thread(target=end, args=(hung, signal.SIGSTOP))
    pausing.start()
    was = ramet._sync._transport.IDLE, ramet._sync._transport._PROBE
    ramet._sync._transport.IDLE, ramet._sync._transport._PROBE = 0.2, 0.5
    try:
        with pytest.raises(ramet.Unavailable, match="does not answer"):
            sandbox.exec(": 4321; sleep 1000")
    finally:
        ramet._sync._transport.IDLE, ramet._sync._transport._PROBE = was
        pausing.join()
        os.kill(hung, signal.SIGCONT)

    # A sandbox that dies under a call is a typed error.
    def destroy() -> None:
        eventually(lambda: any("5432" in p.command for p in sandbox.processes.list()))
        ramet.connect().get(sandbox.id).destroy()

    destroying = threading.Thread(target=destroy)
    destroying.start()
    with pytest.raises(ramet.SandboxGone):
        sandbox.exec(["sleep", "5432"])
    destroying.join()
    last = client.health().pid
    client.close()
    os.kill(last, signal.SIGTERM)
    eventually(lambda: not os.path.exists(f"/proc/{last}") or _zombie(last))


def _zombie(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def test_nobody_is_at_an_address(tmp_path: Path) -> None:
    with pytest.raises(ramet.Unavailable, match="is a daemon running there") as nobody:
        ramet.connect(f"unix:{tmp_path}/none").health()
    assert nobody.value.code == "unavailable"


def test_sandboxes_end_with_the_interpreter(daemon: Daemon) -> None:
    """The `with` block is never left: its thread is in the way of nothing."""
    program = (
        "import threading, ramet, time\n"
        "made = threading.Event()\n"
        "def work():\n"
        "    with ramet.Sandbox.create('python') as sbx:\n"
        "        print(sbx.id, flush=True); made.set(); time.sleep(1000)\n"
        "threading.Thread(target=work, daemon=True).start(); made.wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    with pytest.raises(ramet.NotFound):
        Sandbox.connect(done.stdout.strip())


def test_a_terminated_client_leaves_nothing_that_runs(daemon: Daemon, base: Sandbox) -> None:
    program = f"import ramet; ramet.Sandbox.connect({base.id!r}).exec(['sleep', '6543'])"
    client = subprocess.Popen([sys.executable, "-c", program])
    eventually(lambda: any("6543" in p.command for p in base.processes.list()))
    client.kill()
    client.wait()
    eventually(lambda: not any("6543" in p.command for p in base.processes.list()))


def test_an_interrupt_ends_the_command(daemon: Daemon, base: Sandbox) -> None:
    program = f"import ramet; ramet.Sandbox.connect({base.id!r}).exec(['sleep', '7654'])"
    client = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    eventually(lambda: any("7654" in p.command for p in base.processes.list()))
    client.send_signal(signal.SIGINT)
    assert client.stderr is not None
    assert client.stderr.read().rstrip().endswith("KeyboardInterrupt")
    client.wait(10)
    client.stderr.close()
    eventually(lambda: not any("7654" in p.command for p in base.processes.list()))


def test_trace_context_is_propagated(monkeypatch: pytest.MonkeyPatch, daemon: Daemon) -> None:
    import types

    sent: list[dict[str, str]] = []
    fake = types.ModuleType("opentelemetry.propagate")
    fake.inject = lambda fields: (fields.__setitem__("traceparent", "00-" + "1" * 32 + "-" + "2" * 16 + "-01"), sent.append(fields))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry.propagate", fake)
    ramet.connect().health()
    assert sent and sent[0]["traceparent"].startswith("00-1")
