"""Callers, daemons and sandboxes that end in the middle of every call: it has an error in time, and nothing is left.

Each call is written once, for the sync and for the async client: what the sync one returns is awaited
as if it were of the async one.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Callable, Coroutine, Dict, List, Optional, Set, Tuple

import pytest
from conftest import Daemon, eventually, start

import ramet

WITHIN = 4.0
"""Seconds in which a call that is cut off has its error, on a machine that is busy with something else."""
TO_LIVE = 2.0
"""Seconds after which sandboxes of nobody end."""
TO_WORK = 10.0
"""Seconds in which such a sandbox is surely used."""
FOREGROUND, BACKGROUND = "98765", "87654"
"""How long commands would run. Those of the first end with their caller."""
LARGE = 8 << 20

Call = Callable[[Any], Coroutine[Any, Any, object]]
CALLS: Dict[str, Call] = {}
APART: Set[str] = set()
"""Calls with a sandbox of their own, as others would wait for them."""
OUTLIVES: Set[str] = set()
"""Calls that may succeed although the process of the sandbox was killed: by what is on disk, or a child that is about to be born."""


def call(name: str, *, apart: bool = False, outlives: bool = False) -> Callable[[Call], None]:
    """Add a call, which waits for more than a test does, or is short and made over and over."""

    def add(function: Call) -> None:
        CALLS[name] = function
        if apart:
            APART.add(name)
        if outlives:
            OUTLIVES.add(name)

    return add


async def now(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def each(values: Any) -> AsyncIterator[Any]:
    values = await now(values)
    if hasattr(values, "__aiter__"):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value


def without_loop(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that awaits nothing that is not there: one about the sync client."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for an event loop")


async def drained(values: Any) -> None:
    async for _ in each(values):
        pass


@call("exec")
async def _(sandbox: Any) -> None:
    await now(sandbox.exec(["sleep", FOREGROUND]))


@call("exec, streaming")
async def _(sandbox: Any) -> None:
    await drained(sandbox.exec(["sleep", FOREGROUND], stream=True))


@call("exec, with input")
async def _(sandbox: Any) -> None:
    await now(sandbox.exec(["sleep", FOREGROUND], stdin=b"\xff" * (4 << 20)))


@call("run_code")
async def _(sandbox: Any) -> None:
    await now(sandbox.run_code("import time; time.sleep(1000)", context="one"))


@call("run_code, streaming")
async def _(sandbox: Any) -> None:
    await drained(sandbox.run_code("import time; time.sleep(1000)", context="two", stream=True))


@call("wait")
async def _(sandbox: Any) -> None:
    process = await now(sandbox.processes.start(["sleep", BACKGROUND]))
    await now(process.wait())


@call("output")
async def _(sandbox: Any) -> None:
    process = await now(sandbox.processes.start(["sleep", BACKGROUND]))
    await drained(process.output())


@call("terminal")
async def _(sandbox: Any) -> None:
    await drained(sandbox.pty(["sleep", BACKGROUND]))


@call("read")
async def _(sandbox: Any) -> None:
    await now(sandbox.files.read_bytes("/srv/large"))


@call("read, streaming")
async def _(sandbox: Any) -> None:
    await drained(sandbox.files.stream("/srv/large"))


@call("write")
async def _(sandbox: Any) -> None:
    await now(sandbox.files.write("/srv/written", bytes(LARGE)))


@call("upload")
async def _(sandbox: Any) -> None:
    await now(sandbox.files.upload(local_directory(), "/srv/uploaded"))


@call("download")
async def _(sandbox: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        await now(sandbox.files.download("/srv", directory + "/srv"))


@call("watch")
async def _(sandbox: Any) -> None:
    await drained(sandbox.files.watch("/etc"))


@call("events", outlives=True)  # the failure is one of them
async def _(sandbox: Any) -> None:
    async for event in each(sandbox.events(since=-1, follow=True)):
        if event.kind == "failed":
            raise ramet.SandboxGone("an event told that it ended", code="sandbox_died")


@call("port, waited for")
async def _(sandbox: Any) -> None:
    await now(sandbox.port(9).wait(600))


@call("port, asked")
async def _(sandbox: Any) -> None:
    await now(sandbox.port(8000).get("/"))


@call("port, connected to")
async def _(sandbox: Any) -> None:
    connection = await now(sandbox.port(8000).connect())
    while await now(connection.read()):
        pass


@call("explore", apart=True)
async def _(sandbox: Any) -> None:
    await now(sandbox.explore(["sleep", FOREGROUND], width=2, max_time=1))


async def removed(made: Any) -> None:
    for sandbox in await now(made):
        try:
            await now(sandbox.destroy())
        except (ramet.NotFound, ramet.Conflict):
            pass  # its time is over


@call("fork", apart=True)
async def _(sandbox: Any) -> None:
    await removed(sandbox.fork(2, ttl=TO_LIVE))


@call("snapshot", apart=True)
async def _(sandbox: Any) -> None:
    await now((await now(sandbox.snapshot())).delete())


async def kept(sandbox: Any) -> Any:
    for snapshot in await now(sandbox.snapshots()):
        return snapshot
    return await now(sandbox.snapshot())


@call("restore", apart=True, outlives=True)
async def _(sandbox: Any) -> None:
    snapshot = await kept(sandbox)
    await removed(snapshot.restore(2, ttl=TO_LIVE))


@call("rollback", apart=True, outlives=True)
async def _(sandbox: Any) -> None:
    await now(sandbox.rollback(await kept(sandbox)))


@call("pause", apart=True)
async def _(sandbox: Any) -> None:
    await now(sandbox.pause())
    await now(sandbox.resume())


@call("hibernate", apart=True, outlives=True)
async def _(sandbox: Any) -> None:
    await now(sandbox.hibernate())
    await now(sandbox.wake())


@call("diff", apart=True)
async def _(sandbox: Any) -> None:
    (child,) = await now(sandbox.fork(ttl=TO_WORK))
    await now(sandbox.diff(child))
    await removed([child])


@call("merge", apart=True)
async def _(sandbox: Any) -> None:
    (child,) = await now(sandbox.fork(ttl=TO_WORK))
    await now(sandbox.merge(child, paths=["/srv"]))
    await removed([child])


@call("promote", apart=True, outlives=True)
async def _(sandbox: Any) -> None:
    (child,) = await now(sandbox.fork(ttl=TO_WORK))
    await now(sandbox.promote(child))


_local: Optional[tempfile.TemporaryDirectory[str]] = None


def local_directory() -> str:
    """Return a directory that has a large file."""
    global _local
    if _local is None:
        directory = tempfile.TemporaryDirectory(prefix="ramet-sdk-")
        (Path(directory.name) / "large").write_bytes(bytes(LARGE))
        _local = directory
    return _local.name


class World:
    """A daemon that may be killed, and a sandbox for the calls, with its children for those apart."""

    def __init__(self, directory: Path) -> None:
        self.daemon = start(directory)
        self.client = ramet.connect(self.daemon.unix)
        self.base = self.client.create("python")
        self.base.run_code("import json")
        self.base.files.write("/srv/large", bytes(LARGE))
        self.base.processes.start(["python3", "-c", "import socket, time\ns = socket.create_server(('', 8000))\ntime.sleep(1000)"])
        self.base.port(8000).wait()
        children = self.base.fork(len(APART), names=[f"own-{i}" for i in range(len(APART))])
        self.ids = {name: child.id for name, child in zip(sorted(APART), children)}
        self.known = {self.base.id, *self.ids.values()}
        local_directory()

    def id(self, name: str) -> str:
        return self.ids.get(name, self.base.id)

    def restart(self) -> None:
        self.daemon.process.wait(30)
        self.daemon = start(self.daemon.home)

    def awake(self) -> None:
        """Bring all sandboxes to where they can be used again."""
        for id in self.known:
            sandbox = self.client.get(id)
            if sandbox.state == "paused":
                sandbox.resume()
            sandbox.exec("true")

    def commands_run(self) -> None:
        """Wait until all commands run: then all calls are in the middle of what they do."""
        eventually(lambda: sum(FOREGROUND in p.command or BACKGROUND in p.command for p in self.base.processes.list()) >= 6)

    def nothing_is_left(self) -> None:
        """Wait until there is nothing but what the test has."""

        def left() -> List[str]:
            found = [sandbox.id for sandbox in self.client.list() if sandbox.id not in self.known]
            for id in self.known:
                sandbox = self.client.get(id)
                if sandbox.state == "running":
                    found += [p.command for p in sandbox.processes.list() if FOREGROUND in p.command]
            return found

        eventually(lambda: not left(), 60)

    def kill_sandboxes(self) -> None:
        """Kill the processes that sandboxes are: each leads its session, and has its log in the daemon's directories."""
        killed = 0
        for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                log = os.readlink(f"/proc/{pid}/fd/1")
                if log.startswith(f"{self.daemon.home}/run") and not log.endswith("/zygote.log") and os.getsid(pid) == pid:
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
            except OSError:
                continue  # it has ended, or is another user's
        assert killed

    def end(self) -> None:
        for id in self.known:
            try:
                self.client.get(id).destroy()
            except ramet.NotFound:
                pass
        left = self.client.list()
        self.client.close()
        self.daemon.end()
        assert left == []


@pytest.fixture(scope="module")
def world(home: Path) -> Any:
    directory = Path(tempfile.mkdtemp(prefix="f", dir=home))
    world = World(directory)
    yield world
    world.end()


Cut = Tuple[Optional[BaseException], float]


class Happening:
    """What happens to calls, and when."""

    def __init__(self) -> None:
        self.at: Optional[float] = None

    async def over_and_over(self, name: str, sandbox: Any) -> Cut:
        """Make a call until it has an error, and return that, and how long after the happening it came."""
        while True:
            began = time.monotonic()
            try:
                await CALLS[name](sandbox)
            except Exception as error:
                return (error, time.monotonic() - self.at) if self.at else (AssertionError(f"too early: {error!r}"), 0)
            if self.at is not None and (name in OUTLIVES and began > self.at or began > self.at + WITHIN):
                return None, time.monotonic() - self.at


def cut_off_sync(world: World, happens: Callable[[], None]) -> Dict[str, Cut]:
    happening = Happening()
    cuts: Dict[str, Cut] = {}

    def work(name: str) -> None:
        with ramet.connect(world.daemon.unix) as client:
            sandbox = client.get(world.id(name))
            ready.wait(30)
            cuts[name] = without_loop(happening.over_and_over(name, sandbox))

    ready = threading.Barrier(len(CALLS) + 1)
    threads = [threading.Thread(target=work, args=(name,), daemon=True) for name in CALLS]
    for thread in threads:
        thread.start()
    ready.wait(30)
    world.commands_run()
    happening.at = time.monotonic()
    happens()
    for thread in threads:
        thread.join(60)
    assert set(cuts) == set(CALLS), f"these hang: {set(CALLS) - set(cuts)}"
    return cuts


def cut_off_async(world: World, happens: Callable[[], None]) -> Dict[str, Cut]:
    happening = Happening()

    async def test() -> Dict[str, Cut]:
        async with ramet.AsyncClient(world.daemon.unix) as client:
            sandboxes = {name: await client.get(world.id(name)) for name in CALLS}
            tasks = {name: asyncio.ensure_future(happening.over_and_over(name, sandboxes[name])) for name in CALLS}
            await asyncio.to_thread(world.commands_run)
            happening.at = time.monotonic()
            await asyncio.to_thread(happens)
            done, hanging = await asyncio.wait(tasks.values(), timeout=60)
            assert not hanging, f"these hang: {[name for name, task in tasks.items() if task in hanging]}"
            return {name: task.result() for name, task in tasks.items()}

    return asyncio.run(test())


def expect(cuts: Dict[str, Cut], *classes: type, died: bool = False) -> None:
    wrong = []
    for name, (error, late) in cuts.items():
        if error is None and name in OUTLIVES and died:
            continue
        if isinstance(error, ramet.ForkError):
            error = error.errors[0]
        said = str(error)
        if not isinstance(error, classes) or not any(word in said for word in ("ended", "broke off", "refused", "killed", "failed", "gone")):
            wrong.append(f"{name}: {error!r}")
        if late > WITHIN:
            wrong.append(f"{name}: {error!r} comes after {late:.1f} s")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("cut_off", [cut_off_sync, cut_off_async])
def test_the_daemon_is_killed(world: World, cut_off: Callable[[World, Callable[[], None]], Dict[str, Cut]]) -> None:
    world.awake()
    expect(cut_off(world, world.daemon.process.kill), ramet.Unavailable)
    world.restart()
    for process in world.base.processes.list():  # they go on for 30 s, in which their caller may ask for them
        if FOREGROUND in process.command:
            world.base.processes.kill(process.pid)
    world.nothing_is_left()


def test_tasks_are_cancelled(world: World) -> None:
    world.awake()

    async def test() -> Dict[str, float]:
        late: Dict[str, float] = {}
        happening = Happening()
        async with ramet.AsyncClient(world.daemon.unix) as client:

            async def work(name: str) -> None:
                try:
                    error, _ = await happening.over_and_over(name, await client.get(world.id(name)))
                    late[f"{name}: {error!r}"] = 0
                except asyncio.CancelledError:
                    late[name] = time.monotonic() - at
                    raise

            tasks = [asyncio.ensure_future(work(name)) for name in CALLS]
            await asyncio.to_thread(world.commands_run)
            at = time.monotonic()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=60)
        return late

    late = asyncio.run(test())
    assert set(late) == set(CALLS) and max(late.values()) < WITHIN, late
    world.nothing_is_left()


def interrupt_each(host: str, ids: Dict[str, str]) -> None:
    """Make each call in the main thread, and interrupt it. This runs in a process of its own."""
    said: Dict[str, object] = {}
    with ramet.connect(host) as client:
        for name in CALLS:
            sandbox, happening = client.get(ids[name]), Happening()

            def interrupt() -> None:
                happening.at = time.monotonic()
                os.kill(os.getpid(), signal.SIGINT)

            timer = threading.Timer(0.08, interrupt)  # in the middle of one that waits, and anywhere in others
            try:
                timer.start()
                said[name] = repr(without_loop(happening.over_and_over(name, sandbox)))
            except KeyboardInterrupt:
                assert happening.at is not None
                said[name] = time.monotonic() - happening.at
            timer.join()
            try:
                if sandbox.info().state == "paused":
                    sandbox.resume()
            except ramet.Conflict:
                pass  # the daemon was about to finish what it had begun
    print(json.dumps(said))


def call_all(host: str, ids: Dict[str, str]) -> None:
    """Make all calls at once, and more that make sandboxes, without an end. This runs in a process of its own."""
    with ramet.connect(host, lease=10) as client:  # of which forty busy threads leave the renewal a part
        mine = client.get(ids["exec"]).fork()[0]

        def work(name: str) -> None:
            without_loop(Happening().over_and_over(name, client.get(ids[name]) if name in APART else mine))

        for name in CALLS:
            threading.Thread(target=work, args=(name,), daemon=True).start()
        eventually(lambda: sum(FOREGROUND in p.command for p in mine.processes.list()) >= 3)
        print("begun", flush=True)
        threading.Event().wait()


def elsewhere(world: World, function: Callable[[str, Dict[str, str]], None]) -> subprocess.Popen[str]:
    """Run a function of this file in another interpreter."""
    program = f"import sys, test_failures; test_failures.{function.__name__}({world.daemon.unix!r}, {({n: world.id(n) for n in CALLS})!r})"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]), "TMPDIR": str(world.daemon.home)}  # a killed program leaves files
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=env)


def test_callers_are_interrupted(world: World) -> None:
    world.awake()
    caller = elsewhere(world, interrupt_each)
    said = json.loads(caller.communicate(timeout=60)[0])
    assert caller.returncode == 0
    wrong = {name: late for name, late in said.items() if not isinstance(late, float) or late > WITHIN}
    assert set(said) == set(CALLS) and not wrong, wrong
    world.nothing_is_left()


def test_the_caller_is_killed(world: World) -> None:
    world.awake()
    caller = elsewhere(world, call_all)
    assert caller.stdout is not None and caller.stdout.readline() == "begun\n"
    caller.kill()
    caller.communicate()
    world.nothing_is_left()


def test_sandboxes_are_killed(world: World) -> None:
    world.awake()
    cuts = cut_off_sync(world, world.kill_sandboxes)
    expect({name: cut for name, cut in cuts.items() if not name.startswith("port, ")}, ramet.SandboxGone, died=True)
    expect({name: cut for name, cut in cuts.items() if name.startswith("port, ")}, ramet.SandboxGone, ramet.Unavailable)
    world.nothing_is_left()
