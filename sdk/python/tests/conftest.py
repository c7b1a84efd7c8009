"""A daemon for the tests, reached by its Unix socket and by TLS with a token."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, Mapping, TypeVar

import pytest

import ramet
from llm import KEY, Llm
from ramet._config import find_program

# A shell without job control has what it starts in the background ignore interrupts, which tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

IMAGE = ["image", "build", "python", "--include", "python3-numpy"]
T = TypeVar("T")


def eventually(check: Callable[[], T], timeout: float = 20.0) -> T:
    """Return what check returns, once that is true."""
    deadline = time.monotonic() + timeout
    while True:
        value = check()
        if value or time.monotonic() > deadline:
            assert value, "it did not come true in time"
            return value
        time.sleep(0.02)


@dataclass
class Daemon:
    """A running daemon."""

    home: Path
    env: dict[str, str]
    process: subprocess.Popen[bytes]
    url: str = ""
    token: str = ""
    ca: str = ""

    @property
    def unix(self) -> str:
        return f"unix:{self.home}/run/ramet/ramet.sock"

    def ramet(self, *args: str) -> str:
        return subprocess.run(
            [find_program(), *args], env=self.env, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        for line in (self.home / "daemon.log").read_text().splitlines():
            if "sentry crashed" in line:
                print(line, file=sys.stderr)


def image_dir() -> Path | None:
    """Return a data directory that has the image "python": that of the documents' tests."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    known = cache / "ramet-test" / f"docs-{hashlib.sha256(' '.join(IMAGE).encode()).hexdigest()[:12]}"
    if (known / "whole").exists():
        return known / "ramet"
    if not os.environ.get("RAMET_TEST_BUILD"):
        return None
    known.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ramet-sdk-") as run:
        env = environment(Path(run), str(known))
        subprocess.run([find_program(), *IMAGE], env=env, check=True, stdout=subprocess.DEVNULL)
        health = subprocess.run([find_program(), "api", "/healthz"], env=env, check=True, stdout=subprocess.PIPE).stdout
        pid = json.loads(health)["pid"]
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not os.path.exists(f"/proc/{pid}"), 60)
    (known / "whole").touch()
    return known / "ramet"


def environment(home: Path, data: str = "") -> dict[str, str]:
    """Return an environment with directories below home."""
    drop = ("RAMET_HOST", "RAMET_TOKEN", "RAMET_CA", "RAMET_RUNTIME_DIR", "RAMET_DATA_DIR")
    return {
        **{k: v for k, v in os.environ.items() if k not in drop},
        "XDG_RUNTIME_DIR": str(home / "run"),
        "XDG_DATA_HOME": data or str(home / "data"),
        "XDG_CONFIG_HOME": str(home / "config"),
    }


def start(home: Path, *args: str, more: Mapping[str, str] = {}) -> Daemon:
    """Start a daemon that has the image, with more variables."""
    source = image_dir()
    if source is None:
        pytest.skip("the image of the documents is not at hand: RAMET_TEST_BUILD=1 has it made")
    for name in ("run", "config"):
        (home / name).mkdir(exist_ok=True, mode=0o700)
    if not (home / "data").exists():
        shutil.copytree(source, home / "data" / "ramet")
    env = environment(home)
    log = open(home / "daemon.log", "ab")
    process = subprocess.Popen([find_program(), "serve", *args], env={**env, **more}, stdout=log, stderr=log)
    log.close()
    daemon = Daemon(home, env, process)

    def answers() -> bool:
        assert process.poll() is None, (home / "daemon.log").read_text()[-2000:]
        try:
            with ramet.connect(daemon.unix) as client:
                return client.health().status == "ok"
        except ramet.Unavailable:
            return False

    eventually(answers, 60)
    return daemon


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """A directory with a short path, since sockets come to lie in it."""
    with tempfile.TemporaryDirectory(prefix="ramet-sdk-") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def daemon(home: Path) -> Iterator[Daemon]:
    """A daemon with a certificate and a token."""
    import trustme

    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(home / "ca.pem")
    certificate.private_key_pem.write_to_path(home / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(home / "cert.pem")
    port = free_port()
    running = start(home, "--listen", f"127.0.0.1:{port}", "--tls-cert", str(home / "cert.pem"), "--tls-key", str(home / "key.pem"))
    running.url, running.ca = f"https://127.0.0.1:{port}", str(home / "ca.pem")
    with ramet.connect(running.unix) as client:
        running.token = client.request("POST", "/v1/tokens", body={"scope": "admin", "name": "tests"})["secret"]
    yield running
    with ramet.connect(running.unix) as client:
        left = client.list()
    running.end()
    assert left == [], "the tests left sandboxes"


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Calls go to a daemon of their own, whose sandboxes reach the server of a model. The key is in LLM_API_KEY."""
    with tempfile.TemporaryDirectory(prefix="ramet-sdk-") as directory:
        server = Llm(Path(directory))
        running = start(Path(directory), more=server.env)
        monkeypatch.setenv("RAMET_HOST", running.unix)
        monkeypatch.setenv("LLM_API_KEY", KEY)
        yield
        with ramet.connect(running.unix) as client:
            left = client.list()
        running.end()
        server.close()
        assert left == [], "the test left sandboxes"


@pytest.fixture(autouse=True)
def _environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls without a client go to the daemon of the tests."""
    for name in ("RAMET_TOKEN", "RAMET_TOKEN_FILE", "RAMET_CA", "RAMET_HOST"):
        monkeypatch.delenv(name, raising=False)
    if "daemon" in request.fixturenames:
        monkeypatch.setenv("RAMET_HOST", request.getfixturevalue("daemon").unix)


@pytest.fixture(scope="session")
def base(daemon: Daemon) -> Iterator[ramet.Sandbox]:
    """A warm sandbox, which tests fork."""
    with ramet.connect(daemon.unix) as client, client.create("python", name="warm") as sandbox:
        sandbox.run_code("import json")
        yield sandbox


@pytest.fixture
def sbx(base: ramet.Sandbox) -> Iterator[ramet.Sandbox]:
    """A sandbox of the test's own."""
    with base.fork(1) as (sandbox,):
        yield sandbox


assert sys.version_info >= (3, 9)
