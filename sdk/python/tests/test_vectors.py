"""The vectors that all SDKs share, replayed against a stub by both clients."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from stub import SBX, Stub

import ramet
import ramet._async._transport
import ramet._sync._transport
from ramet import _wire
from ramet._models import SandboxInfo

VECTORS = Path(__file__).resolve().parents[2] / "vectors"
CASES = [
    pytest.param(case, id=f"{path.stem}: {case['name']}")
    for path in sorted(VECTORS.glob("*.json"))
    for case in json.loads(path.read_text())
]


async def settle(value: Any) -> Any:
    """Return a value, of a coroutine its result."""
    return await value if inspect.isawaitable(value) else value


async def everything(iterator: Any) -> List[Any]:
    if hasattr(iterator, "__aiter__"):
        return [item async for item in iterator]
    return list(iterator)


def joined(chunks: List[ramet.Chunk]) -> List[List[str]]:
    """Return chunks as the vectors have them."""
    out: List[Tuple[str, bytes]] = []
    for chunk in chunks:
        if not chunk.data:
            continue
        if out and out[-1][0] == chunk.stream:
            out[-1] = (chunk.stream, out[-1][1] + chunk.data)
        else:
            out.append((chunk.stream, chunk.data))
    return [[stream, data.decode("utf-8", "replace")] for stream, data in out]


def shown(value: Any) -> Any:
    """Return a result in the members of the vectors."""
    if isinstance(value, ramet.Result):
        return {name: getattr(value, name) for name in ("stdout", "stderr", "exit_code", "ok", "signal", "truncated")}
    if isinstance(value, ramet.Execution):
        error = value.error and {"name": value.error.name, "value": value.error.value}
        results = [sorted(rich) for rich in value.results]
        return {"text": value.text, "value": value.value, "stdout": value.stdout, "stderr": value.stderr, "error": error, "results": results}
    return value


async def perform(sandbox: Any, operation: str, arguments: Dict[str, Any]) -> Any:
    """Do what a vector says, by the sync or the async client."""
    if operation == "exec_stream":
        stream = await settle(sandbox.exec(**arguments, stream=True))
        chunks = await everything(stream)
        return {"chunks": joined(chunks), "exit_code": stream.result.exit_code}
    if operation in ("exec", "run_code"):
        return shown(await settle(getattr(sandbox, operation)(**arguments)))
    if operation == "create":
        made = await settle(sandbox.client.create(**arguments))
        return {"id": made.id, "state": made.state}
    if operation == "info":
        info = await settle(sandbox.info())
        return {"id": info.id, "state": info.state}
    if operation == "fork":
        return {"children": [child.id for child in await settle(sandbox.fork(**arguments))]}
    if operation == "explore":
        plan = {**arguments}
        score = ramet.Score(plan.pop("score"), goal=plan.pop("goal"))
        found = await settle(sandbox.explore(ramet.Plan(score=score, **plan)))
        return {"state": found.state, "scores": [one.score for one in found.attempts], "winners": [one.index for one in found.winners]}
    if operation == "explore_events":
        return {"kinds": [event.kind for event in await everything(await settle(sandbox.explore(**arguments, wait=False)))]}
    if operation in ("held", "release", "drop"):
        requests = await settle(getattr(sandbox.held, "list" if operation == "held" else operation)(**arguments))
        return {"ids": [one.id for one in requests], "states": [one.state for one in requests]}
    if operation == "secrets":
        return {"names": [one.name for one in await settle(sandbox.client.secrets.list())]}
    if operation == "set_secret":
        return {"name": (await settle(sandbox.client.secrets.set(**arguments))).name}
    if operation == "publish":
        published = await settle(sandbox.port(arguments["port"]).publish(arguments["host_port"], token=arguments["token"]))
        return {"host_port": published.host_port, "protected": published.protected}
    if operation == "unpublish":
        return await settle(sandbox.unpublish(**arguments))
    if operation == "destroy":
        return await settle(sandbox.destroy())
    if operation == "merge":
        merged = await settle(sandbox.merge(*arguments["from"]))
        return {"applied": [c.path for c in merged.applied], "conflicts": [c.path for c in merged.conflicts]}
    if operation == "read":
        return {"base64": base64.b64encode(await settle(sandbox.files.read_bytes(**arguments))).decode()}
    if operation == "write":
        info = await settle(sandbox.files.write(arguments["path"], base64.b64decode(arguments["base64"])))
        return {"size": info.size}
    if operation == "list":
        return {"paths": [info.path for info in await settle(sandbox.files.list(**arguments))]}
    if operation == "process_output":
        from ramet._models import ProcessInfo

        process_class = ramet.AsyncProcess if isinstance(sandbox, ramet.AsyncSandbox) else ramet.Process
        process = process_class(sandbox._transport, sandbox.id, ProcessInfo({"pid": arguments["pid"]}))
        output = process.output()
        chunks = await everything(output)
        code = output.exit.exit_code if output.exit else None
        return {"chunks": joined(chunks), "lost": sum(chunk.lost for chunk in chunks), "exit_code": code}
    if operation == "events":
        return {"kinds": [event.kind for event in await everything(sandbox.events())]}
    raise AssertionError(f"no operation {operation}")


def compare(want: Any, got: Any) -> None:
    if isinstance(want, dict) and isinstance(got, dict):
        got = {name: got[name] for name in want}
    assert got == want


async def replay(case: Dict[str, Any], client: Any, kind: Any) -> None:
    sandbox = kind(client, SandboxInfo({"id": SBX, "name": "", "state": "running"}))
    call, expect = case["call"], case["expect"]
    if "error" not in expect:
        compare(expect["result"], await perform(sandbox, call["operation"], call["arguments"]))
        return
    want = expect["error"]
    with pytest.raises(ramet.RametError) as failed:
        await perform(sandbox, call["operation"], call["arguments"])
    error: Any = failed.value
    assert isinstance(error, getattr(ramet, want["class"])), repr(error)
    compare({k: v for k, v in want.items() if k in ("code", "field", "status")}, vars(error))
    assert want.get("detail", "") in error.detail
    assert want.get("remedy", "") in (error.remedy or "")
    if "result" in want:
        compare(want["result"], shown(error.result or error.execution))
    if "children" in want:
        assert [child.id for child in error.children] == want["children"]


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("case", CASES)
def test_vector(case: Dict[str, Any], kind: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ramet._async._transport, ramet._sync._transport):
        if "probe" in case:
            monkeypatch.setattr(module, "IDLE", 0.1)
        if case.get("probe") == "hang":
            monkeypatch.setattr(module, "_PROBE", 0.2)
    path = str(home / "stub.sock")
    stub = Stub(path, case["exchanges"], case.get("probe", "ok"))
    try:
        if kind == "sync":
            with ramet.connect(f"unix:{path}") as client:
                asyncio.run(replay(case, client, ramet.Sandbox))
        else:

            async def run() -> None:
                async with ramet.AsyncClient(f"unix:{path}") as client:
                    await replay(case, client, ramet.AsyncSandbox)

            asyncio.run(run())
    finally:
        stub.close()
    assert stub.faults == []


def test_the_stub_finds_faults(home: Path) -> None:
    (case,) = (case.values[0] for case in CASES if case.values[0]["name"] == "exec")  # type: ignore[index]
    wrong = json.loads(json.dumps(case["exchanges"][0]))  # type: ignore[index]
    wrong["request"]["body"]["shell"] = "y"
    wrong["request"]["headers"]["accept"] = "z"
    path = str(home / "stub.sock")
    stub = Stub(path, [wrong, wrong])
    try:
        with ramet.connect(f"unix:{path}") as client:
            ramet.Sandbox(client, SandboxInfo({"id": SBX, "name": "", "state": "running"})).exec("x")
    finally:
        stub.close()
    assert len(stub.faults) == 3  # the body, the header, and an exchange that was left


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_connections_are_used_again(kind: str, home: Path) -> None:
    """Answers are read to their end, also those whose last event or frame was seen."""
    by_name = {case.values[0]["name"]: case.values[0] for case in CASES}  # type: ignore[index]
    cases = [by_name[name] for name in ("exec", "exec, streamed", "a value", "output", "the event log", "read", "fork")]
    path = str(home / "stub.sock")
    stub = Stub(path, [exchange for case in cases for exchange in case["exchanges"]])
    try:
        if kind == "sync":
            with ramet.connect(f"unix:{path}") as client:
                for case in cases:
                    asyncio.run(replay(case, client, ramet.Sandbox))
        else:

            async def run() -> None:
                async with ramet.AsyncClient(f"unix:{path}") as client:
                    for case in cases:
                        await replay(case, client, ramet.AsyncSandbox)

            asyncio.run(run())
    finally:
        stub.close()
    assert stub.faults == [] and stub.connections == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_parsers_take_pieces_of_any_size(size: int) -> None:
    def feed(parser: Any, data: bytes) -> List[Any]:
        return [item for at in range(0, len(data), size) for item in parser.feed(data[at : at + size])]

    frames = b"\x01\0\0\0\x03one\x02\0\0\0\0\x03\0\0\0\x02{}"
    assert feed(_wire.Frames(), frames) == [(1, b"one"), (2, b""), (3, b"{}")]
    events = 'id: 4\nevent: a\ndata: {"x":\ndata: "ü"}\n\n: comment\n\nevent: b\r\ndata: 1\r\n\r\n'.encode()
    assert feed(_wire.Events(), events) == [("a", {"x": "ü"}, "4"), ("b", 1, "4")]
    messages = b"\x82\x02hi\x01\x01a\x80\x01b\x89\x00\x82\x7e\x00\x80" + bytes(128)
    assert feed(_wire.Messages(), messages) == [(2, b"hi"), (1, b"ab"), (9, b""), (2, bytes(128))]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 100_001])
def test_frames_of_websockets_are_masked(size: int) -> None:
    payload = bytes(i % 251 for i in range(size))
    frame = _wire.websocket_frame(_wire.BINARY, payload)
    assert frame[0] == 0x82 and frame[1] & 0x80
    at = {126: 4, 127: 10}.get(frame[1] & 0x7F, 2)
    mask, masked = frame[at : at + 4], frame[at + 4 :]
    assert bytes(byte ^ mask[i % 4] for i, byte in enumerate(masked)) == payload


def test_hostile_bytes_are_typed_errors() -> None:
    import random

    chance = random.Random(7)
    for parser in (_wire.Frames, _wire.Events, _wire.Messages):
        for _ in range(2000):
            data = chance.randbytes(chance.randrange(1, 60))
            one = parser()
            try:
                for item in one.feed(data):
                    if isinstance(item, _wire.ServerEvent):
                        assert isinstance(item.name, str)
            except ramet.Unavailable:
                pass
