"""Sandboxes as users use them, with a real daemon."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import eventually

import ramet
from ramet import Sandbox


def test_the_example_of_the_readme(daemon: object) -> None:
    with Sandbox.create("python") as base:
        base.run_code("import numpy as np; data = np.random.rand(1_000_000)")
        tries = base.fork(3)
        scores = [t.run_code(f"float((data ** {i + 1}).mean())").value for i, t in enumerate(tries)]
        assert 0 < scores[2] < scores[1] < scores[0] < 1
        base.promote(tries[max(range(3), key=scores.__getitem__)])
        assert base.run_code("data.shape").value == (1_000_000,)
    left = {sandbox.id for sandbox in Sandbox.list()}
    assert not left & {base.id, *(t.id for t in tries)}  # the children that lost are gone, too


def test_exec(sbx: Sandbox) -> None:
    result = sbx.exec("echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code, result.ok) == ("out\n", "err\n", 3, False)
    assert sbx.exec(["printf", "%s", "a b"]).stdout == "a b"
    assert sbx.exec("echo $A; pwd", env={"A": "1"}, cwd="/srv").stdout == "1\n/srv\n"
    assert sbx.exec("kill -TERM $$").signal == "SIGTERM"
    with pytest.raises(ramet.CommandError, match="exit code 3: err") as failed:
        sbx.exec("echo err >&2; exit 3", check=True)
    assert failed.value.result.exit_code == 3
    assert sbx.exec(["no-such-program"]).exit_code == 127
    with pytest.raises(ramet.InvalidRequest) as relative:
        sbx.exec("true", cwd="relative")
    assert relative.value.field == "cwd"


def test_exec_passes_on_any_bytes(sbx: Sandbox) -> None:
    raw = bytes(range(256)) * 1000
    assert sbx.exec("cat", stdin=raw).stdout_bytes == raw
    assert sbx.exec("cat", stdin=io.BytesIO(raw)).stdout_bytes == raw
    assert sbx.exec("cat", stdin=(raw[i : i + 1000] for i in range(0, len(raw), 1000))).stdout_bytes == raw
    assert sbx.exec("wc -c", stdin="ü" * 3).stdout.strip() == "6"
    assert sbx.exec("cat", stdin="").stdout == ""


def test_an_error_of_the_input_is_raised(sbx: Sandbox) -> None:
    def source() -> object:
        yield b"a"
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        sbx.exec("cat", stdin=source())  # type: ignore[arg-type]


def test_exec_keeps_a_part_of_much_output(sbx: Sandbox) -> None:
    result = sbx.exec("head -c 20000000 /dev/zero | tr '\\0' x; echo end >&2")
    assert result.truncated and len(result.stdout) == 8 << 20 and result.stderr == "end\n"


def test_exec_streams(sbx: Sandbox) -> None:
    read = threading.Event()
    chunks = []
    with sbx.exec("echo one; read x; echo two >&2", stdin=_later(b"go\n", read), stream=True) as stream:
        for chunk in stream:
            chunks.append((chunk.stream, chunk.text))
            read.set()  # what is written to two streams at once may come in either order
    assert chunks == [("stdout", "one\n"), ("stderr", "two\n")]
    assert stream.result is not None and stream.result.ok
    told: list[str] = []
    sbx.exec("printf '\\303'; sleep 0.1; printf '\\274'", on_stdout=told.append)
    assert told == ["ü"]


def _later(data: bytes, when: threading.Event) -> Iterator[bytes]:
    assert when.wait(60)
    yield data


def test_a_stream_that_is_left_ends_the_command(sbx: Sandbox) -> None:
    with sbx.exec("echo $$; exec sleep 1000", stream=True) as stream:
        pid = int(next(stream).text)
    eventually(lambda: pid not in [process.pid for process in sbx.processes.list()])


def test_a_command_that_times_out_is_killed_with_its_group(sbx: Sandbox) -> None:
    with pytest.raises(ramet.Timeout) as late:
        sbx.exec("echo begun; sleep 1000 & sleep 1001", timeout=2)
    assert late.value.result is not None and late.value.result.stdout == "begun\n"
    assert late.value.result.timed_out
    eventually(lambda: not [p.command for p in sbx.processes.list() if "sleep" in p.command])


def test_run_code(sbx: Sandbox) -> None:
    assert sbx.run_code("x = 6\nx * 7").value == 42
    run = sbx.run_code("import sys; print('o'); print('e', file=sys.stderr); {'a': [x, None, 'ü']}")
    assert (run.stdout, run.stderr, run.value) == ("o\n", "e\n", {"a": [6, None, "ü"]})
    assert sbx.run_code("object()").value is None and "object" in sbx.run_code("object()").text
    failed = sbx.run_code("1/0")
    assert failed.error is not None and failed.error.name == "ZeroDivisionError" and not failed.ok
    with pytest.raises(ramet.CodeError, match="division by zero"):
        sbx.run_code("1/0", check=True)
    with pytest.raises(ramet.Timeout) as late:
        sbx.run_code("print('begun', flush=True)\nwhile True: pass", timeout=2)
    assert late.value.execution is not None and late.value.execution.stdout == "begun\n"
    assert sbx.run_code("cd /srv; x=1; pwd", language="bash").stdout == "/srv\n"


def test_rich_results(sbx: Sandbox) -> None:
    run = sbx.run_code(
        "class R:\n  def _repr_html_(self): return '<b>r</b>'\n  def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n'\nR()"
    )
    shown = run.results[-1]
    assert shown.html == "<b>r</b>" and shown.png == b"\x89PNG\r\n\x1a\n"
    assert run._repr_html_() == "<b>r</b>" and "image/png" in shown._repr_mimebundle_()


def test_code_streams(sbx: Sandbox) -> None:
    with sbx.run_code("print('a'); print('b')\n3", stream=True) as stream:
        pieces = list(stream)
    assert "".join(p.text for p in pieces if isinstance(p, ramet.Chunk)) == "a\nb\n"
    assert [p.text for p in pieces if isinstance(p, ramet.Rich)] == ["3"]
    assert stream.execution is not None and stream.execution.value == 3
    told: list[str] = []
    run = sbx.run_code("print('c')\n4", on_stdout=told.append)
    assert told == ["c\n"] and run.stdout == "c\n" and run.value == 4


def test_contexts(sbx: Sandbox) -> None:
    one = sbx.contexts.create("python", name="one", cwd="/srv")
    assert sbx.run_code("import os; y = 1; os.getcwd()", context=one).value == "/srv"
    assert sbx.run_code("y", context="one").value == 1
    assert sbx.run_code("'y' in globals()").value is False
    one.restart()
    assert sbx.run_code("'y' in globals()", context=one).value is False
    runner = threading.Thread(target=lambda: sbx.run_code("import time; time.sleep(1000)", context=one))
    runner.start()

    def interrupted() -> bool:  # an interrupt that comes before the code has begun is lost
        one.interrupt()
        runner.join(0.5)
        return not runner.is_alive()

    eventually(interrupted)
    one.destroy()
    assert "one" not in [context.name for context in sbx.contexts.list()]


def test_files(sbx: Sandbox, tmp_path: Path) -> None:
    files = sbx.files
    info = files.write("/srv/a/b.txt", "ü\n", mode=0o640)
    assert info.size == 3 and files.read("/srv/a/b.txt") == "ü\n" and files.read_bytes("/srv/a/b.txt") == "ü\n".encode()
    assert files.stat("/srv/a/b.txt").mode.endswith("640")
    files.write("/srv/a/b.txt", b"more", append=True)
    assert files.read("/srv/a/b.txt") == "ü\nmore"
    assert files.exists("/srv/a") and not files.exists("/srv/none")
    assert [f.path for f in files.list("/srv", depth=0)] == ["/srv/a", "/srv/a/b.txt"]
    files.move("/srv/a/b.txt", "/srv/a/c.txt")
    found = files.search("/srv", "more")
    assert [(m.file.path, m.line) for m in found.matches] == [("/srv/a/c.txt", 2)]
    files.mkdir("/srv/d/e")
    files.remove("/srv/d", recursive=True)
    assert not files.exists("/srv/d")
    with pytest.raises(ramet.NotFound):
        files.read("/srv/none")
    with pytest.raises(ramet.InvalidRequest) as relative:
        files.read("relative")
    assert relative.value.field == "path"
    strange = b"/srv/\xff name"
    files.write(strange, "x")
    assert files.read(files.list("/srv", glob="*name")[0].path) == "x"


def test_files_are_streamed(sbx: Sandbox, tmp_path: Path) -> None:
    size = 5_000_000
    written = sbx.files.write("/srv/big", (bytes(1000) for _ in range(size // 1000)))
    assert written.size == size
    assert sum(map(len, sbx.files.stream("/srv/big"))) == size
    assert sbx.files.download("/srv/big", tmp_path / "big") == 1
    assert (tmp_path / "big").stat().st_size == size


def test_directories_are_copied_and_synced(sbx: Sandbox, tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "sub").mkdir(parents=True)
    (here / "sub" / "x").write_text("x")
    (here / "run").write_text("#!/bin/sh\necho ran\n")
    (here / "run").chmod(0o755)
    (here / "link").symlink_to("sub/x")
    sbx.files.upload(here, "/srv/p")
    assert sbx.exec("./run; cat link; ls -l run | cut -c1-10", cwd="/srv/p").stdout == "ran\nx-rwxr-xr-x\n"
    assert sbx.files.sync(here, "/srv/p") == ["link"]  # a link is sent again
    (here / "sub" / "y").write_text("y")
    (here / "run").unlink()
    assert sorted(sbx.files.sync(here, "/srv/p", delete=True)) == ["link", "sub/y"]
    assert sorted(f.path for f in sbx.files.list("/srv/p", depth=0)) == [
        "/srv/p/link", "/srv/p/sub", "/srv/p/sub/x", "/srv/p/sub/y",
    ]  # fmt: skip
    back = tmp_path / "back"
    assert sbx.files.download("/srv/p", back) == 4
    assert (back / "sub" / "y").read_text() == "y" and (back / "link").is_symlink()


def test_watch(sbx: Sandbox) -> None:
    with sbx.files.watch("/srv") as watch:
        sbx.files.write("/srv/new", "1")
        changes = next(watch).changes
    assert {change.path for change in changes} == {"/srv/new"}


def test_processes(sbx: Sandbox) -> None:
    process = sbx.exec("read x; echo got $x; sleep 1000", background=True)
    with pytest.raises(ramet.RametError):
        process.write("it has no input")
    process.kill()
    process = sbx.processes.start("read x; echo got $x; exit 4", stdin=True)
    process.write("it\n")
    assert [chunk.text for chunk in process.output()] == ["got it\n"]
    result = process.wait()
    assert (result.exit_code, result.stdout) == (4, "got it\n")
    process.kill()  # it has ended, and that is no error
    process.remove()
    server = sbx.processes.start(["sleep", "1000"])
    (child,) = sbx.fork()
    assert child.processes.get(server.pid).pid == server.pid
    child.destroy()
    server.kill()
    assert server.wait().signal == "SIGKILL"


def test_terminals(sbx: Sandbox) -> None:
    with sbx.pty(cols=100, rows=30) as terminal:
        terminal.write("echo $((6*7)); stty size\n")
        assert "30 100" in terminal.read_until("30 100")
        terminal.resize(40, 20)
        terminal.write("stty size\n")
        assert "20 40" in terminal.read_until("20 40")


def test_ports(sbx: Sandbox) -> None:
    sbx.files.write("/srv/www/index.html", "hello")
    sbx.exec("cd /srv/www && exec python3 -m http.server 8000", background=True)
    port = sbx.port(8000)
    assert port.wait(30).port == 8000
    assert port.get("/index.html").text == "hello"
    assert port.get("/none").status == 404
    assert 8000 in [p.port for p in sbx.ports()]
    with port.connect() as connection:
        connection.write(b"GET /index.html HTTP/1.0\r\n\r\n")
        assert connection.read().startswith(b"HTTP/1.0 200")
    import urllib.request

    with port.forward() as forward:
        assert urllib.request.urlopen(f"http://{forward.address}/index.html", timeout=20).read() == b"hello"
    with pytest.raises(ramet.Unavailable):
        sbx.port(8001).wait(0.01)


def test_forks_carry_live_state(sbx: Sandbox) -> None:
    sbx.run_code("counter = iter(range(100)); next(counter)")
    children = sbx.fork(names=["kid-1", "kid-2"], env={"WHO": "kid"}, metadata={"k": "v"})
    assert [c.name for c in children] == ["kid-1", "kid-2"] and children.pause_ms > 0
    assert [c.run_code("next(counter)").value for c in children] == [1, 1]
    assert children[0].exec("echo $WHO").stdout == "kid\n" and children[0].metadata == {"k": "v"}
    assert {c.id for c in Sandbox.list(metadata={"k": "v"})} == {c.id for c in children}
    tree = sbx.tree()
    assert {node.id for node in tree.walk()} >= {sbx.id, *(c.id for c in children)} and "├─ kid-1" in str(tree)
    children[0].files.write("/srv/f", "one")
    diff = children[0].diff(children[1])
    assert diff.paths == ["/srv/f"] and str(diff).startswith("D /srv/f") and "<pre>" in diff._repr_html_()
    children[0].run_code("z = 1")
    assert "z" in [v.name for v in children[1].diff(children[0]).variables]
    merged = sbx.merge(children[0])
    assert merged.ok and [c.path for c in merged.applied] == ["/srv/f"] and sbx.files.read("/srv/f") == "one"
    sbx.promote(children[1])
    assert sbx.run_code("next(counter)").value == 2
    with pytest.raises(ramet.SandboxGone):
        children[1].exec("true")


def test_children_that_are_gone_are_forgotten(sbx: Sandbox) -> None:
    for _ in range(3):
        sbx.fork()[0].destroy()
    with sbx.fork() as (kept,):
        assert list(sbx._children) == [kept.id]
        kept.detach()
    assert kept.info().state == "running"
    kept.destroy()
    with pytest.raises(ramet.SandboxGone):
        kept.destroy()


def test_a_fork_that_fails_has_typed_errors(sbx: Sandbox) -> None:
    with sbx.fork(names=["taken"]):
        with pytest.raises(ramet.Conflict) as taken:
            sbx.fork(names=["taken"])
    assert taken.value.code == "name_taken"
    with pytest.raises(ramet.InvalidRequest) as many:
        sbx.fork(5000)
    assert many.value.field == "count"


def test_snapshots(sbx: Sandbox) -> None:
    sbx.run_code("v = 1")
    snapshot = sbx.snapshot("sdk-snapshot", metadata={"a": "b"})
    assert snapshot.state == "ready"
    sbx.run_code("v = 2")
    with snapshot.restore(2) as restored:
        assert [r.run_code("v").value for r in restored] == [1, 1]
    with Sandbox.restore("sdk-snapshot") as one:
        assert one.run_code("v").value == 1
    sbx.rollback()
    assert sbx.run_code("v").value == 1
    assert [s.id for s in sbx.snapshots()] == [snapshot.id]
    snapshot.delete()
    with pytest.raises(ramet.NotFound):
        snapshot.info()


def test_rest_and_end(sbx: Sandbox) -> None:
    sbx.pause()
    assert sbx.state == "paused"
    with pytest.raises(ramet.Conflict) as paused:
        sbx.exec("true")
    assert paused.value.code == "wrong_state"
    sbx.resume()
    sbx.hibernate()
    assert sbx.info().state == "hibernated"
    assert sbx.exec("echo woken").stdout == "woken\n"
    sbx.update(ttl=3600, metadata={"x": "y"})
    assert sbx.info().metadata == {"x": "y"} and sbx.info().lifecycle is not None
    assert sbx.stats().memory is not None
    kinds = [event.kind for event in sbx.events()]
    assert "hibernated" in kinds and "woken" in kinds
    sbx.destroy()
    with pytest.raises(ramet.SandboxGone, match="is gone"):
        sbx.destroy()
    with pytest.raises(ramet.SandboxGone):
        sbx.run_code("1")
    sbx.wait_until("destroyed")


def test_the_timeline(daemon: object) -> None:
    with Sandbox.create("python", auto_checkpoint=10) as sandbox:
        for i in range(3):
            sandbox.exec(f"echo {i} > /srv/n")
        steps = sandbox.timeline()
        assert [step.kind for step in steps] == ["start", "exec", "exec", "exec"]
        broken = sandbox.bisect("test $(cat /srv/n) -lt 1")
        assert broken.first is not None and broken.first.step == 2
        sandbox.rollback(step=1)
        assert sandbox.files.read("/srv/n") == "0\n"


def test_create_says_what_is_wrong(daemon: object) -> None:
    with pytest.raises(ramet.NotFound, match="build one with") as missing:
        Sandbox.create("no-such-image")
    assert missing.value.code == "not_found"
    with pytest.raises(ramet.InvalidRequest) as size:
        Sandbox.create("python", memory="lots")
    assert size.value.field == "memory"
    with pytest.raises(ramet.NotFound):
        Sandbox.connect("no-such-sandbox")
    with pytest.raises(ramet.InvalidRequest):
        Sandbox.connect("..")


def test_images(daemon: object, sbx: Sandbox) -> None:
    client = sbx.client
    assert "python" in [name for image in client.images.list() for name in image.names]
    sbx.files.write("/srv/kept", "1")
    image = sbx.commit("sdk-committed")
    assert client.images.exists("sdk-committed") and client.images.get(image.id).names == ["sdk-committed"]
    with client.create("sdk-committed") as other:
        assert other.files.read("/srv/kept") == "1"
    client.images.remove("sdk-committed")
    assert not client.images.exists("sdk-committed")


def test_a_background_command_gets_its_input(sbx: Sandbox) -> None:
    assert sbx.exec("cat; echo end", background=True, stdin="text\n").wait().stdout == "text\nend\n"
    assert sbx.exec("wc -c", background=True, stdin=io.BytesIO(b"x" * 3_000_000)).wait().stdout.strip() == "3000000"
    assert sbx.exec("wc -c", background=True).wait().stdout.strip() == "0"


def test_cells_of_bash_have_exit_codes(sbx: Sandbox) -> None:
    run = sbx.run_code("echo out; (exit 7)", language="bash")
    assert (run.stdout, run.exit_code, run.ok, run.error) == ("out\n", 7, False, None)
    assert sbx.run_code("true", language="bash").check().ok
    with pytest.raises(ramet.CodeError, match="exit code 7"):
        sbx.run_code("exit 7", language="bash", check=True)
    assert not sbx.run_code("1/0").ok


def test_contexts_are_found_and_run_code(sbx: Sandbox) -> None:
    sbx.contexts.create("python", name="own").run_code("x = 6")
    [child] = sbx.fork()
    assert child.contexts.get("own").run_code("x * 7").value == 42
    with pytest.raises(ramet.CodeError):
        child.contexts.get("own").run_code("1/0", check=True)
    with pytest.raises(ramet.NotFound):
        child.contexts.get("none")


def test_errors_name_a_field_once(sbx: Sandbox) -> None:
    for call, said in (
        (lambda: sbx.fork(0), "count: it must be at least 1"),
        (lambda: sbx.snapshot("a b"), 'name: "a b" is not a name'),
        (lambda: sbx.exec("true", user="nobody-here"), 'exec: user: no user "nobody-here"'),
        (lambda: sbx.update(metadata={"a b": "x"}), 'update sandbox: metadata: "a b" is not a key'),
    ):
        with pytest.raises(ramet.InvalidRequest) as wrong:
            call()
        assert str(wrong.value).startswith(said)


def test_downloads_make_directories(sbx: Sandbox, tmp_path: Path) -> None:
    sbx.files.write("/srv/a", "text")
    sbx.files.download("/srv/a", tmp_path / "deep" / "down" / "a")
    assert (tmp_path / "deep" / "down" / "a").read_text() == "text"


def test_cells_are_told_with_characters_whole_and_kept_in_part(sbx: Sandbox) -> None:
    told: list[str] = []
    code = "import os, time\nfor b in 'aäb'.encode():\n    os.write(1, bytes([b])); time.sleep(0.02)"
    run = sbx.run_code(code, on_stdout=told.append)
    assert "".join(told) == run.stdout == "aäb" and not run.truncated
    size = [0]
    run = sbx.run_code("for _ in range(10): print('x' * 999_999)", on_stdout=lambda text: size.__setitem__(0, size[0] + len(text)))
    assert size[0] == 10_000_000 and len(run.stdout) == 8 << 20 and run.truncated


def test_volumes_are_shared(daemon: object) -> None:
    with ramet.connect() as client:
        made = client.volumes.create("sdk-data", size="64M")
        assert (made.name, made.limit_mib, client.volumes.get(made.id).name) == ("sdk-data", 64, "sdk-data")
        with client.create("python", volumes={"/mnt/data": "sdk-data"}) as one, client.create("python", volumes={"/d": "sdk-data:ro"}) as two:
            one.files.write("/mnt/data/a", "shared")
            assert two.files.read("/d/a") == "shared"
            assert not two.exec("touch /d/b").ok
            (child,) = one.fork(1)
            child.exec("echo again > /mnt/data/a", check=True)
            assert two.files.read("/d/a") == "again\n"
            child.destroy()
            assert sorted(client.volumes.list()[0].sandboxes) == sorted([one.id, two.id])
            with pytest.raises(ramet.Conflict):
                client.volumes.remove("sdk-data")
        with pytest.raises(ramet.InvalidRequest) as wrong:
            client.create("python", volumes={"/d": "sdk-data:rx"})
        assert wrong.value.field == "volumes"
        client.volumes.remove("sdk-data")
        with pytest.raises(ramet.NotFound):
            client.volumes.get("sdk-data")
