"""What users of E2B's Python packages do, against a daemon of Ramet. The argument is the template."""

import asyncio
import os
import sys
import tempfile
import time
import urllib.request

from e2b import AsyncSandbox, FileNotFoundException, Sandbox, SandboxNotFoundException, Template, wait_for_file
from e2b.exceptions import AuthenticationException, BuildException, SandboxException, TimeoutException
from e2b.sandbox.commands.command_handle import CommandExitException, PtySize
from e2b_code_interpreter import Sandbox as Interpreter

try:
    from e2b.exceptions import SandboxNotRunningException
except ImportError:  # older clients
    SandboxNotRunningException = SandboxException
try:
    from e2b import Volume
    from e2b.exceptions import VolumeException, VolumePathNotFoundException
except ImportError:
    Volume = None
try:
    from e2b import Secret
    from e2b.exceptions import SecretException, SecretNotFoundException
except ImportError:
    Secret = None

TEMPLATE = sys.argv[1]
OWN = f"own-{os.getpid()}"


def raises(kind, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as e:
        return e
    raise AssertionError(f"{call} raised nothing")


def until(holds):
    for _ in range(600):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it does not happen")


def commands(s):
    r = s.commands.run("echo out; echo err >&2; echo $WHO $E2B_SANDBOX_ID", envs={"WHO": "me"})
    assert (r.stdout, r.stderr, r.exit_code) == (f"out\nme {s.sandbox_id}\n", "err\n", 0), r
    assert s.commands.run("pwd", cwd="/usr").stdout == "/usr\n"
    assert s.commands.run("id -un", user="nobody", cwd="/").stdout == "nobody\n"
    assert raises(CommandExitException, s.commands.run, "exit 7").exit_code == 7
    raises(TimeoutException, s.commands.run, "sleep 100", timeout=0.5)
    until(lambda: not s.commands.list())
    out = []
    h = s.commands.run("read a; echo got $a; cat", background=True, stdin=True)
    until(lambda: [p.pid for p in s.commands.list()] == [h.pid])  # one that timed out may have come late
    assert s.commands.list()[0].args[-1] == "read a; echo got $a; cat"
    s.commands.send_stdin(h.pid, "it\nmore")
    s.commands.close_stdin(h.pid)
    assert h.wait(on_stdout=out.append).stdout == "got it\nmore", out
    h = s.commands.run("echo begun; sleep 100", background=True)
    again = s.commands.connect(h.pid)
    assert again.kill()
    assert raises(CommandExitException, again.wait).exit_code == -1
    assert not s.commands.kill(h.pid)
    big = s.commands.run("head -c 3000000 /dev/zero | tr '\\0' x")
    assert len(big.stdout) == 3000000


def terminals(s):
    out = []
    p = s.pty.create(PtySize(rows=24, cols=80))
    s.pty.resize(p.pid, PtySize(rows=30, cols=100))
    s.pty.send_stdin(p.pid, b"stty size; exit 4\n")
    assert raises(CommandExitException, p.wait, on_pty=out.append).exit_code == 4
    assert b"30 100" in b"".join(out), out


def files(s):
    home = s.commands.run("echo -n ~").stdout
    assert s.files.write("a/b.txt", "text").path == f"{home}/a/b.txt"
    assert s.files.read("a/b.txt") == "text" and s.files.read(f"{home}/a/b.txt", format="bytes") == b"text"
    assert b"".join(s.files.read("a/b.txt", format="stream")) == b"text"
    s.files.write_files([{"path": "a/1", "data": b"\x00\xff"}, {"path": "a/2", "data": "two"}])
    assert s.files.read("a/1", format="bytes") == b"\x00\xff"
    s.files.write("a/gz", "z" * 100000, gzip=True)
    assert s.files.read("a/gz") == "z" * 100000
    s.commands.run("ln -s b.txt a/link; mkdir -p a/deep/er; chmod 600 a/b.txt")
    found = {e.name: e for e in s.files.list("a")}
    assert sorted(found) == ["1", "2", "b.txt", "deep", "gz", "link"], found
    assert found["link"].symlink_target == f"{home}/a/b.txt" and found["b.txt"].permissions == "-rw-------" and found["b.txt"].size == 4
    assert f"{home}/a/deep/er" in [e.path for e in s.files.list("a", depth=2)]
    assert s.files.get_info("a").type.value == "dir"
    assert s.files.make_dir("d/e") and not s.files.make_dir("d/e")
    assert s.files.rename("a/2", "d/two").path == f"{home}/d/two"
    assert s.files.exists("d/two") and not s.files.exists("a/2")
    s.files.remove("d")
    assert not s.files.exists("d")
    for wrong in (lambda: s.files.read("none"), lambda: s.files.list("none"), lambda: s.files.get_info("none")):
        raises(FileNotFoundException, wrong)
    raises(SandboxException, s.files.list, "a/b.txt")
    seen = set()
    w = s.files.watch_dir(home, recursive=True)
    s.files.write("a/new", "1")
    s.files.remove("a/new")

    def all_seen():
        seen.update((e.name, e.type.value) for e in w.get_new_events())
        return ("a/new", "remove") in seen

    until(all_seen)
    w.stop()
    url = s.download_url("a/b.txt", use_signature_expiration=60)
    assert urllib.request.urlopen(url).read() == b"text"
    raises(urllib.error.HTTPError, urllib.request.urlopen, url.replace("b.txt", "1"))
    raises(urllib.error.HTTPError, urllib.request.urlopen, s.download_url("a/b.txt", use_signature_expiration=-10))


def lives(s):
    assert s.is_running() and s.get_info().metadata["case"] == "e2b"
    s.set_timeout(3600)
    assert (s.get_info().end_at - s.get_info().started_at).total_seconds() > 3000
    kids = s.fork(count=3)
    assert [k.files.read("a/b.txt") for k in kids] == ["text"] * 3
    kids[0].files.write("a/b.txt", "other")
    assert s.files.read("a/b.txt") == "text"
    page = Sandbox.list(limit=2)
    shown = page.next_items()
    while page.has_next:
        shown += page.next_items()
    assert {x.sandbox_id for x in kids + [s]} <= {x.sandbox_id for x in shown}
    for k in kids:
        assert k.kill() and not k.kill()
    assert not kids[0].is_running()
    raises(SandboxNotRunningException, kids[0].commands.run, "true")
    raises(SandboxNotFoundException, Sandbox.connect, kids[0].sandbox_id)
    pid = s.commands.run("sleep 1000", background=True).pid
    s.pause()
    assert Sandbox.get_info(s.sandbox_id).state.value == "paused"
    raises(SandboxException, s.commands.run, "true")
    s = Sandbox.connect(s.sandbox_id)
    assert pid in [p.pid for p in s.commands.list()]  # processes go on
    s.commands.kill(pid)
    snap = s.create_snapshot()
    n = Sandbox.create(snap.snapshot_id, timeout=60)
    assert n.files.read("a/b.txt") == "text"
    n.kill()
    assert Sandbox.delete_snapshot(snap.snapshot_id)
    m = s.get_metrics()
    assert m[0].mem_used > 0, m
    short = Sandbox.create(TEMPLATE, timeout=1)
    until(lambda: not short.is_running())
    resting = Sandbox.create(TEMPLATE, timeout=1, lifecycle={"on_timeout": "pause"})
    until(lambda: Sandbox.get_info(resting.sandbox_id).state.value == "paused")
    Sandbox.kill(resting.sandbox_id)


def wrong(s):
    raises(AuthenticationException, Sandbox.create, TEMPLATE, api_key="e2b_" + "0" * 64)
    raises(SandboxException, Sandbox.create, "no-such-template")
    raises(SandboxException, Sandbox.create, TEMPLATE, mcp={"browserbase": {}})
    other = Sandbox.create(TEMPLATE)
    for to in ("/files?path=a/b.txt", "/envs"):
        req = urllib.request.Request(
            os.environ["E2B_SANDBOX_URL"] + to,
            headers={"E2b-Sandbox-Id": s.sandbox_id, "X-Access-Token": other._envd_access_token},
        )
        assert raises(urllib.error.HTTPError, urllib.request.urlopen, req).code == 401
    other.kill()


def secrets():
    name = f"llm-key-{os.getpid()}"
    made = Secret.create(name, "sk-0123456789", metadata={"team": "blue"})
    assert (made.name, made.version, made.metadata) == (name, 1, {"team": "blue"}), made
    raises(SecretException, Secret.create, name, "again")
    assert Secret.update(name, "sk-9876543210").version == 2
    assert name in [x.name for x in Secret.list().next_items()]
    rules = {"api.example.org": [{"transform": {"headers": {"Authorization": f"Bearer {Secret.fill(name)}", "X-Team": "blue"}}}]}
    s = Sandbox.create(TEMPLATE, network={"rules": rules})
    assert "sk-" not in s.commands.run("env").stdout
    s.update_network({"rules": rules, "allow_out": ["api.example.org"], "deny_out": ["0.0.0.0/0"]})
    s.kill()
    missing = {"api.example.org": [{"transform": {"headers": {"X": Secret.fill("no-such")}}}]}
    raises(SandboxException, Sandbox.create, TEMPLATE, network={"rules": missing})
    assert Secret.destroy(name) and not Secret.exists(name)
    raises(SecretNotFoundException, Secret.get_info, name)


def volumes():
    name = f"shared-{os.getpid()}"
    v = Volume.create(name)
    raises(VolumeException, Volume.create, name)
    assert (Volume.connect(v.volume_id).name, Volume.get_info(v.volume_id).name) == (name, name)
    assert name in [x.name for x in Volume.list()]
    v.write_file("/in.txt", "from outside")
    assert v.make_dir("/a/b", force=True, uid=1000, gid=1000, mode=0o750).type == "directory"
    raises(VolumePathNotFoundException, v.make_dir, "/x/y")
    one, two = (Sandbox.create(TEMPLATE, timeout=300, volume_mounts={"/mnt/shared": v}) for _ in range(2))
    assert one.commands.run("cat /mnt/shared/in.txt; echo inside > /mnt/shared/a/b/c; stat -c %a:%u /mnt/shared/a/b", user="root").stdout == "from outside750:1000\n"
    assert two.files.read("/mnt/shared/a/b/c", user="root") == "inside\n"
    assert v.read_file("/a/b/c") == "inside\n" and v.read_file("/a/b/c", format="bytes") == b"inside\n"
    assert b"".join(v.read_file("/a/b/c", format="stream")) == b"inside\n"
    child = one.fork(1)[0]
    child = child if isinstance(child, Sandbox) else child.sandbox
    child.commands.run("echo child >> /mnt/shared/a/b/c; ln -s a/b /mnt/shared/l", user="root")
    assert two.files.read("/mnt/shared/a/b/c", user="root") == "inside\nchild\n"
    assert [(e.path, str(e.type)) for e in v.list("/", depth=3)] == [
        ("/a", "directory"), ("/a/b", "directory"), ("/a/b/c", "file"), ("/in.txt", "file"), ("/l", "symlink")
    ], v.list("/", depth=3)
    assert v.get_info("/l").target == "a/b"
    v.write_file("/a/b/c", b"new", mode=0o600)
    assert v.update_metadata("/a/b/c", uid=7).uid == 7 and v.get_info("/a/b/c").mode == 0o600
    assert one.commands.run("stat -c %a:%u:%s /mnt/shared/a/b/c", user="root").stdout == "600:7:3\n"
    v.remove("/a")
    assert not v.exists("/a/b") and v.exists("/in.txt")
    raises(VolumePathNotFoundException, v.read_file, "/a/b/c")
    raises(Exception, Volume(v.volume_id, name, token="wrong").list, "/")
    raises(VolumeException, Volume.destroy, v.volume_id)  # sandboxes have it
    for s in (one, two, child):
        s.kill()
    assert Volume.destroy(v.volume_id) and not Volume.destroy(v.volume_id)
    raises(SandboxException, Sandbox.create, TEMPLATE, volume_mounts={"/v": name})


def code():
    s = Interpreter.create(TEMPLATE, timeout=300, envs={"GIVEN": "yes"})
    try:
        e = s.run_code("import os\nprint(os.environ['GIVEN'])\nx = 6\nx * 7")
        assert (e.text, e.logs.stdout, e.error) == ("42", ["yes\n"], None), e
        assert s.run_code("x").text == "6" and s.run_code("y = 1").text is None
        e = s.run_code("1/0")
        assert e.error.name == "ZeroDivisionError" and "<cell" in e.error.traceback, e
        assert s.run_code("import os; os.environ['K']", envs={"K": "v"}).text == "v"
        c = s.create_code_context(cwd="/tmp")
        assert s.run_code("import os; os.getcwd()", context=c).text == "/tmp"
        assert c.id in [x.id for x in s.list_code_contexts()]
        s.restart_code_context(c)
        s.remove_code_context(c)
        assert s.run_code("echo $((6*7))", language="bash").logs.stdout == ["42\n"]
        raises(SandboxException, s.run_code, "1", language="r")
        raises(TimeoutException, s.run_code, "while True: pass", timeout=1)
        assert s.run_code("x").text == "6"  # the cell was interrupted, and no more
        [k] = s.fork()
        assert k.run_code("x").text == "6"
        k.kill()
    finally:
        s.kill()


def begun(**options):
    """The begin of a template, which is an image or another template."""
    t = Template(**options)
    return t.from_image(TEMPLATE) if TEMPLATE == "python" else t.from_template(TEMPLATE)


def templates():
    with tempfile.TemporaryDirectory() as context:
        os.makedirs(f"{context}/app/sub")
        for name in ("main.py", "sub/other.py"):
            with open(f"{context}/app/{name}", "w") as f:
                f.write("print(1)")
        t = (
            begun(file_context_path=context)
            .set_envs({"KIND": "own"})
            .copy("app", "/srv/app")
            .copy("app/main.py", "/srv/one.py", mode=0o600)
            .run_cmd("echo $KIND > /srv/kind", user="root")
            .set_workdir("/srv/app")
            .set_start_cmd("touch /tmp/ready; exec sleep 1000", wait_for_file("/tmp/ready"))
        )
        said = []
        assert not Template.exists(OWN)
        Template.build(t, OWN, on_build_logs=lambda line: said.append(line.message))
        Template.build(t, OWN)  # in place of the first one
        assert Template.exists(OWN) and any("RUN echo" in line for line in said), said
    s = Sandbox.create(OWN, envs={"MORE": "yes"})
    out = s.commands.run("pwd; id -un; echo $KIND $MORE; cat /srv/kind; ls -R; stat -c '%a %U' /srv/one.py").stdout
    assert out == "/srv/app\nuser\nown yes\nown\n.:\nmain.py\nsub\n\n./sub:\nother.py\n600 user\n", out
    until(lambda: [p.cmd for p in s.commands.list()] == ["sleep"])  # bash becomes it
    s.kill()
    e = raises(BuildException, Template.build, begun().run_cmd("exit 9"), "broken")
    assert "exit code 9" in str(e), e
    raises(BuildException, Template.build, Template().from_image("no-such-image"), "broken")
    if not hasattr(Template, "assign_tags"):
        return
    Template.build(begun().run_cmd("echo one > /tmp/tag"), f"{OWN}:v1", tags=["stable"])
    made = Template.assign_tags(f"{OWN}:v1", ["prod", "canary"])
    assert sorted(made.tags) == ["canary", "prod"], made
    Template.build(begun().run_cmd("echo two > /tmp/tag"), f"{OWN}:v2")
    tags = {t.tag: t.build_id for t in Template.get_tags(OWN)}
    assert sorted(tags) == ["canary", "default", "prod", "stable", "v1", "v2"] and tags["prod"] == tags["v1"] != tags["v2"], tags
    for tag, said in {"v1": "one\n", "prod": "one\n", "v2": "two\n"}.items():
        s = Sandbox.create(f"{OWN}:{tag}")
        assert s.files.read("/tmp/tag") == said, tag
        s.kill()
    Template.remove_tags(OWN, ["prod", "canary"])
    assert Template.exists(f"{OWN}:v1") and not Template.exists(f"{OWN}:prod")
    raises(Exception, Template.remove_tags, OWN, "prod")
    raises(Exception, Template.assign_tags, f"{OWN}:none", "x")
    raises(Exception, Template.build, begun(), f"{OWN}:No_Tag")


async def many():
    async def one(i):
        s = await AsyncSandbox.create(TEMPLATE, timeout=120)
        try:
            return (await s.commands.run(f"echo {i}")).stdout
        finally:
            await s.kill()

    assert await asyncio.gather(*(one(i) for i in range(20))) == [f"{i}\n" for i in range(20)]


s = Sandbox.create(TEMPLATE, timeout=300, metadata={"case": "e2b"})
for case in (commands, terminals, files, wrong, lives):
    case(s)
s.kill()
code()
templates()
if Secret:
    secrets()
if Volume:
    volumes()
asyncio.run(many())
print("done", flush=True)
os._exit(0)  # without the interpreter's end, at which a thread of the older package has once crashed
