"""Secrets, held requests, published ports, and clients whose sandboxes end with them."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from conftest import Daemon, eventually
from stub import SBX, Stub

import ramet
from ramet import Sandbox
from ramet._models import SandboxInfo


def test_secret_variables(daemon: object) -> None:
    with Sandbox.create("python", secret_env={"KEY": "hidden"}) as base:
        assert base.exec("echo $KEY").stdout == "hidden\n"
        assert base.info().secret_env == ["KEY"] and "hidden" not in str(base.info())
        with base.fork() as (without,), base.fork(secret_env=True) as (like,):
            assert (without.exec("echo $KEY").stdout, like.exec("echo $KEY").stdout) == ("\n", "hidden\n")


def test_secrets(daemon: Daemon) -> None:
    with ramet.connect(daemon.unix) as client:
        made = client.secrets.set("API_KEY", "sk-0123456789", names=["api.example.org"], header="Authorization", methods=["GET"])
        try:
            assert (made.name, made.methods) == ("API_KEY", ["GET"]) and "sk-" not in repr(made)
            assert [secret.name for secret in client.secrets.list()] == ["API_KEY"]
            with client.create("python", secrets={"api.example.org:Authorization": "Bearer ${API_KEY}"}) as sbx:
                assert sbx.exec("echo $API_KEY").stdout.startswith("ramet-secret-")
                assert sbx.test_network("api.example.org", 443).allowed
        finally:
            client.secrets.remove("API_KEY")
        assert client.secrets.list() == []
        with pytest.raises(ramet.InvalidRequest) as wrong:
            client.secrets.set("API_KEY", "v", names=["*.example.org"], header="Authorization")
        assert wrong.value.field


def test_held_requests(daemon: object) -> None:
    with Sandbox.create("python", network=["api.example.org"]) as base:
        with base.fork(hold=True, record=True) as (child,):
            assert child.held.list() == child.held.release() == child.held.drop() == []
            with pytest.raises(ramet.NotFound):
                child.held.release("held_none")
            with pytest.raises(ramet.InvalidRequest) as several:
                child.held.release(again=True)
            assert several.value.field == "again"
            with pytest.raises(ramet.InvalidRequest) as unknown:
                base.fork(hold="everything")
            assert unknown.value.field == "hold"
        snapshot = base.snapshot()
        with snapshot.restore(hold=True, record=True, idle_timeout=60, idle_action="pause") as restored:
            assert restored.held.list() == [] and restored.info().lifecycle.idle_action == "pause"
        snapshot.delete()


def test_published_ports(sbx: Sandbox) -> None:
    sbx.exec("cd /srv && echo hello > page && exec python3 -m http.server 8000", background=True)
    port = sbx.port(8000)
    port.wait()
    token = "t" * 16
    published = port.publish(token=token)
    assert published.protected and [one.host_port for one in sbx.published_ports()] == [published.host_port]
    page = urllib.request.Request(f"http://127.0.0.1:{published.host_port}/page")
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(page, timeout=20)
    page.add_header("Authorization", f"Bearer {token}")
    assert urllib.request.urlopen(page, timeout=20).read() == b"hello\n"
    sbx.unpublish(published.host_port)
    assert sbx.published_ports() == []


def test_labels_of_an_owner(daemon: Daemon) -> None:
    with ramet.connect(daemon.unix, owner="ci-7") as client, client.create("python", metadata={"a": "b"}) as sandbox:
        assert sandbox.metadata == {"a": "b", "owner": "ci-7"}
        with sandbox.fork() as (like,), sandbox.fork(metadata={"c": "d"}) as (other,):
            assert (like.metadata, other.metadata) == (sandbox.metadata, {**sandbox.metadata, "c": "d"})
            assert {one.id for one in client.list(owner="ci-7")} == {sandbox.id, like.id, other.id}
        assert Sandbox.list(owner="ci-8") == []


LEASED = """
import sys, ramet
with ramet.connect(lease=10, owner=sys.argv[1]) as client:
    sandbox = client.create("python")
    (child,) = sandbox.fork()
    kept = client.create("python").detach()
    print(sandbox.id, child.id, kept.id, flush=True)
    sys.stdin.read()
"""


def test_sandboxes_of_a_lease_end_with_their_client(daemon: Daemon) -> None:
    with ramet.connect(daemon.unix, lease=60) as client:
        left = client.create("python")
        (child,) = left.fork()
        assert left.info().lifecycle.ttl_ms == 60_000
        kept = client.create("python", ttl=0)
        also = client.create("python").detach()
    for gone in (left, child):
        with pytest.raises(ramet.NotFound):
            Sandbox.connect(gone.id)
    assert Sandbox.connect(also.id).info().lifecycle.ttl_ms is None
    for sandbox in (kept, also):
        Sandbox.connect(sandbox.id).destroy()
    with pytest.raises(ramet.InvalidRequest, match="with"):
        ramet.connect(daemon.unix, lease=60).create("python")
    with pytest.raises(ramet.InvalidRequest, match="lease"):
        ramet.connect(daemon.unix, lease=0.1)

    async def use() -> str:
        async with ramet.AsyncClient(daemon.unix, lease=60) as client:
            return (await client.create("python")).id

    with pytest.raises(ramet.NotFound):
        Sandbox.connect(asyncio.run(use()))


def test_a_client_that_is_killed_leaves_no_sandbox(daemon: Daemon) -> None:
    client = subprocess.Popen([sys.executable, "-c", LEASED, "killed"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None and client.stdin is not None
    ids = client.stdout.readline().split()
    # It renews: they are there after more than the time of one lease, and the one that it let go of has no end.
    eventually(lambda: Sandbox.connect(ids[2]).info().lifecycle.ttl_ms is None)
    begun = Sandbox.connect(ids[0]).info().lifecycle.expires_at
    eventually(lambda: Sandbox.connect(ids[0]).info().lifecycle.expires_at > begun)
    client.send_signal(signal.SIGKILL)
    client.wait()
    client.stdin.close()
    client.stdout.close()
    eventually(lambda: [one.id for one in Sandbox.list(owner="killed")] == [ids[2]])
    Sandbox.connect(ids[2]).destroy()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_trace_context_goes_along(kind: str, home: Path) -> None:
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider().get_tracer("tests")
    path = str(home / "stub.sock")
    with tracer.start_as_current_span("work") as span:
        context = span.get_span_context()
        parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
        body = f'{{"id":"{SBX}","state":"running"}}'
        answer = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
        request = {"method": "POST", "path": f"/v1/sandboxes/{SBX}/pause", "headers": {"traceparent": parent}}
        stub = Stub(path, [{"request": request, "response": [answer], "end": "keep"}])
        try:
            if kind == "sync":
                with ramet.connect(f"unix:{path}") as client:
                    Sandbox(client, SandboxInfo({"id": SBX, "name": "", "state": "running"})).pause()
            else:

                async def run() -> None:
                    async with ramet.AsyncClient(f"unix:{path}") as client:
                        await ramet.AsyncSandbox(client, SandboxInfo({"id": SBX, "name": "", "state": "running"})).pause()

                asyncio.run(run())
        finally:
            stub.close()
    assert stub.faults == []
