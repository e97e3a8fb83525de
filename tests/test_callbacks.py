"""Texts and a callback of the users' own, at a nudge and at a stop."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from contextvars import ContextVar
from typing import Any

import pytest

from tests.helpers import evaluate, record
from trajectory_guard import callbacks
from trajectory_guard.callbacks import Intervention, notify, text_of
from trajectory_guard.config import ConfigError, GuardConfig
from trajectory_guard.core.engine import Verdict
from trajectory_guard.core.explain.closing import STOP_TEXT
from trajectory_guard.core.policy import Level

PAGE = "We are closed on Mondays, and open from Tuesday to Sunday between nine and five."


def nudge() -> Verdict:
    verdict = evaluate(record("search", {"q": "hours"}, PAGE) for _ in range(3))[-1]
    assert verdict is not None
    assert verdict.nudge
    return verdict


def intervention() -> Intervention:
    return Intervention(Level.NUDGE, "text", nudge(), {}, True)


def test_a_template_is_filled_in() -> None:
    given = "{tool} {count} {rule} {types} {score}: {text}"
    assert text_of(given, nudge(), "ours", Counter()) == "search 3 same_call_same_result TYPE_I_STUTTER 3.0: ours"


def test_a_callable_is_given_the_verdict() -> None:
    assert text_of(lambda verdict: verdict.tool.upper(), nudge(), "ours", Counter()) == "SEARCH"


@pytest.mark.parametrize("given", [lambda verdict: 1 / 0, lambda verdict: None, lambda verdict: " "])
def test_a_callable_that_fails_costs_only_itself(given: Any, caplog: pytest.LogCaptureFixture) -> None:
    counts: Counter[str] = Counter()
    with caplog.at_level(logging.ERROR):
        assert [text_of(given, nudge(), "ours", counts) for _ in range(3)] == ["ours"] * 3
    assert counts["errors.text"] == 3
    assert len(caplog.records) == 1


@pytest.mark.parametrize("key", ["nudge_text", "stop_text"])
@pytest.mark.parametrize("template", ["{tols}", "{tool", "{}"])
def test_a_template_that_cannot_work_is_refused_by_name(key: str, template: str) -> None:
    with pytest.raises(ConfigError, match=key):
        GuardConfig(**{key: template})


def test_an_error_in_the_callback_is_contained_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    counts: Counter[str] = Counter()

    def broken(_: Intervention) -> None:
        raise RuntimeError("page me")

    with caplog.at_level(logging.ERROR):
        notify(broken, intervention(), counts)
        notify(broken, intervention(), counts)
    assert counts["errors.on_intervention"] == 2
    assert len(caplog.records) == 1


def test_a_coroutine_outlives_the_loop_of_the_run_that_is_stopped() -> None:
    go, loops, seen = threading.Event(), list[asyncio.AbstractEventLoop](), list[str]()
    who = ContextVar("who", default="nobody")

    async def tell(_: Intervention) -> None:
        loops.append(asyncio.get_running_loop())
        while not go.is_set():
            await asyncio.sleep(0)
        seen.append(who.get())

    async def run() -> None:
        who.set("alice")
        notify(tell, intervention(), counts)

    counts: Counter[str] = Counter()
    asyncio.run(run())
    notify(tell, intervention(), counts)  # without a loop
    assert not callbacks.wait(0)
    go.set()
    assert callbacks.wait(30)
    assert (sorted(seen), len(set(loops)), counts) == (["alice", "nobody"], 1, Counter())


@pytest.mark.parametrize("error", [ValueError("no"), asyncio.CancelledError(), SystemExit(1)], ids=repr)
def test_no_error_of_a_coroutine_ends_the_others(error: BaseException) -> None:
    seen: list[str] = []

    async def fail(_: Intervention) -> None:
        raise error

    async def tell(_: Intervention) -> None:
        seen.append("told")

    counts: Counter[str] = Counter()
    for callback in (fail, tell):
        notify(callback, intervention(), counts)
        assert callbacks.wait(30)
    assert (seen, counts) == (["told"], Counter({"errors.on_intervention": 1}))


def test_callbacks_that_never_end_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "_MAX_RUNNING", 2)
    go = threading.Event()

    async def wait(_: Intervention) -> None:
        while not go.is_set():
            await asyncio.sleep(0)

    counts: Counter[str] = Counter()
    for _ in range(3):
        notify(wait, intervention(), counts)
    assert counts == Counter({"errors.on_intervention": 1})
    go.set()
    assert callbacks.wait(30)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_child_waits_for_no_callback_of_its_parent() -> None:
    go = threading.Event()

    async def wait(_: Intervention) -> None:
        while not go.is_set():
            await asyncio.sleep(0)

    async def tell(_: Intervention) -> None:
        pass

    counts: Counter[str] = Counter()
    notify(wait, intervention(), counts)
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        notify(tell, intervention(), counts)
        os._exit(not callbacks.wait(25))
    assert os.waitpid(child, 0)[1] == 0
    go.set()
    assert callbacks.wait(30)


def test_the_exit_of_the_process_waits_for_a_coroutine() -> None:
    script = """
        import asyncio
        from collections import Counter
        from trajectory_guard.callbacks import notify

        async def tell(intervention):
            await asyncio.sleep(0.01)
            print("told", flush=True)

        async def run():
            notify(tell, None, Counter())

        asyncio.run(run())
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    assert subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout == "told\n"


def test_the_closing_text_claims_nothing_that_only_some_loops_are() -> None:
    """A stop may follow changing calls with one error, refusals, or a wait: none of them the same step twice."""
    assert "same" not in STOP_TEXT
    assert "nothing new" in STOP_TEXT


def test_flush_shutdown_and_exit_wait_for_one_callback_once_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook that does not answer: five seconds, and not five each."""
    monkeypatch.setattr(callbacks, "_EXIT_TIMEOUT_S", 0.05)
    monkeypatch.setattr(callbacks, "_callbacks", callbacks._Callbacks())
    answer, counts = asyncio.Event(), Counter[str]()

    async def hang(_: Intervention) -> None:
        await answer.wait()

    notify(hang, intervention(), counts)
    begun = time.monotonic()
    assert [callbacks.wait(600) for _ in range(3)] == [False] * 3
    assert time.monotonic() - begun < 300
    notify(hang, intervention(), counts)  # has a wait of its own
    assert callbacks._callbacks._waited_s == 0.0
    callbacks._callbacks._loop.call_soon_threadsafe(answer.set)  # type: ignore[union-attr]
    monkeypatch.setattr(callbacks, "_EXIT_TIMEOUT_S", 60.0)
    assert callbacks.wait(60)
