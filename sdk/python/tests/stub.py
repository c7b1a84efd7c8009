"""A server that plays the exchanges of a vector."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import threading
from typing import Any, Dict, List, Optional, Tuple
from urllib.parse import parse_qsl, urlsplit

SBX = "sbx_aaaaaaaaaaaaaaaa"


class Stub:
    """Plays exchanges at a Unix socket. `faults` is what requests were not as the vector says."""

    def __init__(self, path: str, exchanges: List[Dict[str, Any]], probe: str = "ok") -> None:
        self.faults: List[str] = []
        self.connections = 0
        self._exchanges = list(exchanges)
        self._probe = probe
        self._before: Dict[str, str] = {}
        self._lock = threading.Lock()
        self._open: List[socket.socket] = []
        if os.path.exists(path):
            os.unlink(path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """End, and note exchanges that were left."""
        for connection in [self._listener, *self._open]:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            connection.close()
        for thread in self._threads:
            thread.join(10)
        if self._exchanges:
            self.faults.append(f"{len(self._exchanges)} exchanges were left")

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as incoming:
                while True:
                    request = self._read(incoming)
                    if request is None or not self._answer(connection, *request):
                        return
        except OSError:
            pass

    def _read(self, incoming: Any) -> Optional[Tuple[str, str, Dict[str, str], bytes]]:
        line = incoming.readline()
        if not line:
            return None
        method, target, _ = line.decode().split(" ", 2)
        headers: Dict[str, str] = {}
        while True:
            line = incoming.readline()
            if line in (b"\r\n", b""):
                break
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        if headers.get("transfer-encoding") == "chunked":
            body = b""
            while True:
                size = int(incoming.readline(), 16)
                body += incoming.read(size)
                incoming.readline()
                if not size:
                    break
        else:
            body = incoming.read(int(headers.get("content-length", "0")))
        return method, target, headers, body

    def _answer(self, connection: socket.socket, method: str, target: str, headers: Dict[str, str], body: bytes) -> bool:
        url = urlsplit(target)
        with self._lock:
            expected = self._exchanges[0]["request"] if self._exchanges else {}
            is_next = (method, url.path) == (expected.get("method"), expected.get("path"))
            if method == "GET" and not is_next and url.path in ("/healthz", f"/v1/sandboxes/{SBX}"):
                return self._answer_probe(connection, url.path)
            if not self._exchanges:
                self.faults.append(f"a request more: {method} {target}")
                return False
            exchange = self._exchanges.pop(0)
            self._compare(expected, method, url.path, dict(parse_qsl(url.query, keep_blank_values=True)), headers, body)
            self._before = headers
        for piece in exchange["response"]:
            connection.sendall(piece.encode() if isinstance(piece, str) else base64.b64decode(piece["base64"]))
        end = exchange["end"]
        if end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if end in ("close", "reset"):
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        return end == "keep"

    def _answer_probe(self, connection: socket.socket, path: str) -> bool:
        if self._probe == "hang":
            return True
        document: Dict[str, Any] = {"status": "ok", "version": "v", "pid": 1}
        status = "200 OK"
        if path != "/healthz":
            document = {"id": SBX, "state": "running"}
            if self._probe == "gone":
                status, document = "404 Not Found", {"code": "not_found", "detail": f'no sandbox "{SBX}"'}
            if self._probe == "failed":
                document = {"id": SBX, "state": "failed", "reason": "init exited"}
        body = json.dumps(document).encode()
        connection.sendall(f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        return True

    def _compare(
        self, want: Dict[str, Any], method: str, path: str, query: Dict[str, str], headers: Dict[str, str], body: bytes
    ) -> None:
        if (method, path) != (want["method"], want["path"]):
            self.faults.append(f"{method} {path} instead of {want['method']} {want['path']}")
        if "query" in want and query != want["query"]:
            self.faults.append(f"query {query} instead of {want['query']}")
        for name, value in want.get("headers", {}).items():
            got = headers.get(name)
            if got is None or value not in ("*", got):
                self.faults.append(f"header {name}: {got!r} instead of {value!r}")
        for name in want.get("same", []):
            if headers.get(name) != self._before.get(name):
                self.faults.append(f"header {name} is another one")
        if want.get("body") not in (None, "*"):
            got_body = json.loads(body)
            if isinstance(got_body, dict):
                anything = {name: "*" for name, value in want["body"].items() if value == "*" and name in got_body}
                got_body = {**got_body, **anything}
            if got_body != want["body"]:
                self.faults.append(f"body {got_body} instead of {want['body']}")
