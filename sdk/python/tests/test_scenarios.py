"""The scenarios that all SDKs share, against a daemon at its socket and over TLS with a token."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Callable, Dict, Iterator

import pytest
from conftest import Daemon, eventually

import ramet
from ramet import Client, Sandbox

LIST = [one["name"] for one in json.loads((Path(__file__).resolve().parents[2] / "scenarios.json").read_text())]
SCENARIOS: Dict[str, Callable[[Sandbox], None]] = {}


def scenario(name: str) -> Callable[[Callable[[Sandbox], None]], None]:
    def add(function: Callable[[Sandbox], None]) -> None:
        SCENARIOS[name] = function

    return add


@pytest.fixture(scope="module", params=["socket", "tls"])
def client(request: pytest.FixtureRequest, daemon: Daemon) -> Iterator[Client]:
    """A client of the daemon, in each of two ways."""
    if request.param == "socket":
        with ramet.connect(daemon.unix) as client:
            yield client
    else:
        with ramet.connect(daemon.url, daemon.token, ca=daemon.ca) as client:
            yield client


@pytest.mark.parametrize("name", LIST)
def test_scenario(name: str, client: Client, base: Sandbox) -> None:
    with client.get(base.id).fork() as (sandbox,):
        SCENARIOS[name](sandbox)


def test_no_scenario_is_left_out() -> None:
    assert sorted(SCENARIOS) == sorted(LIST)


@scenario("a command")
def _(sandbox: Sandbox) -> None:
    result = sandbox.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    data = bytes(range(256)) * 1000
    assert sandbox.exec(["cat"], stdin=data).stdout_bytes == data


@scenario("a command that is read while it runs")
def _(sandbox: Sandbox) -> None:
    with sandbox.exec("echo a; until [ -e /srv/go ]; do sleep 0.02; done; echo b", stream=True) as stream:
        assert next(stream).text == "a\n"
        sandbox.files.write("/srv/go", "")
        assert next(stream).text == "b\n"


@scenario("a command with a time limit")
def _(sandbox: Sandbox) -> None:
    with pytest.raises(ramet.Timeout) as late:
        sandbox.exec("echo begun; sleep 1000", timeout=2)
    assert late.value.result is not None and late.value.result.stdout == "begun\n"


@scenario("a process in the background")
def _(sandbox: Sandbox) -> None:
    process = sandbox.processes.start("cat; echo end", stdin=True)
    process.write("hello\n", end=True)
    assert process.wait().exit_code == 0
    assert "".join(chunk.text for chunk in process.output()) == "hello\nend\n"


@scenario("a terminal")
def _(sandbox: Sandbox) -> None:
    with sandbox.pty(["sh"], cols=100, rows=30) as terminal:
        terminal.write("echo $((6*7))\n")
        assert "42" in terminal.read_until("42\r\n")


@scenario("code")
def _(sandbox: Sandbox) -> None:
    sandbox.run_code("x = [1, 2]")
    run = sandbox.run_code("print('said'); x * 2")
    assert (run.stdout, run.value) == ("said\n", [1, 2, 1, 2])
    failed = sandbox.run_code("1/0").error
    assert failed is not None and failed.name == "ZeroDivisionError"


@scenario("files")
def _(sandbox: Sandbox) -> None:
    data = bytes(range(256)) * 8192
    sandbox.files.write("/srv/d/data", data)
    assert sandbox.files.read_bytes("/srv/d/data") == data
    etag = sandbox.files.write("/srv/d/text", "one\n").etag
    sandbox.files.write("/srv/d/text", "two\n", if_match=etag)
    with pytest.raises(ramet.Conflict):
        sandbox.files.write("/srv/d/text", "three\n", if_match=etag)
    assert sandbox.files.read("/srv/d/text") == "two\n"
    assert [info.path for info in sandbox.files.list("/srv/d")] == ["/srv/d/data", "/srv/d/text"]


@scenario("a fork")
def _(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 1")
    with sandbox.fork(2) as (one, two):
        one.run_code("x += 1")
        assert (one.run_code("x").value, two.run_code("x").value, sandbox.run_code("x").value) == (2, 1, 1)
        assert {one.parent, two.parent} == {sandbox.id}


@scenario("a difference and a merge")
def _(sandbox: Sandbox) -> None:
    with sandbox.fork(2) as (one, two):
        one.files.write("/srv/a", "a")
        two.files.write("/srv/b", "b")
        assert sandbox.diff(one, ["/srv"]).paths == ["/srv/a"]
        assert sorted(change.path for change in sandbox.merge(one, two, paths=["/srv"]).applied) == ["/srv/a", "/srv/b"]
        assert sandbox.files.read("/srv/a") + sandbox.files.read("/srv/b") == "ab"


@scenario("a promotion")
def _(sandbox: Sandbox) -> None:
    (child,) = sandbox.fork()
    child.run_code("winner = True")
    sandbox.promote(child)
    assert sandbox.run_code("winner").value is True
    with pytest.raises(ramet.NotFound):
        sandbox.client.get(child.id)


@scenario("a snapshot")
def _(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 1")
    snapshot = sandbox.snapshot()
    sandbox.run_code("x = 2")
    with snapshot.restore(2) as restored:
        assert [one.run_code("x").value for one in restored] == [1, 1]
    sandbox.rollback(snapshot)
    assert sandbox.run_code("x").value == 1
    snapshot.delete()


@scenario("rest")
def _(sandbox: Sandbox) -> None:
    sandbox.run_code("x = 1")
    sandbox.hibernate()
    assert sandbox.info().state == "hibernated"
    assert sandbox.run_code("x").value == 1 and sandbox.info().state == "running"


@scenario("a port")
def _(sandbox: Sandbox) -> None:
    sandbox.exec("cd /srv && echo hello > page && exec python3 -m http.server 8000", background=True)
    port = sandbox.port(8000)
    port.wait()
    assert port.get("/page").text == "hello\n"


@scenario("a network")
def _(sandbox: Sandbox) -> None:
    assert not sandbox.test_network("api.example.org", 443).allowed
    sandbox.set_network(["api.example.org"])
    assert sandbox.test_network("api.example.org", 443).allowed and not sandbox.test_network("other.example.org", 443).allowed


@scenario("an exploration")
def _(sandbox: Sandbox) -> None:
    begun = sandbox.explore("echo $N | tee /srv/n", variants=[{"N": 1}, {"N": 3}, {"N": 2}], score="number", then="promote", wait=False)
    assert "attempt" in [event.kind for event in begun]
    winner = begun.wait().winner
    assert winner is not None and (winner.index, winner.score) == (1, 3) and sandbox.files.read("/srv/n") == "3\n"
    begun.remove()


@scenario("events")
def _(sandbox: Sandbox) -> None:
    sandbox.pause()
    sandbox.resume()
    kinds = [event.kind for event in sandbox.events()]
    assert kinds.index("paused") < kinds.index("resumed")


@scenario("errors")
def _(sandbox: Sandbox) -> None:
    with pytest.raises(ramet.NotFound) as nobody:
        sandbox.client.get("nobody")
    assert nobody.value.status == 404
    with pytest.raises(ramet.InvalidRequest) as wrong:
        sandbox.update(name="Not a name")
    assert wrong.value.field == "name"
    with pytest.raises(ramet.CommandError) as failed:
        sandbox.exec("exit 3", check=True)
    assert failed.value.result.exit_code == 3


@scenario("a sandbox that ends")
def _(sandbox: Sandbox) -> None:
    def destroy() -> None:
        eventually(lambda: any("8765" in process.command for process in sandbox.processes.list()))
        sandbox.client.get(sandbox.id).destroy()

    destroying = threading.Thread(target=destroy)
    destroying.start()
    with pytest.raises(ramet.SandboxGone):
        sandbox.exec(["sleep", "8765"])
    destroying.join()
