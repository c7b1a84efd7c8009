"""Holds so many objects of a kind, and says how many to whoever connects to a port."""

import mmap
import os
import resource
import socket
import sys

kind, n, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (4 * n, 4 * n))
make = {
    "maps": lambda: mmap.mmap(-1, 8192),
    "memfds": lambda: os.memfd_create("object"),
    "pairs": socket.socketpair,
}[kind]
held = [make() for _ in range(n)]
server = socket.create_server(("127.0.0.1", port))
while True:
    asking, _ = server.accept()
    with asking:
        asking.sendall(b"%d\n" % len(held))
