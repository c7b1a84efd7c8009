"""A sandbox by its names, over TLS: the only address is E2B_DOMAIN. The argument is the template."""

import sys
import tempfile
import time
import urllib.error
import urllib.request

from e2b import Sandbox, Template

s = Sandbox.create(sys.argv[1], timeout=120, network={"allow_public_traffic": True})
assert s.commands.run("echo hi").stdout == "hi\n"
s.files.write("/tmp/a", "text")
assert s.files.read("/tmp/a") == "text"
assert urllib.request.urlopen(s.download_url("/tmp/a")).read() == b"text"
s.commands.run("cd /tmp && exec python3 -m http.server 8000", background=True)
for _ in range(200):
    try:
        assert urllib.request.urlopen(f"https://{s.get_host(8000)}/a").read() == b"text"
        break
    except urllib.error.HTTPError as e:
        assert e.code == 502, e
        time.sleep(0.05)
else:
    raise AssertionError("nobody listens")
with tempfile.TemporaryDirectory() as context:
    with open(f"{context}/b", "w") as f:
        f.write("built")
    build = Template(file_context_path=context).from_image(sys.argv[1]).copy("b", "/srv/b").run_cmd("cat /srv/b", user="root")
    Template.build(build, "over-tls")
built = Sandbox.create("over-tls", timeout=60)
assert built.files.read("/srv/b") == "built"
built.kill()
[child] = s.fork()
assert child.files.read("/tmp/a") == "text"
child.kill()
s.kill()
print("done")
