"""Keeps the readings in memory, and answers how many there are. It returns when it listens, and goes on behind."""

import os
import socketserver
import sqlite3

rows = sqlite3.connect("readings.db").execute("SELECT * FROM readings").fetchall()


class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(b"%d\n" % len(rows))


with socketserver.TCPServer(("127.0.0.1", 7000), Answer) as server:
    if os.fork():
        os._exit(0)
    os.setsid()
    for fd in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), fd)
    server.serve_forever()
