"""A warm process: it serves programs on what it has in memory.

A request is a Python program. It runs in one name space that all requests
share, and the answer is what it printed.
"""
import contextlib
import http.server
import io
import sys
import traceback

import numpy as np

memory = {"np": np}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        program = self.rfile.read(int(self.headers["Content-Length"])).decode()
        printed, status = io.StringIO(), 200
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(program, "request", "exec"), memory)
            except Exception:
                status = 500
                traceback.print_exc(file=printed)
        body = printed.getvalue().encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever(3600)  # by default it wakes up twice a second
