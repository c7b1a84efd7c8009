"""Measures the SDKs: bench.py PROGRAM CACHE. See docs/benchmarks.md for what the rows are.

What a call costs above the daemon is the mean time of the call in the client, less the mean that the
daemon has in its metrics for the same calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Dict, Iterator, Mapping, Tuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
CALLS = 300
SEED = """
pg_ctlcluster $(pg_lsclusters --no-header | cut -d' ' -f1) main start
ln -s /usr/lib/postgresql/*/bin/psql /tmp/psql  # Debian's psql is a script in Perl that finds this one
psql --quiet --command 'create table t (n int)' --command 'insert into t select generate_series(1, 1000)'
"""
TESTS = f"""
import pytest

SEED = {SEED!r}

def seed(sbx):
    sbx.exec(SEED, user="postgres", check=True)

@pytest.mark.ramet(image="postgres", setup=seed)
@pytest.mark.parametrize("n", range(200))
def test_query(sandbox, n):
    command = ["/tmp/psql", "-At", "--command", f"delete from t where n <= {{n}}", "--command", "select count(*) from t"]
    assert sandbox.exec(command, user="postgres", check=True).stdout.split()[-1] == str(1000 - n)
"""


def main() -> None:
    program, cache = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    only = set(sys.argv[3:])
    with tempfile.TemporaryDirectory(prefix="ramet-bench-") as home:
        os.environ.update(
            XDG_RUNTIME_DIR=home, XDG_DATA_HOME=str(cache / "bench-sdk"), XDG_CONFIG_HOME=home, RAMET_BIN=str(program)
        )
        try:
            for name, row in rows(program, cache, Path(home)):
                if not only or any(part in name for part in only):
                    print(f"{name:<52} {row()}", flush=True)
        finally:
            end(program, os.environ)


def rows(program: Path, cache: Path, home: Path) -> Iterator[Tuple[str, Callable[[], str]]]:
    yield "import of ramet in Python", import_time
    for call in ("exec", "run_code"):
        yield f"{call}, Python, above the daemon", lambda call=call: above(call, lambda: in_python(call))
        yield f"{call}, asyncio, above the daemon", lambda call=call: above(call, lambda: asyncio.run(in_asyncio(call)))
        yield f"{call}, TypeScript, above the daemon", lambda call=call: above(call, lambda: in_node(call))
        yield f"{call}, Go, above the daemon", lambda call=call: above(call, lambda: in_go(call))
    yield "explore of 100, over fork(100) and 100 execs", explore
    yield "pip install to the first answer of a child", lambda: install(home)
    yield "clients of E2B", lambda: e2b(program, cache, home)
    yield "a test of pytest, of 200 that fork PostgreSQL", lambda: pytest(program, home)


def end(program: Path, env: Mapping[str, str]) -> None:
    """End the daemon that the first call has started."""
    pid = json.loads(subprocess.check_output([program, "api", "/healthz"], env=env))["pid"]
    os.kill(pid, signal.SIGTERM)
    while os.path.exists(f"/proc/{pid}"):
        time.sleep(0.01)


def import_time() -> str:
    def run(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT / "sdk/python")
        return time.perf_counter() - began

    pairs = [(run("import ramet"), run("pass")) for _ in range(9)]
    return ms(statistics.median(a - b for a, b in pairs))


def above(operation: str, run: Callable[[], float]) -> str:
    """Return what calls cost in a client above the daemon. run returns their mean in the client, in seconds."""
    seconds, count = of_daemon(operation)
    mean = run()
    after, calls = of_daemon(operation)
    daemon = (after - seconds) / (calls - count)
    return f"{ms(mean - daemon)} (the daemon {ms(daemon)})"


def of_daemon(operation: str) -> Tuple[float, int]:
    text = subprocess.check_output([os.environ["RAMET_BIN"], "api", "/metrics"], text=True)

    def number(kind: str) -> float:
        found = re.search(rf'^ramet_operation_seconds_{kind}{{operation="{operation}"}} (\S+)$', text, re.M)
        return float(found[1]) if found else 0

    return number("sum"), int(number("count"))


def in_python(call: str) -> float:
    import ramet

    with ramet.Sandbox.create("python") as sbx:
        one = (lambda: sbx.exec(["true"])) if call == "exec" else (lambda: sbx.run_code("1"))
        one()
        began = time.perf_counter()
        for _ in range(CALLS):
            one()
        return (time.perf_counter() - began) / CALLS


async def in_asyncio(call: str) -> float:
    import ramet

    async with await ramet.AsyncSandbox.create("python") as sbx:
        one = (lambda: sbx.exec(["true"])) if call == "exec" else (lambda: sbx.run_code("1"))
        await one()
        began = time.perf_counter()
        for _ in range(CALLS):
            await one()
        return (time.perf_counter() - began) / CALLS


def in_node(call: str) -> float:
    out = subprocess.run(
        ["node", HERE / "calls.mjs", call, str(CALLS)], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT / "sdk/typescript"
    )
    return float(out.stdout)


def in_go(call: str) -> float:
    out = subprocess.run(
        ["go", "run", "./sdk/bench/calls", call, str(CALLS)], check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    return float(out.stdout)


def explore() -> str:
    import ramet

    def apart(sbx: ramet.Sandbox) -> float:
        began = time.perf_counter()
        with sbx.fork(100) as children, ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda child: child.exec(["true"], check=True), children))
            took = time.perf_counter() - began
        return took

    def at_once(sbx: ramet.Sandbox) -> float:
        began = time.perf_counter()
        found = sbx.explore(["true"], width=100, keep="none")
        assert len(found.attempts) == 100, found
        return time.perf_counter() - began

    with ramet.Sandbox.create("python") as sbx:
        pairs = [(at_once(sbx), apart(sbx)) for _ in range(5)]
    ratio = statistics.median(a / b for a, b in pairs)
    return f"{ratio:.2f} x ({ms(statistics.median(a for a, _ in pairs))})"


def install(home: Path) -> str:
    wheels = sorted((ROOT / "sdk/python/dist").glob("*manylinux*.whl"))
    if not wheels:
        return "skipped: make sdk builds the wheel"
    venv = home / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    code = "import ramet\nwith ramet.Sandbox.create('python') as s, s.fork(1) as (c,): assert c.exec('echo hi').stdout == 'hi\\n'"
    env = {k: v for k, v in os.environ.items() if k not in ("RAMET_BIN", "PYTHONPATH")}
    runtime = home / "fresh"  # the daemon starts, too
    runtime.mkdir(mode=0o700)
    data = home / "images"
    shutil.copytree(Path(os.environ["XDG_DATA_HOME"]) / "ramet/images", data / "ramet/images")
    env.update(XDG_RUNTIME_DIR=str(runtime), XDG_DATA_HOME=str(data))
    began = time.perf_counter()
    subprocess.run([venv / "bin/pip", "install", "-q", "--disable-pip-version-check", wheels[-1]], check=True, env=env)
    subprocess.run([venv / "bin/python", "-c", code], check=True, env=env, cwd=home)
    took = time.perf_counter() - began
    end(venv / "bin/ramet", env)
    return f"{took:.1f} s"


def e2b(program: Path, cache: Path, home: Path) -> str:
    """Return what the client of E2B has measured with a daemon of its own, whose templates are kept."""
    requirements = ROOT / "test/docs/testdata/e2b/requirements.txt"
    venv = cache / f"bench-e2b-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]}"
    if not (venv / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([venv / "bin/pip", "install", "-q", "--disable-pip-version-check", "-r", requirements], check=True)
        (venv / "complete").touch()
    runtime = home / "e2b"
    runtime.mkdir(mode=0o700)
    env = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "XDG_DATA_HOME": str(cache / "bench-e2b-data")}
    daemon = subprocess.Popen([program, "serve", "--e2b=127.0.0.1:0"], env=env, stderr=subprocess.PIPE, text=True)
    try:
        assert daemon.stderr is not None
        url = next(f"http://{found[1]}" for line in daemon.stderr if (found := re.search(r"interface=e2b address=(\S+)", line)))
        threading.Thread(target=daemon.stderr.read, daemon=True).start()  # else it waits for a reader
        key = subprocess.check_output([program, "token", "create", "--scope", "admin", "--e2b"], env=env, text=True).strip()
        client = {**env, "E2B_API_KEY": key, "E2B_API_URL": url, "E2B_SANDBOX_URL": url}
        out = subprocess.check_output([venv / "bin/python", HERE / "clients_of_e2b.py"], env=client, text=True)
    finally:
        daemon.terminate()
        daemon.wait()
    return ", ".join(line + " ms" for line in out.splitlines())


def pytest(program: Path, home: Path) -> str:
    if subprocess.run([program, "image", "inspect", "postgres"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        subprocess.run([program, "image", "build", "postgres", "--include", "postgresql"], check=True, stdout=subprocess.DEVNULL)
    tests = home / "tests"
    tests.mkdir()
    (tests / "test_queries.py").write_text(TESTS)
    env: Dict[str, str] = {**os.environ, "PYTHONPATH": str(ROOT / "sdk/python")}
    began = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "ramet.pytest_plugin", "-p", "no:cacheprovider", tests]
    out = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, cwd=tests)
    took = time.perf_counter() - began
    if out.returncode or "200 passed" not in out.stdout:
        raise SystemExit(out.stdout)
    return f"{ms(took / 200)} ({took:.1f} s in all, with the start and the seed)"


def ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


if __name__ == "__main__":
    main()
