"""A plugin for pytest: each test gets a fork of a sandbox that is prepared once.

    import pytest

    @pytest.mark.ramet(image="python", setup="pip install -r requirements.txt")
    def test_something(sandbox):
        assert sandbox.exec("python3 -m app").ok

The prepared sandbox is made once in a run, also with xdist, whose workers share it. setup is a
command, a list of them, or a function that takes the sandbox; other arguments of the mark are those
of Sandbox.create. A test that fails shows what it changed in its sandbox, and what processes in
the background wrote; with --ramet-keep its sandbox is kept. The fork of the next test is made while
a test runs, and that of the last one is destroyed.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import tempfile
import uuid
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable, Dict, Generator, Iterator, List, Optional, Set, Tuple, Union

import pytest

from ._errors import NotFound, RametError

if TYPE_CHECKING:
    from ._sync._sandbox import Sandbox

Setup = Union[str, List[str], Callable[["Sandbox"], Any], None]

# If pytest is killed, what it has made ends by itself.
_TTL = 6 * 3600
_LABEL = "pytest"
_MAX_SHOWN = 8000
_run_key = pytest.StashKey[str]()
_used_key = pytest.StashKey[bool]()
_pair_key = pytest.StashKey[Tuple["Sandbox", "Sandbox"]]()
_next_key = pytest.StashKey[Optional[pytest.Item]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ramet", "sandboxes for tests")
    group.addoption("--ramet-keep", action="store_true", help="keep the sandboxes of tests that fail")
    group.addoption("--ramet-image", default=None, help="image of sandboxes whose mark names none")
    parser.addini("ramet_image", "image of sandboxes whose mark names none", default="python")
    parser.addini("ramet_setup", "commands that prepare sandboxes whose mark has no setup", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "ramet(image, setup, **options): the sandbox that the fixture `sandbox` is forked from; "
        "setup is a command, a list of commands, or a function of the sandbox",
    )
    worker: Dict[str, Any] = getattr(config, "workerinput", {})
    config.stash[_run_key] = worker.get("ramet_run") or uuid.uuid4().hex[:12]


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a worker of xdist the run that it belongs to."""
    node.workerinput["ramet_run"] = node.config.stash[_run_key]
    node.config.stash[_used_key] = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Destroy the prepared sandboxes, in the process that all workers belong to."""
    config = session.config
    if hasattr(config, "workerinput") or not config.stash.get(_used_key, False):
        return
    from ._sync._sandbox import Sandbox

    if os.path.exists(_lock_path(config.stash[_run_key])):
        os.unlink(_lock_path(config.stash[_run_key]))
    try:
        for sandbox in Sandbox.list(metadata={_LABEL: config.stash[_run_key]}):
            try:
                sandbox.destroy()
            except NotFound:
                pass
    except RametError:
        pass  # the daemon has gone


def _prepared(config: pytest.Config, image: str, setup: Setup, options: Dict[str, Any]) -> "Sandbox":
    """Return the sandbox that tests are forked from, and make it first if no worker has."""
    from ._sync._sandbox import Sandbox

    run = config.stash[_run_key]
    config.stash[_used_key] = True
    key = hashlib.sha256(repr((image, _text(setup), sorted(options.items()))).encode()).hexdigest()[:12]
    name = f"pytest-{run}-{key}"
    with open(_lock_path(run), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return Sandbox.connect(name)
        except NotFound:
            pass
        sandbox = Sandbox.create(image, name=name, ttl=_TTL, metadata={_LABEL: run}, **options)
        try:
            _prepare(sandbox, setup)
        except BaseException:
            sandbox.destroy()
            raise
        return sandbox


def _lock_path(run: str) -> str:
    return os.path.join(tempfile.gettempdir(), f"ramet-pytest-{run}.lock")


def _prepare(sandbox: "Sandbox", setup: Setup) -> None:
    if callable(setup):
        setup(sandbox)
        return
    for command in [setup] if isinstance(setup, str) else setup or []:
        sandbox.exec(command, check=True)


def _text(setup: Setup) -> str:
    """Return what tells one setup from another, in all workers alike."""
    if not callable(setup):
        return repr(setup)
    try:
        return f"{setup.__module__}.{setup.__qualname__}:{inspect.getsource(setup)}"
    except (OSError, TypeError):
        return f"{setup.__module__}.{setup.__qualname__}"


class _Bases:
    """The prepared sandboxes that this process has asked for, and their forks.

    A thread forks for the next test and destroys what the last one has left, beside the test that runs.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._made: Dict[str, "Sandbox"] = {}
        self._changing: Set[str] = set()  # ids of those that tests have in hand: they may differ from test to test
        self._ahead: Optional[Tuple[str, "Future[Sandbox]"]] = None
        self._worker = ThreadPoolExecutor(1, "ramet-pytest")

    def get(self, image: str = "python", setup: Setup = None, **options: Any) -> "Sandbox":
        key = _key(dict(options, image=image, setup=setup))
        if key not in self._made:
            self._made[key] = _prepared(self._config, image, setup, options)
        return self._made[key]

    def give(self, image: str = "python", setup: Setup = None, **options: Any) -> "Sandbox":
        base = self.get(image, setup, **options)
        self._changing.add(base.id)
        self._drop()
        return base

    def fork(self, base: "Sandbox") -> "Sandbox":
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == base.id:
            try:
                return ahead[1].result()
            except RametError:
                pass  # what hindered it may be over
        else:
            self._ahead = ahead
            self._drop()
        return self._fork(base)

    def fork_ahead(self, base: "Sandbox") -> None:
        if base.id not in self._changing:
            self._ahead = base.id, self._worker.submit(self._fork, base)

    def destroy(self, child: "Sandbox") -> None:
        self._worker.submit(_destroy, child)

    def close(self) -> None:
        self._drop()
        self._worker.shutdown()

    def _drop(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._worker.submit(lambda: _destroy(ahead[1].result()))

    def _fork(self, base: "Sandbox") -> "Sandbox":
        child = base.fork(1, metadata={_LABEL: self._config.stash[_run_key]})[0]
        base._children.clear()
        return child


def _destroy(sandbox: "Sandbox") -> None:
    try:
        sandbox.destroy()
    except RametError:
        pass  # the test has destroyed it, or the end of the run does


def _key(options: Dict[str, Any]) -> str:
    return repr([(name, _text(value) if name == "setup" else value) for name, value in sorted(options.items())])


def _options(item: pytest.Item) -> Dict[str, Any]:
    """Return what the marks of a test say about its sandbox."""
    options: Dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers("ramet"))):  # the nearest one wins
        options.update(mark.kwargs)
        if mark.args:
            options["image"] = mark.args[0]
    options.setdefault("image", item.config.getoption("--ramet-image") or item.config.getini("ramet_image"))
    options.setdefault("setup", item.config.getini("ramet_setup") or None)
    return options


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: Optional[pytest.Item]) -> None:
    item.stash[_next_key] = nextitem


@pytest.fixture(scope="session")
def _ramet_bases(request: pytest.FixtureRequest) -> Iterator[_Bases]:
    bases = _Bases(request.config)
    yield bases
    bases.close()


@pytest.fixture(scope="session")
def ramet_base(_ramet_bases: _Bases) -> Callable[..., "Sandbox"]:
    """A function that returns a prepared sandbox: ramet_base(image, setup, **options)."""
    return _ramet_bases.give


@pytest.fixture
def sandbox(request: pytest.FixtureRequest, _ramet_bases: _Bases) -> Iterator["Sandbox"]:
    """A sandbox of the test's own: a fork of the one that its mark `ramet` describes."""
    item: pytest.Item = request.node
    options = _options(item)
    base = _ramet_bases.get(**options)
    child = _ramet_bases.fork(base)
    following = item.stash.get(_next_key, None)
    if following is not None and "sandbox" in getattr(following, "fixturenames", ()) and _key(_options(following)) == _key(options):
        _ramet_bases.fork_ahead(base)
    item.stash[_pair_key] = (base, child)
    yield child
    if not (item.stash.get(_failed_key, False) and item.config.getoption("--ramet-keep")):
        _ramet_bases.destroy(child)
        return
    try:
        child.update(metadata={_LABEL: None, "test": item.nodeid[-200:]}, ttl=0)
    except RametError:
        pass


_failed_key = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    outcome = yield
    report = outcome.get_result()
    pair = item.stash.get(_pair_key, None)
    if report.when != "call" or not report.failed or pair is None:
        return
    item.stash[_failed_key] = True
    base, child = pair
    if item.config.getoption("--ramet-keep"):
        report.sections.append(("sandbox", f"{child.id} is kept: ramet shell {child.id}; ramet rm {child.id}"))
    shown: List[Tuple[str, Callable[[], str]]] = [
        ("changes in the sandbox", lambda: str(base.diff(child))),
        ("output of its processes", lambda: _logs(child)),
    ]
    for title, show in shown:
        try:
            text = show()
        except RametError as error:
            text = f"not known: {error}"
        if text:
            report.sections.append((title, text[-_MAX_SHOWN:]))


def _logs(child: "Sandbox") -> str:
    lines = []
    for process in child.processes.list(all=True):
        if process.kept is None or process.kept.inherited:
            continue
        output = child.processes.get(process.pid).output(follow=False)
        text = b"".join(chunk.data for chunk in output).decode("utf-8", "replace")
        lines.append(f"[{process.pid}] {process.command}\n{text}".rstrip("\n"))
    return "\n".join(lines)
