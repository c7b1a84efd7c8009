"""Writes the vectors: see README.md.

python make.py           writes the files
python make.py --check   fails if they are not current
"""

from __future__ import annotations

import base64
import json
import struct
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SBX = "sbx_aaaaaaaaaaaaaaaa"
EXEC = f"/v1/sandboxes/{SBX}/exec"
RUN = f"/v1/sandboxes/{SBX}/run-code"
FILES = f"/v1/sandboxes/{SBX}/files"
INTERFACE = "X-Ramet-Interface"
HELD = f"/v1/sandboxes/{SBX}/held"
PUBLISHED = f"/v1/sandboxes/{SBX}/ports/published"
EVENTS = "text/event-stream"
FRAMES = "application/vnd.ramet.frames"


def piece(data: bytes) -> Any:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def split(data: bytes, *at: int) -> list[Any]:
    """Split data after the given numbers of bytes."""
    cuts = [0, *at, len(data)]
    return [piece(data[a:b]) for a, b in zip(cuts, cuts[1:])]


def head(status: str, kind: str, *more: str) -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Type: {kind}", *more, "", ""]).encode()


def answer(document: Any, status: str = "200 OK", kind: str = "application/json", *more: str) -> bytes:
    body = json.dumps(document).encode()
    return head(status, kind, f"Content-Length: {len(body)}", *more) + body


def problem(status: int, code: str, detail: str, *more: str, **members: Any) -> bytes:
    document = {"type": f"https://ramet.dev/problems/{code}", "title": code, "status": status, "detail": detail, "code": code, **members}
    return answer(document, f"{status} Failed", "application/problem+json", *more)


def chunked(kind: str, *chunks: bytes, end: bool = True) -> bytes:
    out = head("200 OK", kind, "Transfer-Encoding: chunked")
    for chunk in chunks:
        out += f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n"
    return out + (b"0\r\n\r\n" if end else b"")


def frame(stream: int, payload: bytes) -> bytes:
    return struct.pack(">BI", stream, len(payload)) + payload


def exit_of(code: int = 0, signal: str = "", **more: Any) -> dict[str, Any]:
    return {"stdout": "", "stderr": "", "exit_code": code, "ok": code == 0, "signal": signal, "duration_ms": 1.5, **more}


def final(**exit_: Any) -> bytes:
    return frame(3, json.dumps({"exit": exit_of(**exit_)}).encode())


def final_error(code: str, detail: str, status: int = 409) -> bytes:
    doc = {"type": "x", "title": code, "status": status, "detail": detail, "code": code}
    return frame(3, json.dumps({"error": doc}).encode())


def event(name: str, data: Any, id_: str = "") -> bytes:
    return (f"id: {id_}\n" if id_ else "").encode() + f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def output(text: bytes, seq: int) -> dict[str, Any]:
    try:
        data, encoding = text.decode("utf-8"), "utf8"
    except UnicodeDecodeError:
        data, encoding = base64.b64encode(text).decode(), "base64"
    return {"data": data, "encoding": encoding, "seq": seq, "ts": "2026-11-25T12:00:00.123456789Z"}


def run_result(text: str = "", results: Any = None, error: Any = None, **more: Any) -> dict[str, Any]:
    return {
        **exit_of(1 if error else 0), "result": text, "results": results if results is not None else ([{"text/plain": text}] if text else []),
        "error": error, "context": "python", "execution_count": 1, **more,
    }  # fmt: skip


def sandbox(id_: str = SBX, state: str = "running", **more: Any) -> dict[str, Any]:
    return {
        "id": id_, "name": "", "state": state, "image": "img_aaaaaaaaaaaaaaaa", "parent": "", "depth": 0,
        "created_at": "2026-11-25T12:00:00.123456789Z", "limits": {"cpus": 0, "memory_mib": 0, "disk_mib": 0, "pids": 0, "open_files": 0},
        "identity": {"sandbox_id": id_, "fork_index": 0, "hostname": "x", "machine_id": "0" * 32}, "isolation": {}, **more,
    }  # fmt: skip


def held(id_: str, state: str) -> dict[str, Any]:
    times = {"created_at": "2026-11-25T12:00:00Z", "changed_at": "2026-11-25T12:00:00Z"}
    return {"id": id_, "sandbox": SBX, "name": "api.example.org", "port": 443, "tls": True, "method": "POST", "target": "/", "size": 0, "digest": "", "state": state, **times}


def exploration(state: str, *attempts: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "id": "xpl_aaaaaaaaaaaaaaaa", "sandbox": SBX, "state": state, "strategy": "all", "goal": "min", "then": "promote", "winners": [],
        "children": list(attempts), "rounds": [], "created_at": "2026-11-25T12:00:00Z", "seq": 1, **more,
    }  # fmt: skip


def attempt(index: int, state: str, **more: Any) -> dict[str, Any]:
    return {"index": index, "round": 1, "state": state, "stdout": "", "stderr": "", **more}


def explorations() -> list[Any]:
    one = "/v1/explorations/xpl_aaaaaaaaaaaaaaaa"
    call = ("explore", {"command": "x", "variants": [{"A": "1"}, {"A": "2"}], "score": "number", "goal": "min", "then": "promote", "timeout": 2})
    body = {"run": {"shell": "x", "timeout_ms": 2000}, "variants": [{"env": {"A": "1"}}, {"env": {"A": "2"}}], "score": {"by": "number", "goal": "min"}, "then": "promote"}
    begin = request("POST", f"/v1/sandboxes/{SBX}/explorations", headers={"idempotency-key": "*"}, body=body)
    begun = answer(exploration("running", attempt(0, "running"), attempt(1, "waiting")), "202 Accepted")
    wait = request("GET", one, query={"wait": "true"})
    done = exploration("done", attempt(0, "succeeded", score=2.5), attempt(1, "succeeded", score=1, won=True), winners=[1], promoted=True)
    failed = exploration("failed", attempt(0, "failed"), error={"code": "conflict", "detail": "promote the winner"})
    daemon = {"interrupted": exploration("interrupted", attempt(0, "stopped"), error={"code": "unavailable", "detail": "the daemon ended"})}
    follow = request("GET", f"{one}/events", query={"follow": "true", "since": "0"})
    since = request("GET", f"{one}/events", query={"follow": "true", "since": "2"})
    changed = [{"seq": n, "time": "2026-11-25T12:00:00Z", "kind": kind, "state": "running"} for n, kind in enumerate(("round", "attempt", "novelty"), 1)]
    events = [event("event", doc, str(doc["seq"])) for doc in changed]
    end = event("end", {})
    watch = ("explore_events", {"command": "x"})
    plain = request("POST", f"/v1/sandboxes/{SBX}/explorations", body={"run": {"shell": "x"}})
    result = {"state": "done", "scores": [2.5, 1], "winners": [1]}
    return [
        case("an exploration", "the plan, and the table of its end", call, [exchange(begin, begun), exchange(wait, answer(done))], {"result": result}),
        case("an exploration that has ended when it is answered", "nothing is waited for", call, [exchange(begin, answer(done, "202 Accepted"))], {"result": result}),
        case("an answer that is lost", "the same exploration is asked for", call,
             [exchange(begin, b"", "close"), exchange({**begin, "same": ["idempotency-key"]}, begun), exchange(wait, answer(done))], {"result": result}),
        case("a daemon that is replaced", "while an exploration is waited for", call, [exchange(begin, begun), exchange(wait, b"", "close"), exchange(wait, answer(done))], {"result": result}),
        case("an exploration that fails", "of the class of explorations, with the code of the reason", call, [exchange(begin, begun), exchange(wait, answer(failed))], error("ExploreError", "conflict", detail="promote the winner")),
        case("an exploration that is interrupted", "the daemon ended", call, [exchange(begin, begun), exchange(wait, answer(daemon["interrupted"]))], error("ExploreError", "unavailable")),
        case("a plan that is wrong", "the field is that of the plan", call, [exchange(begin, problem(400, "invalid_argument", "9 is not from 1 to 2, the width", field="search.successes"))], error("InvalidRequest", "invalid_argument", field="search.successes")),
        case("events of an exploration", "also of kinds that are new", watch, [exchange(plain, begun), exchange(follow, chunked(EVENTS, *events, end))], {"result": {"kinds": ["round", "attempt", "novelty"]}}),
        case("events that break off", "they go on after the last one", watch, [exchange(plain, begun), exchange(follow, chunked(EVENTS, *events[:2], end=False), "close"), exchange(since, chunked(EVENTS, events[2], end))],
             {"result": {"kinds": ["round", "attempt", "novelty"]}}),
    ]  # fmt: skip


def request(method: str, path: str, **more: Any) -> dict[str, Any]:
    return {"method": method, "path": path, **more}


def exchange(req: dict[str, Any], response: Any, end: str = "keep") -> dict[str, Any]:
    pieces = response if isinstance(response, list) else [piece(response)]
    return {"request": req, "response": pieces, "end": end}


def case(name: str, about: str, call: tuple[str, dict[str, Any]], exchanges: list[Any], expect: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "about": about, "call": {"operation": call[0], "arguments": call[1]}, "exchanges": exchanges, "expect": expect, **more}


def error(cls: str, code: str, **more: Any) -> dict[str, Any]:
    return {"error": {"class": cls, "code": code, **more}}


def exec_request(**body: Any) -> dict[str, Any]:
    return request("POST", EXEC, headers={"accept": FRAMES}, body={"shell": "x", "key": "*", **body})


def run_request(**body: Any) -> dict[str, Any]:
    return request("POST", RUN, body={"code": "x", "language": "python", **body})


def execs() -> list[Any]:
    call = ("exec", {"command": "x"})
    ok = frame(1, b"out") + frame(2, b"err") + final()
    good = {"result": {"stdout": "out", "stderr": "err", "exit_code": 0, "ok": True, "signal": None, "truncated": False}}
    whole = chunked(FRAMES, ok)
    cases = [
        case("exec", "a command in one piece", call, [exchange(exec_request(), whole)], good),
        case("exec, a byte at a time", "each byte is a piece", call, [exchange(exec_request(), split(whole, *range(1, len(whole))))], good),
        case("exec, frames over chunks", "chunks of HTTP and frames do not coincide", call, [exchange(exec_request(), chunked(FRAMES, ok[:3], ok[3:9], ok[9:]))], good),
        case("exec of an argument list", "a list is a program and its arguments", ("exec", {"command": ["a", "b c"], "env": {"K": "v"}, "cwd": "/srv", "timeout": 1.5}),
             [exchange(request("POST", EXEC, body={"argv": ["a", "b c"], "env": {"K": "v"}, "cwd": "/srv", "timeout_ms": 1500, "key": "*"}), whole)], good),
        case("exec with text as input", "text goes with the request, which then has no key", ("exec", {"command": "x", "stdin": "in"}),
             [exchange(request("POST", EXEC, body={"shell": "x", "stdin": "in"}), whole)], good),
        case("a command that fails", "it is a result and no error", call, [exchange(exec_request(), chunked(FRAMES, final(code=3)))], {"result": {"exit_code": 3, "ok": False, "signal": None}}),
        case("a command that a signal ended", "the exit code is 128 and the signal", call, [exchange(exec_request(), chunked(FRAMES, final(code=137, signal="SIGKILL")))],
             {"result": {"exit_code": 137, "signal": "SIGKILL"}}),
        case("a command that timed out", "the error has the output until then", ("exec", {"command": "x", "timeout": 1}),
             [exchange(exec_request(timeout_ms=1000), chunked(FRAMES, frame(1, b"begun"), final(code=137, signal="SIGKILL", timed_out=True)))],
             error("Timeout", "timeout", result={"stdout": "begun", "exit_code": 137})),
        case("output that is not UTF-8", "bytes that are no text are U+FFFD in the text", call, [exchange(exec_request(), chunked(FRAMES, frame(1, b"a\xffb"), final()))], {"result": {"stdout": "a\ufffdb"}}),
        case("a character over two frames", "it is whole in the result", call, [exchange(exec_request(), chunked(FRAMES, frame(1, b"\xc3"), frame(1, b"\xbc"), final()))], {"result": {"stdout": "\u00fc"}}),
        case("a sandbox that dies", "the last frame is an error", call, [exchange(exec_request(), chunked(FRAMES, frame(1, b"a"), final_error("sandbox_died", "exec: the sandbox ended: out of memory")))],
             error("SandboxGone", "sandbox_died", detail="out of memory")),
        case("a sandbox that does not exist", "a problem document", call, [exchange(exec_request(), problem(404, "not_found", f'no sandbox "{SBX}"'))], error("SandboxGone", "not_found", status=404)),
        case("a field that is wrong", "the error names it", ("exec", {"command": "x", "cwd": "y"}), [exchange(exec_request(cwd="y"), problem(400, "invalid_argument", '"y" is not an absolute path', field="cwd"))],
             error("InvalidRequest", "invalid_argument", field="cwd", status=400)),
        case("an answer that breaks off, and goes on", "the command is resumed at the byte after those that came", call,
             [exchange(exec_request(), chunked(FRAMES, frame(1, b"one "), end=False), "close"), exchange(exec_request(**{"from": 4}), chunked(FRAMES, frame(1, b"two"), final()))],
             {"result": {"stdout": "one two", "exit_code": 0}}),
        case("an answer that breaks off inside of a frame", "the part of the frame is read again", call,
             [exchange(exec_request(), chunked(FRAMES, frame(1, b"one "), frame(1, b"two")[:6], end=False), "reset"), exchange(exec_request(**{"from": 4}), chunked(FRAMES, frame(1, b"two"), final()))],
             {"result": {"stdout": "one two"}}),
        case("an answer that breaks off, and is lost", "the daemon does not know the command any more", call,
             [exchange(exec_request(), chunked(FRAMES, frame(1, b"one "), end=False), "close"), exchange(exec_request(**{"from": 4}), problem(404, "not_found", "no such command"))],
             error("Unavailable", "unavailable", detail="broke off")),
        case("a daemon that ends before its answer", "the command is looked for, and not run again", call, [exchange(exec_request(), [], "close"), exchange(exec_request(**{"from": 0}), chunked(FRAMES, ok))], good),
        case("a daemon that ends before its answer, and does not know the command", "nobody knows whether it ran: it is not run again", call, [exchange(exec_request(), [], "close"), exchange(exec_request(**{"from": 0}), problem(404, "not_found", "no such command"))],
             error("Unavailable", "unavailable", detail="before it had answered")),
        case("an answer of another server", "no problem document", call, [exchange(exec_request(), answer("x", "502 Bad Gateway", "text/html"))], error("Unavailable", "unavailable", status=502)),
        case("a frame of no stream", "what is not the format is an error", call, [exchange(exec_request(), chunked(FRAMES, frame(9, b"x")))], error("Unavailable", "unavailable", detail="frame")),
        case("a frame that is too long", "a length is not believed", call, [exchange(exec_request(), chunked(FRAMES, struct.pack(">BI", 1, 1 << 31)))], error("Unavailable", "unavailable", detail="frame")),
        case("a last frame that is no JSON", "it is an error", call, [exchange(exec_request(), chunked(FRAMES, frame(3, b"{")))], error("Unavailable", "unavailable")),
        case("a daemon that hangs", "the probe is not answered", call, [exchange(exec_request(), chunked(FRAMES, frame(1, b"a"), end=False), "hang")], error("Unavailable", "unavailable", detail="does not answer"), probe="hang"),
        case("a sandbox that is gone while a call waits", "the probe finds it", call, [exchange(exec_request(), chunked(FRAMES, frame(1, b"a"), end=False), "hang")], error("SandboxGone", "not_found"), probe="gone"),
        case("a sandbox that failed while a call waits", "the probe finds the reason", call, [exchange(exec_request(), chunked(FRAMES, end=False), "hang")], error("SandboxGone", "sandbox_died", detail="init exited"), probe="failed"),
        case("exec, streamed", "chunks in their order", ("exec_stream", {"command": "x"}), [exchange(exec_request(), chunked(FRAMES, frame(1, b"a"), frame(1, b"b"), frame(2, b"c"), frame(1, b"d"), final(code=2)))],
             {"result": {"chunks": [["stdout", "ab"], ["stderr", "c"], ["stdout", "d"]], "exit_code": 2}}),
    ]  # fmt: skip
    return cases


def codes() -> list[Any]:
    call = ("run_code", {"code": "x"})
    return [
        case("a value", "numbers are values", call, [exchange(run_request(), answer(run_result("42")))], {"result": {"text": "42", "value": 42, "error": None}}),
        case("a list", "a text of JSON's types is a value", call, [exchange(run_request(), answer(run_result("[1, 'a', None, True, {'k': 2.5}]")))], {"result": {"value": [1, "a", None, True, {"k": 2.5}]}}),
        case("an object without a value", "its text is there", call, [exchange(run_request(), answer(run_result("<object object at 0x7f>")))], {"result": {"text": "<object object at 0x7f>", "value": None}}),
        case("a value in JSON", "it takes precedence over the text", call, [exchange(run_request(), answer(run_result("X", [{"text/plain": "X", "application/json": {"a": 1}}])))], {"result": {"value": {"a": 1}}}),
        case("an exception", "it is a result and no error", call, [exchange(run_request(), answer(run_result(error={"name": "ZeroDivisionError", "value": "division by zero", "traceback": "…"}, stderr="s")))],
             {"result": {"error": {"name": "ZeroDivisionError", "value": "division by zero"}, "stderr": "s", "value": None}}),
        case("rich results", "each in all of its forms", call, [exchange(run_request(), answer(run_result("X", [{"text/plain": "X", "text/html": "<b>", "image/png": "iVBORw0KGgo="}])))], {"result": {"results": [["image/png", "text/html", "text/plain"]]}}),
        case("a cell that timed out", "the error has the output until then", ("run_code", {"code": "x", "timeout": 0.5}), [exchange(run_request(timeout_ms=500), answer(run_result(error={"name": "KeyboardInterrupt", "value": "", "traceback": ""}, stdout="begun", timed_out=True)))],
             error("Timeout", "timeout", result={"stdout": "begun"})),
        case("code in a context", "name and language", ("run_code", {"code": "x", "context": "c", "language": "node"}), [exchange(run_request(context="c", language="node"), answer(run_result("1")))], {"result": {"value": 1}}),
        case("a member that is new", "members that an SDK does not know are no error", call, [exchange(run_request(), answer({**run_result("1"), "novelty": [1]}))], {"result": {"value": 1}}),
        case("a cell is not run twice", "the daemon ends before its answer", call, [exchange(run_request(), [], "close")], error("Unavailable", "unavailable", detail="before it had answered")),
        case("a cell in a sandbox that is gone", "the probe finds it", call, [exchange(run_request(), [], "hang")], error("SandboxGone", "not_found"), probe="gone"),
        case("an answer that is no JSON", "it is an error", call, [exchange(run_request(), head("200 OK", "application/json", "Content-Length: 1") + b"{")], error("Unavailable", "unavailable")),
    ]  # fmt: skip


def changes() -> list[Any]:
    create = request("POST", "/v1/sandboxes", headers={"idempotency-key": "*"}, body={"image": "python"})
    again = {**create, "same": ["idempotency-key"]}
    fork = request("POST", f"/v1/sandboxes/{SBX}/fork", headers={"idempotency-key": "*"}, body={"count": 2})
    kids = ["sbx_bbbbbbbbbbbbbbbb", "sbx_cccccccccccccccc"]
    forked = {"pause_ms": 1, "snapshot_ms": 2, "return_ms": 3}
    secret = {"name": "KEY", "names": ["api.example.org"], "header": "Authorization", "created_at": "2026-11-25T12:00:00Z", "updated_at": "2026-11-25T12:00:00Z"}
    child_error = {"code": "out_of_memory", "detail": "no memory is left"}
    return [
        case("create", "limits and lifecycle in their units", ("create", {"image": "python", "name": "n", "memory": 512, "ttl": 60}),
             [exchange(request("POST", "/v1/sandboxes", body={"image": "python", "name": "n", "limits": {"memory_mib": 512}, "lifecycle": {"ttl_ms": 60000}}), answer(sandbox(), "201 Created"))], {"result": {"id": SBX, "state": "running"}}),
        case("a create that is repeated", "the daemon ended before its answer: the same key goes with the repetition", ("create", {"image": "python"}),
             [exchange(create, [], "close"), exchange(again, answer(sandbox(), "201 Created"))], {"result": {"id": SBX}}),
        case("a daemon that is about to end", "503 is tried again with the same key", ("create", {"image": "python"}),
             [exchange(create, problem(503, "unavailable", "the daemon is about to end", "Retry-After: 0")), exchange(again, answer(sandbox(), "201 Created"))], {"result": {"id": SBX}}),
        case("a quota", "which one, and how much of it", ("create", {"image": "python"}), [exchange(create, problem(429, "limit_exceeded", "too many", exceeded={"limit": "sandboxes", "max": 2, "of": "tenant a", "used": 2}))],
             error("LimitExceeded", "limit_exceeded", status=429)),
        case("a token that is wrong", "401", ("create", {"image": "python"}), [exchange(create, problem(401, "unauthenticated", "no token"))], error("PermissionDenied", "unauthenticated")),
        case("a name that is taken", "409", ("create", {"image": "python"}), [exchange(create, problem(409, "name_taken", "taken", field="name"))], error("Conflict", "name_taken", field="name")),
        case("fork", "children in their order", ("fork", {"n": 2}), [exchange(fork, answer({**forked, "children": [{"sandbox": sandbox(k)} for k in kids]}))], {"result": {"children": kids}}),
        case("a fork of which a child failed", "the error has the other child", ("fork", {"n": 2}), [exchange(fork, answer({**forked, "children": [{"sandbox": sandbox(kids[0])}, {"error": child_error}]}))],
             error("ForkError", "out_of_memory", children=[kids[0]])),
        case("a fork with names", "they say how many", ("fork", {"names": ["a", "b"]}), [exchange(request("POST", f"/v1/sandboxes/{SBX}/fork", body={"count": 2, "names": ["a", "b"]}), answer({**forked, "children": [{"sandbox": sandbox(k)} for k in kids]}))], {"result": {"children": kids}}),
        case("destroy", "no body", ("destroy", {}), [exchange(request("DELETE", f"/v1/sandboxes/{SBX}"), b"HTTP/1.1 204 No Content\r\n\r\n")], {"result": None}),
        case("info of a state that is new", "a state that an SDK does not know is no error", ("info", {}), [exchange(request("GET", f"/v1/sandboxes/{SBX}"), answer(sandbox(state="levitating")))], {"result": {"state": "levitating"}}),
        case("a member that the daemon does not know", "it is older than the SDK", ("create", {"image": "python"}), [exchange(create, problem(400, "invalid_argument", "body.novelty: unexpected property", field="novelty"))],
             error("InvalidRequest", "invalid_argument", field="novelty", remedy="older")),
        case("a route that the daemon does not know", "it is older than the SDK", ("fork", {"n": 2}), [exchange(fork, problem(404, "not_found", 'no route "POST /v1/x"'))], error("InvalidRequest", "not_found", remedy="older")),
        case("a newer daemon", "members that the SDK does not know are no errors", ("create", {"image": "python"}), [exchange(create, answer(sandbox(novelty=[1]), "201 Created", "application/json", f"{INTERFACE}: 1.999"))],
             {"result": {"id": SBX, "state": "running"}}),
        case("another interface", "whatever the daemon answers", ("create", {"image": "python"}), [exchange(create, answer({"id": 1}, "201 Created", "application/json", f"{INTERFACE}: 2.0"))],
             error("VersionMismatch", "unsupported", detail="2.0", remedy="release")),
        case("another interface with other problems", "its errors are not looked at", ("info", {}), [exchange(request("GET", f"/v1/sandboxes/{SBX}"), answer({"error": "?"}, "404 Not Found", "application/json", f"{INTERFACE}: 0.9"))],
             error("VersionMismatch", "unsupported", detail="0.9")),
        case("a route that a newer daemon does not know", "it is not older", ("fork", {"n": 2}), [exchange(fork, problem(404, "not_found", 'no route "POST /v1/x"', f"{INTERFACE}: 1.999"))], error("NotFound", "not_found", detail="no route")),
        case("a fork that holds writes", "children have the secret variables, too", ("fork", {"n": 2, "hold": True, "record": True, "secret_env": True}), [exchange(request("POST", f"/v1/sandboxes/{SBX}/fork", body={"count": 2, "hold": "writes", "record": True, "secret_env": True}), answer({**forked, "children": [{"sandbox": sandbox(k)} for k in kids]}))], {"result": {"children": kids}}),
        case("held requests", "with their states", ("held", {}), [exchange(request("GET", HELD), answer({"items": [held("h1", "waiting"), held("h2", "unknown")]}))], {"result": {"ids": ["h1", "h2"], "states": ["waiting", "unknown"]}}),
        case("a release of all", "the body says nothing of which", ("release", {}), [exchange(request("POST", f"{HELD}/release", headers={"idempotency-key": "*"}, body={}), answer({"items": [held("h1", "sent")]}))], {"result": {"ids": ["h1"], "states": ["sent"]}}),
        case("a release of one again", "that may have been sent already", ("release", {"id": "h2", "again": True}), [exchange(request("POST", f"{HELD}/release", body={"id": "h2", "again": True}), answer({"items": [held("h2", "sent")]}))], {"result": {"ids": ["h2"], "states": ["sent"]}}),
        case("a drop", "of one request", ("drop", {"id": "h1"}), [exchange(request("POST", f"{HELD}/drop", body={"id": "h1"}), answer({"items": [held("h1", "dropped")]}))], {"result": {"ids": ["h1"], "states": ["dropped"]}}),
        case("secrets", "without values", ("secrets", {}), [exchange(request("GET", "/v1/secrets"), answer({"items": [secret]}))], {"result": {"names": ["KEY"]}}),
        case("a secret is set", "its value goes to the daemon only", ("set_secret", {"name": "KEY", "value": "v", "names": ["api.example.org"], "header": "Authorization", "methods": ["GET"]}),
             [exchange(request("PUT", "/v1/secrets/KEY", body={"value": "v", "names": ["api.example.org"], "header": "Authorization", "methods": ["GET"]}), answer(secret))], {"result": {"name": "KEY"}}),
        case("a published port", "with a token", ("publish", {"port": 80, "host_port": 8080, "token": "t" * 16}), [exchange(request("POST", PUBLISHED, body={"port": 80, "host_port": 8080, "token": "t" * 16}), answer({"port": 80, "address": "127.0.0.1", "host_port": 8080, "protected": True, "connections": 0}, "201 Created"))],
             {"result": {"host_port": 8080, "protected": True}}),
        case("a port is published no more", "no body", ("unpublish", {"host_port": 8080}), [exchange(request("DELETE", f"{PUBLISHED}/8080"), b"HTTP/1.1 204 No Content\r\n\r\n")], {"result": None}),
        case("a wrong state", "409", ("merge", {"from": ["b"]}), [exchange(request("POST", f"/v1/sandboxes/{SBX}/merge", body="*"), problem(409, "wrong_state", "it is paused"))], error("Conflict", "wrong_state")),
    ]  # fmt: skip


def files() -> list[Any]:
    data = bytes(range(256))
    info = {"path": "/a b", "type": "file", "size": 3, "mode": "0644", "uid": 0, "gid": 0, "links": 1, "modified_at": "2026-11-25T12:00:00Z"}
    octets = "application/octet-stream"
    listing = f"{FILES}/list"
    return [
        case("read", "bytes as they are", ("read", {"path": "/a b"}), [exchange(request("GET", FILES, query={"path": "/a b"}), split(head("200 OK", octets, "Content-Length: 256") + data, 100, 200))], {"result": {"base64": base64.b64encode(data).decode()}}),
        case("a file that breaks off", "its length says that it is not whole", ("read", {"path": "/a"}), [exchange(request("GET", FILES, query={"path": "/a"}), head("200 OK", octets, "Content-Length: 256") + data[:100], "close")], error("Unavailable", "unavailable", detail="broke off")),
        case("write", "the body is the contents", ("write", {"path": "/a b", "base64": "AP8K"}), [exchange(request("PUT", FILES, query={"path": "/a b", "parents": "true"}, headers={"content-type": octets}), answer(info, "201 Created"))], {"result": {"size": 3}}),
        case("a list in pages", "the token of a page leads to the next one", ("list", {"path": "/"}),
             [exchange(request("GET", listing, query={"path": "/", "depth": "1", "limit": "10000"}), answer({"items": [info], "next_page_token": "t"})), exchange(request("GET", listing, query={"path": "/", "depth": "1", "limit": "10000", "page_token": "t"}), answer({"items": [{**info, "path": "/z"}]}))],
             {"result": {"paths": ["/a b", "/z"]}}),
        case("a file that does not exist", "404", ("read", {"path": "/none"}), [exchange(request("GET", FILES, query={"path": "/none"}), problem(404, "not_found", "no file /none"))], error("NotFound", "not_found")),
        case("permission", "403 of the user in the sandbox", ("read", {"path": "/x"}), [exchange(request("GET", FILES, query={"path": "/x"}), problem(403, "permission_denied", "read /x: permission denied"))], error("PermissionDenied", "permission_denied")),
    ]  # fmt: skip


def streams() -> list[Any]:
    kind = "text/event-stream"
    path = f"/v1/sandboxes/{SBX}/processes/7/output"
    call = ("process_output", {"pid": 7})
    first = event("stdout", output(b"one", 0), "3") + event("stderr", output(b"\xff", 3), "4")
    rest = event("stdout", output("\u00fc".encode(), 4), "6") + event("position", {"next_seq": 6, "exit": exit_of(5)})
    ask = request("GET", path, query={"follow": "true"})
    log = f"/v1/sandboxes/{SBX}/events"
    good = {"result": {"chunks": [["stdout", "one"], ["stderr", "\ufffd"], ["stdout", "\u00fc"]], "lost": 0, "exit_code": 5}}
    body = chunked(kind, first, rest)
    return [
        case("output", "events of output", call, [exchange(ask, body)], good),
        case("output, a byte at a time", "each byte is a piece", call, [exchange(ask, [{"base64": base64.b64encode(body[i : i + 1]).decode()} for i in range(len(body))])], good),
        case("output that breaks off", "it goes on at the byte after those that came", call, [exchange(ask, chunked(kind, first, end=False), "close"), exchange(request("GET", path, query={"follow": "true", "from": "4"}), chunked(kind, rest))], good),
        case("output with lines that end in CRLF and comments", "as the format of events allows", call, [exchange(ask, chunked(kind, b": hello\r\n\r\n", first.replace(b"\n", b"\r\n"), rest))], good),
        case("output that is lost", "how many bytes", call, [exchange(ask, chunked(kind, event("lost", {"seq": 0, "bytes": 9}), event("stdout", output(b"x", 9)), event("position", {"next_seq": 10})))], {"result": {"chunks": [["stdout", "x"]], "lost": 9, "exit_code": None}}),
        case("an event of a kind that is new", "it is passed over", call, [exchange(ask, chunked(kind, event("novelty", {"a": 1}), first, rest))], good),
        case("an event of an error", "it is raised", call, [exchange(ask, chunked(kind, first, event("error", {"type": "x", "title": "x", "status": 409, "detail": "the sandbox ended", "code": "sandbox_died"})))], error("SandboxGone", "sandbox_died")),
        case("an event that is no JSON", "it is an error", call, [exchange(ask, chunked(kind, b"event: stdout\ndata: {\n\n"))], error("Unavailable", "unavailable")),
        case("the event log", "kinds in their order", ("events", {}), [exchange(request("GET", log, query={"follow": "false", "since": "0"}), chunked(kind, *(event("event", {"seq": i, "time": "2026-11-25T12:00:00Z", "sandbox_id": SBX, "kind": k}, str(i)) for i, k in enumerate(["created", "forked"], 1)), event("end", {})))], {"result": {"kinds": ["created", "forked"]}}),
    ]  # fmt: skip


FILES_OF = {"exec": execs, "run-code": codes, "changes": changes, "explorations": explorations, "files": files, "streams": streams}


def main() -> int:
    stale = []
    for name, make in FILES_OF.items():
        text = json.dumps(make(), indent=1, ensure_ascii=True) + "\n"
        target = HERE / f"{name}.json"
        if "--check" in sys.argv[1:]:
            if not target.exists() or target.read_text() != text:
                stale.append(str(target))
        else:
            target.write_text(text)
    if stale:
        print(f"not current: {', '.join(stale)}: run python sdk/vectors/make.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
