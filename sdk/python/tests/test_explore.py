"""Explorations, by both clients."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys

import pytest
from conftest import Daemon, eventually

import ramet
from ramet import AsyncSandbox, Plan, Sandbox, Score, Search, Variant


def test_the_best_attempt_is_promoted(sbx: Sandbox) -> None:
    sbx.run_code("x = 3")
    plan = Plan(code="import os\nscore = abs(x - int(os.environ['GUESS']))\nscore", variants=[{"GUESS": n} for n in (1, 4, 9)],
                score=Score("value", goal="min"), then="promote", diff=["/root"], variables=True)  # fmt: skip
    found = sbx.explore(plan)
    assert found.state == "done" and found.winner is not None
    assert (found.winner.env, found.winner.score, found.winner.won) == ({"GUESS": "4"}, 1.0, True)
    assert [attempt.score for attempt in found.attempts] == [2.0, 1.0, 6.0]
    assert "score" in [change.name for change in found.winner.variables], found.winner
    assert sbx.run_code("score").value == 1 and found.sandboxes == []
    table = str(found).splitlines()
    assert table[0].startswith(f"{found.id} done") and table[1].split() == ["attempt", "state", "score", "exit", "ms", "output"]
    assert table[3].startswith("*  1 GUESS=4  succeeded") and len(table) == 5
    html = found._repr_html_()
    assert html.count("<tr") == 4 and html.count("font-weight:bold") == 1 and "GUESS=4" in html


def test_texts_of_attempts_are_no_markup(sbx: Sandbox) -> None:
    found = sbx.explore("echo '<b>'", width=1)
    assert "&lt;b&gt;" in found._repr_html_() and "<b>" not in found._repr_html_()
    found.sandboxes.destroy()


def test_events_come_while_it_goes_on(sbx: Sandbox) -> None:
    variants = [Variant("sleep 1000", name="slow"), Variant('cat /srv/in; echo $1; read x; echo "$x"', name="fast", args=[7], files={"/srv/in": b"\xff\n"}, stdin="y\n")]
    begun = sbx.explore(Plan(variants=variants, search=Search("first"), keep="winners"), wait=False)
    assert begun.state in ("running", "finishing") and [found.id for found in sbx.explorations()] == [begun.id]
    states = []
    for event in begun:
        if event.attempt is not None:
            states.append((event.attempt.name, event.attempt.state))
    assert states[-2:] != [] and ("fast", "succeeded") in states and ("slow", "stopped") in states
    assert begun.state == "running" or begun.state == "finishing"  # as it was last asked for
    ended = begun.wait()
    assert ended is begun and ended.winner is not None and ended.winner.name == "fast" and ended.winner.stdout.endswith("\n7\ny\n")
    with begun.sandboxes as (winner,):
        assert winner.id == ended.winner.sandbox and winner.files.read_bytes("/srv/in") == b"\xff\n"
    assert list(begun.events(since=ended.info().seq)) == []
    with ramet.connect(sbx.client._config.base if sbx.client._config.socket is None else f"unix:{sbx.client._config.socket}") as client:
        assert client.exploration(begun.id).winners == ended.winners


def test_rounds(sbx: Sandbox) -> None:
    grow = "n=$(cat /srv/n 2>/dev/null || echo 0); n=$((n + RAMET_ATTEMPT)); echo $n | tee /srv/n"
    found = sbx.explore(grow, width=3, score="number", search=Search("beam", rounds=2, survivors=1, branch=2), then="promote", max_attempts=8)
    assert len(found.attempts) == 5 and found.attempts[4].parent == 2 and found.winner is not None
    assert found.winner.score == 6 and sbx.files.read("/srv/n") == "6\n"


def test_what_is_kept_ends_with_the_block(daemon: Daemon, base: Sandbox) -> None:
    with base.fork() as (sandbox,):
        found = sandbox.explore(["sh", "-c", "test $RAMET_ATTEMPT = 1"], width=3, keep="all", score="exit_code", winners=1)
        assert len(found.sandboxes) == 3 and found.sandboxes[0].id == found.attempts[1].sandbox
        assert {found.sandboxes[0].exec("true").exit_code, found.sandboxes[1].exec("true").exit_code} == {0}
        left = [one.id for one in found.sandboxes]
    for id in left:
        with pytest.raises(ramet.NotFound):
            Sandbox.connect(id)


def test_failures(sbx: Sandbox) -> None:
    nothing = sbx.explore("exit 3", width=2)
    assert nothing.state == "done" and nothing.winner is None and {one.exit_code for one in nothing.attempts} == {3}
    torn = sbx.explore("echo $RAMET_ATTEMPT > /srv/x", width=2, winners=2, then="merge")
    assert torn.state == "done" and "the merge left 1 conflict, and the winners are kept" in str(torn)
    assert [one.id for one in torn.sandboxes] == [one.sandbox for one in torn.attempts]
    torn.sandboxes.destroy()
    begun = sbx.explore("sleep 1000", then="promote", wait=False)
    sbx.destroy()
    with pytest.raises(ramet.ExploreError, match=f"the explored sandbox {sbx.id} is gone") as failed:
        begun.wait()
    assert failed.value.exploration is begun and begun.state == "failed" and not begun.sandboxes


def test_plans_are_checked(sbx: Sandbox) -> None:
    with pytest.raises(ramet.InvalidRequest) as wrong:
        sbx.explore("true", search="depth")
    assert wrong.value.field == "search.strategy"
    for arguments, field in (
        ({"plan": Plan("true"), "width": 2}, "width"), ({"plan": "true", "code": "1"}, "code"),
        ({"plan": "true", "variants": ["a"]}, "variants"), ({"plan": "true", "args": "a"}, "args"),
    ):  # fmt: skip
        with pytest.raises(ramet.InvalidRequest) as mistake:
            sbx.explore(**arguments)  # type: ignore[arg-type]
        assert mistake.value.field == field


def test_cancel(sbx: Sandbox) -> None:
    begun = sbx.explore("echo begun; sleep 1000", width=2, wait=False)
    assert begun.cancel().state == "canceled" and begun.sandboxes == []
    assert {one.state for one in begun.attempts} == {"stopped"}
    begun.remove()
    with pytest.raises(ramet.NotFound):
        begun.info()


def test_async(daemon: Daemon, base: Sandbox) -> None:
    async def main() -> None:
        sandbox = await AsyncSandbox.connect(base.id)
        begun = await sandbox.explore("echo $RAMET_ATTEMPT", width=2, score="number", wait=False)
        kinds = [event.kind async for event in begun]
        assert "attempt" in kinds and "state" in kinds
        found = await begun.wait()
        assert found.winner is not None and found.winner.index == 1
        async with found.sandboxes as (winner,):
            assert (await winner.exec("hostname")).ok
        # One whose caller is cancelled is cancelled.
        waiting = asyncio.ensure_future(sandbox.explore("sleep 1000", width=2))
        while not await sandbox.explorations(state="running"):
            await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await sandbox.explorations())[-1].state == "canceled"
        for one in await sandbox.explorations():
            await one.remove()

    asyncio.run(main())


def test_an_interrupt_cancels_it(daemon: Daemon, base: Sandbox) -> None:
    program = f"import ramet; ramet.Sandbox.connect({base.id!r}).explore('sleep 1000', width=2)"
    client = subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True)
    (begun,) = eventually(lambda: base.explorations(state="running"))
    client.send_signal(signal.SIGINT)
    _, said = client.communicate(timeout=30)
    assert "KeyboardInterrupt" in said and begun.info().state == "canceled"
    begun.remove()
