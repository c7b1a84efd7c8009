"""Answers each line with the process id of nginx's worker and a number it has drawn."""
import subprocess
import sys
import urllib.request

CONFIG = """
worker_processes 1;
pid /tmp/nginx.pid;
events {}
http {
    access_log off;
    server {
        listen 127.0.0.1:7001;
        location / { return 200 "$pid $request_id"; }
    }
}
"""

with open("/tmp/nginx.conf", "w") as f:
    f.write(CONFIG)
subprocess.run(["nginx", "-e", "/tmp/nginx.err", "-c", "/tmp/nginx.conf"], check=True)
for _ in sys.stdin:
    print(urllib.request.urlopen("http://127.0.0.1:7001/", timeout=20).read().decode(), flush=True)
