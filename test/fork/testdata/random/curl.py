"""Answers each line with the process id of curl and a boundary between parts of a form that
it has drawn since the line arrived: one process of curl sends many forms."""
import re
import socket
import subprocess
import sys


def form():
    """Returns the next request and its boundary."""
    c, _ = server.accept()
    text = b""
    while not text.endswith(b"--\r\n"):
        part = c.recv(1 << 16)
        if not part:
            raise EOFError(text)
        text += part
    return c, re.search(rb"boundary=-*(\w+)", text)[1].decode()


server = socket.create_server(("127.0.0.1", 7004))
curl = subprocess.Popen(["curl", "-s", "-F", "a=b", "http://127.0.0.1:7004/[1-1000]"])
connection, boundary = form()
for _ in sys.stdin:
    connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")
    connection.close()
    connection, boundary = form()
    with open(f"/proc/{curl.pid}/stat") as f:
        print("".join(f.read().split()[:2]), boundary, flush=True)
