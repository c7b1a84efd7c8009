import asyncio
from pathlib import Path
from typing import AsyncIterator

import pytest

pytest.importorskip("swerex", reason="swe-rex is not installed")

import pytest_asyncio
from swerex.exceptions import BashIncorrectSyntaxError, CommandTimeoutError, DeploymentNotStartedError, NonZeroExitCodeError, SessionDoesNotExistError, SessionExistsError
from swerex.runtime.abstract import (
    BashAction, BashInterruptAction, CloseBashSessionRequest, Command, CreateBashSessionRequest, ReadFileRequest, UploadRequest, WriteFileRequest,
)  # fmt: skip

import ramet
from ramet.integrations._run import MAX_OUTPUT
from ramet.integrations.swe_rex import RametDeployment


@pytest_asyncio.fixture
async def deployment() -> AsyncIterator[RametDeployment]:
    deployment = RametDeployment("python")
    await deployment.start()
    yield deployment
    await deployment.stop()


async def running(deployment: RametDeployment, text: str) -> bool:
    return any(text in p.command for p in await deployment.sandbox.processes.list())


async def ended(deployment: RametDeployment, text: str) -> bool:
    """Whether it ends: the daemon hears a little later that nobody waits for it any more."""
    for _ in range(200):
        if not await running(deployment, text):
            return True
        await asyncio.sleep(0.05)
    return False


async def said(deployment: RametDeployment, command: str, session: str = "default", **options: object) -> str:
    return (await deployment.runtime.run_in_session(BashAction(command=command, session=session, **options))).output  # type: ignore[arg-type]


async def test_commands(deployment: RametDeployment, tmp_path: Path) -> None:
    r = deployment.runtime
    done = await r.execute(Command(command="echo $V; echo err >&2; pwd; exit 3", shell=True, env={"V": "v"}, cwd="/srv"))
    assert (done.stdout, done.stderr, done.exit_code) == ("v\n/srv\n", "err\n", 3)
    assert (await r.execute(Command(command=["echo", "a b"]))).stdout == "a b\n"
    assert (await r.execute(Command(command="echo a; echo b >&2", shell=True, merge_output_streams=True))).stdout == "a\nb\n"
    with pytest.raises(NonZeroExitCodeError, match="it fails: .*exit code 1"):
        await r.execute(Command(command=["false"], check=True, error_msg="it fails"))
    with pytest.raises(CommandTimeoutError):
        await r.execute(Command(command="sleep 4321 & sleep 4321", shell=True, timeout=1))
    assert not await running(deployment, "4321")
    task = asyncio.ensure_future(r.execute(Command(command="sleep 4322 & sleep 4322", shell=True)))
    while not await running(deployment, "4322"):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await ended(deployment, "4322")
    await r.write_file(WriteFileRequest(path="/srv/d/a", content="ä"))
    assert (await r.read_file(ReadFileRequest(path="/srv/d/a"))).content == "ä"
    assert (await r.read_file(ReadFileRequest(path="/srv/d/a", encoding="ascii", errors="replace"))).content == "\ufffd\ufffd"
    with pytest.raises(FileNotFoundError):
        await r.read_file(ReadFileRequest(path="/none"))
    (tmp_path / "x").write_text("x")
    await r.upload(UploadRequest(source_path=str(tmp_path), target_path="/srv/up"))
    assert (await r.read_file(ReadFileRequest(path="/srv/up/x"))).content == "x"
    assert await deployment.is_alive()


async def test_sessions(deployment: RametDeployment) -> None:
    r = deployment.runtime
    await r.create_session(CreateBashSessionRequest())
    with pytest.raises(SessionExistsError):
        await r.create_session(CreateBashSessionRequest())
    assert await said(deployment, "cd /srv; x=1") == ""
    assert await said(deployment, "pwd; echo $x\necho 'a\nb'; cat <<.\nmore\n.") == "/srv\n1\na\nb\nmore\n"
    seen = await r.run_in_session(BashAction(command="echo out; false", check="silent"))
    assert (seen.output, seen.exit_code) == ("out\n", 1)
    assert (await r.run_in_session(BashAction(command="false", check="ignore"))).exit_code is None
    with pytest.raises(NonZeroExitCodeError, match="exit code 7"):
        await said(deployment, "(exit 7)")
    with pytest.raises(BashIncorrectSyntaxError):
        await said(deployment, "if then (")
    long = "y=" + "z" * 10000 + "; echo ${#y}"
    assert await said(deployment, long) == "10000\n"
    output = await said(deployment, "echo first; head -c 9000000 /dev/zero | tr '\\0' x; echo; echo last", timeout=60)
    assert len(output) < MAX_OUTPUT + 100 and output.endswith("last\n")
    # One that is late goes on until it is interrupted.
    with pytest.raises(CommandTimeoutError):
        await said(deployment, "sleep 4323", timeout=0.5)
    assert await running(deployment, "4323")
    await r.run_in_session(BashInterruptAction())
    assert await ended(deployment, "4323") and await said(deployment, "echo $x") == "1\n"
    with pytest.raises(CommandTimeoutError):
        await said(deployment, "trap '' INT; sh -c 'trap \"\" INT; sleep 4324'", timeout=0.5)
    await r.run_in_session(BashInterruptAction(n_retry=1))
    assert await said(deployment, "echo $x") == "1\n"
    # One whose task is cancelled ends, with what was to come after it.
    task = asyncio.ensure_future(said(deployment, "sleep 4325\nsleep 4326"))
    while not await running(deployment, "4325"):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not await running(deployment, "432") and await said(deployment, "echo $x") == "1\n"
    # An interactive program.
    seen = await r.run_in_session(BashAction(command="python3 -q", is_interactive_command=True, expect=[">>> "], timeout=20))
    assert seen.expect_string == ">>> "
    seen = await r.run_in_session(BashAction(command="6 * 7", is_interactive_command=True, expect=[">>> "], timeout=20))
    assert "42" in seen.output
    await r.run_in_session(BashAction(command="exit()", is_interactive_quit=True, timeout=20))
    assert await said(deployment, "echo $x") == "1\n"
    await r.create_session(CreateBashSessionRequest(session="other"))
    assert await said(deployment, "echo \"[$x]\"; pwd", "other") == "[]\n/\n"
    await r.close_session(CloseBashSessionRequest(session="other"))
    with pytest.raises(SessionDoesNotExistError):
        await said(deployment, "true", "other")


async def test_forks_have_the_shells_and_end_with_it() -> None:
    deployment = RametDeployment("python")
    with pytest.raises(DeploymentNotStartedError):
        deployment.runtime
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    await said(deployment, "cd /srv; n=1")
    one, two = await deployment.fork(2)
    await said(one, "n=2; cd /tmp")
    assert [await said(d, "echo $n; pwd") for d in (deployment, one, two)] == ["1\n/srv\n", "2\n/tmp\n", "1\n/srv\n"]
    await deployment.promote(one)
    assert await said(deployment, "echo $n; pwd") == "2\n/tmp\n"
    ids = {deployment.sandbox.id, two.sandbox.id}
    await two.stop()
    await deployment.stop()
    assert not ids & {s.id for s in await ramet.AsyncSandbox.list()}
