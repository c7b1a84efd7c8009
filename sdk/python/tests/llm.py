"""A server that speaks the Messages protocol of models, with a scripted model, behind a proxy for a daemon."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HOST = "api.llm.example.com"
KEY = "sk-0123456789abcdef"
SCRIPT = [  # what the model has run, one command after the other; old bytecode would hide a change within a second
    "cd /srv/repo && python3 -B -m unittest -q 2>&1 | tail -n 3",
    "cd /srv/repo && sed -i 's/a - b/a + b/' calc.py && python3 -B -m unittest -q 2>&1 | tail -n 1",
]


def reply(body: dict[str, Any]) -> dict[str, Any]:
    """Return what the model answers to a conversation."""
    contents = [message["content"] for message in body["messages"]]
    results = [block for content in contents if isinstance(content, list) for block in content]
    step = sum(block["type"] == "tool_result" for block in results)
    if step < len(SCRIPT):
        assert [tool["name"] for tool in body["tools"]] == ["bash"]
        use = {"type": "tool_use", "id": f"toolu_{step}", "name": "bash", "input": {"command": SCRIPT[step]}}
        return {"content": [{"type": "text", "text": "I look."}, use], "stop_reason": "tool_use"}
    said = "I mended it: the tests pass." if results[-1]["content"].strip() == "OK" else "I failed."
    return {"content": [{"type": "text", "text": said}], "stop_reason": "end_turn"}


class Messages(BaseHTTPRequestHandler):
    """Answers POST /v1/messages to who has the key."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["x-api-key"] != KEY:
            self.refuse(401, "authentication_error", "invalid x-api-key")
        elif self.path != "/v1/messages" or not self.headers["anthropic-version"]:
            self.refuse(404, "not_found_error", self.path)
        else:
            about = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
            self.answer(200, {**about, "usage": {"input_tokens": 1, "output_tokens": 1}, **reply(body)})

    def refuse(self, status: int, kind: str, message: str) -> None:
        self.answer(status, {"type": "error", "error": {"type": kind, "message": message}})

    def answer(self, status: int, document: dict[str, Any]) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class Llm:
    """The server at HOST, as a daemon sees it whose environment has `env`."""

    def __init__(self, home: Path) -> None:
        import trustme

        authority = trustme.CA()
        authority.cert_pem.write_to_path(home / "llm-ca.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert(HOST).configure_cert(context)
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Messages)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        port = self.listener.getsockname()[1]
        self.env = {"HTTPS_PROXY": f"http://127.0.0.1:{port}", "NO_PROXY": ""}
        self.env["SSL_CERT_FILE"] = str(home / "llm-ca.pem")
        for work in (self.server.serve_forever, self.proxy):
            threading.Thread(target=work, daemon=True).start()

    def proxy(self) -> None:
        """Serve CONNECT to HOST, and refuse all else."""
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.tunnel, args=(client,), daemon=True).start()

    def tunnel(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):  # each end may break off
            head = b""
            while b"\r\n\r\n" not in head:
                part = client.recv(4096)
                if not part:
                    return
                head += part
            if head.split()[:2] != [b"CONNECT", f"{HOST}:443".encode()]:
                client.sendall(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
                return
            with socket.create_connection(self.server.server_address[:2]) as server:
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    for end in select.select([client, server], [], [])[0]:
                        data = end.recv(65536)
                        if not data:
                            return
                        (server if end is client else client).sendall(data)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.listener.close()
