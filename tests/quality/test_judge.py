"""The application's judge: sync, async, wrong, slow, hanging, and never in the way."""

from __future__ import annotations

import asyncio
import gc
import math
import os
import subprocess
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.helpers import PACKAGE
from trajectory_guard.quality.judge import MAX_HANGING, Answer, Judge

LONG_S = 30.0


def answer(number: int = 0, request: str = "request", response: str = "response") -> Answer:
    return Answer(f"t{number}", "", request, response)


class Asked:
    """A judge with all that it delivers."""

    def __init__(self, judge: Callable[..., Any], **settings: Any) -> None:
        self.scores: list[tuple[str, float]] = []
        self.judge = Judge(judge, self._deliver, counts=Counter(), **settings)

    def _deliver(self, judged: Answer, score: float) -> None:
        self.scores.append((judged.trajectory, score))

    @property
    def counts(self) -> Counter[str]:
        return self.judge.counts

    def ask(self, *answers: Answer) -> Asked:
        for one in answers:
            self.judge.submit(one)
        assert self.judge.wait(LONG_S)
        return self


def test_a_function_is_asked_in_order() -> None:
    asked = Asked(lambda request, response: len(response) / 10).ask(*(answer(at, response="x" * at) for at in range(5)))
    assert asked.scores == [("t0", 0.0), ("t1", 0.1), ("t2", 0.2), ("t3", 0.3), ("t4", 0.4)]
    asked.judge.close()


def test_coroutines_run_in_one_event_loop_so_that_connections_stay_open() -> None:
    loops = []

    async def judge(request: str, response: str) -> float:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        return 0.5

    assert Asked(judge).ask(*map(answer, range(4))).scores == [(f"t{at}", 0.5) for at in range(4)]
    assert len(set(map(id, loops))) == 1


def test_texts_are_cut() -> None:
    seen = []

    def judge(request: str, response: str) -> float:
        seen.append((len(request), len(response)))
        return 1.0

    Asked(judge).ask(answer(request="r" * 501, response="a" * 1001), answer(request="r" * 500, response="a" * 7))
    assert seen == [(500, 1000), (500, 7)]


class _Strange:
    def __float__(self) -> float:
        raise RuntimeError("no number after all")


@pytest.mark.parametrize("value", ["0.5", math.nan, math.inf, -0.1, 1.5, [0.5], {"score": 1}, _Strange()])
def test_a_value_that_is_no_score_is_counted_and_dropped(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    said = iter([value, value, 0.7])
    asked = Asked(lambda request, response: next(said)).ask(*map(answer, range(3)))
    assert asked.scores == [("t2", 0.7)]
    assert asked.counts == {"errors.quality_judge": 2}
    assert sum("quality judge failed" in one.message for one in caplog.records) == 1


@pytest.mark.parametrize("error", [ValueError("secret text"), KeyboardInterrupt(), SystemExit(3), RecursionError(),
                                   StopIteration(), GeneratorExit(), MemoryError()])  # fmt: skip
@pytest.mark.parametrize("is_async", [False, True])
def test_errors_are_contained(error: BaseException, is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    failing = [True, True, False]

    def judge(request: str, response: str) -> float:
        if failing.pop(0):
            raise error
        return 0.7

    async def judge_async(request: str, response: str) -> float:
        return judge(request, response)

    asked = Asked(judge_async if is_async else judge, redact=True).ask(*map(answer, range(3)))
    assert asked.scores == [("t2", 0.7)]
    assert asked.counts == {"errors.quality_judge": 2}
    assert "secret text" not in caplog.text


def test_no_opinion_is_no_score() -> None:
    asked = Asked(lambda request, response: None).ask(answer())
    assert (asked.scores, asked.counts) == ([], {"quality.judge_abstained": 1})


@contextmanager
def hanging() -> Iterator[tuple[threading.Event, threading.Event]]:
    """``entered``, which a judge sets, and ``release``, for which it waits."""
    entered, release = threading.Event(), threading.Event()
    try:
        yield entered, release
    finally:
        release.set()


def test_submitting_never_waits_and_the_oldest_give_way() -> None:
    with hanging() as (entered, release):

        def judge(request: str, response: str) -> float:
            entered.set()
            release.wait(LONG_S)
            return 0.5

        asked = Asked(judge, limit=3, timeout_s=LONG_S)
        asked.judge.submit(answer(0))
        assert entered.wait(LONG_S)
        for at in range(1, 8):
            asked.judge.submit(answer(at))
        assert asked.counts["quality.judge_dropped"] == 4
        assert not asked.judge.wait(0.0)
        release.set()
        assert asked.judge.wait(LONG_S)
        assert [name for name, _ in asked.scores] == ["t0", "t5", "t6", "t7"]


def test_a_call_that_hangs_is_left_behind_and_its_late_score_is_not_taken() -> None:
    with hanging() as (_, release):

        def judge(request: str, response: str) -> float:
            if request == "hang":
                release.wait(LONG_S)
            return 0.5

        asked = Asked(judge, timeout_s=0.5)
        asked.ask(answer(0, "hang"), answer(1), answer(2))
        assert asked.scores == [("t1", 0.5), ("t2", 0.5)]
        assert asked.counts == {"quality.judge_timeout": 1}
        release.set()
        asked.ask(answer(3))
        assert [name for name, _ in asked.scores] == ["t1", "t2", "t3"]


def test_a_coroutine_that_hangs_is_cancelled() -> None:
    cancelled = []

    async def judge(request: str, response: str) -> float:
        if request == "hang":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise
        return 0.5

    asked = Asked(judge, timeout_s=0.5).ask(answer(0, "hang"), answer(1))
    assert (asked.scores, asked.counts, cancelled) == ([("t1", 0.5)], {"quality.judge_timeout": 1}, [True])


def test_only_so_many_calls_may_hang() -> None:
    running = []
    with hanging() as (entered, release):

        def judge(request: str, response: str) -> float:
            running.append(request)
            if len(running) >= MAX_HANGING:
                entered.set()
            release.wait(LONG_S)
            return 0.5

        asked = Asked(judge, timeout_s=0.01, limit=5)
        for at in range(20):
            asked.judge.submit(answer(at))
        assert entered.wait(LONG_S)
        before = len(running)
        assert not asked.judge.wait(0.6)
        assert len(running) == before == MAX_HANGING
        release.set()
        assert asked.judge.wait(LONG_S)
    assert asked.scores  # those that were asked after the others had returned


@pytest.mark.parametrize(("sample", "judged"), [(1.0, 20), (0.5, 10), (0.25, 5), (0.3, 6), (0.001, 1)])
def test_a_sample_is_spread_evenly_and_begins_with_the_first(sample: float, judged: int) -> None:
    asked = Asked(lambda request, response: 0.5, sample=sample).ask(*map(answer, range(20)))
    assert len(asked.scores) in (judged, judged + 1)
    assert asked.scores[0][0] == "t0"


def test_a_closed_judge_drops_what_waits_and_starts_again_with_the_next_answer() -> None:
    with hanging() as (entered, release):

        def judge(request: str, response: str) -> float:
            entered.set()
            release.wait(LONG_S)
            return 0.5

        asked = Asked(judge, timeout_s=LONG_S)
        for at in range(5):
            asked.judge.submit(answer(at))
        assert entered.wait(LONG_S)
        asked.judge.close()
        release.set()
        asked.ask(answer(9))
        assert ("t9", 0.5) in asked.scores
        assert len(asked.scores) <= 2


def threads() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("trajectory_guard-judge")}


def test_threads_end_when_the_judge_is_closed() -> None:
    before = threads()
    asked = Asked(lambda request, response: 0.5).ask(answer())
    own = threads() - before
    assert len(own) == 2
    asked.judge.close()
    for one in own:
        one.join(LONG_S)
    assert not any(one.is_alive() for one in own)


def test_threads_end_when_nobody_refers_to_the_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """A board that an application makes for each request would stay for ever, with two threads."""
    monkeypatch.setattr("trajectory_guard.quality.judge._LOOK_UP_S", 0.01)
    before = threads()
    asked = Asked(lambda request, response: 0.5).ask(answer())
    own, judge = threads() - before, weakref.ref(asked.judge)
    assert len(own) == 2
    del asked
    gc.collect()
    for one in own:
        one.join(LONG_S)
    assert not any(one.is_alive() for one in own)
    assert judge() is None


def test_nothing_starts_before_the_first_answer() -> None:
    before = threads()
    Judge(lambda request, response: 0.5, lambda judged, score: None)
    assert threads() == before


# --- its own model calls ---------------------------------------------------------------------------------------------


def test_model_calls_of_the_judge_leave_no_span_and_know_no_span_of_the_agent() -> None:
    from langchain_core.messages import AIMessage

    from trajectory_guard.cli.demo.scripted import ScriptedChatModel

    provider, exporter = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrumentor = LangChainInstrumentor()  # that of OpenLLMetry leaves its wrappers on LangChain's middleware behind
    instrumentor.instrument(tracer_provider=provider)
    model = ScriptedChatModel(policy=lambda messages, turn: AIMessage("0.8"))
    around = []

    def judge(request: str, response: str) -> float:
        around.append(trace.get_current_span().get_span_context().is_valid)
        return float(model.invoke(f"{request} {response}").text)

    async def judge_async(request: str, response: str) -> float:
        around.append(trace.get_current_span().get_span_context().is_valid)
        return float((await model.ainvoke(f"{request} {response}")).text)

    try:
        with provider.get_tracer("app").start_as_current_span("agent"):
            model.invoke("seen")
            scores = [Asked(one).ask(answer()).scores for one in (judge, judge_async)]
    finally:
        instrumentor.uninstrument()
    assert (scores, around) == ([[("t0", 0.8)]] * 2, [False, False])
    assert sum("hat" in span.name for span in exporter.get_finished_spans()) == 1  # the call that is no judgement


# --- the process -----------------------------------------------------------------------------------------------------


def run_python(code: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=timeout_s, check=False
    )


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("def", "time.sleep(3600)"), ("def", "threading.Event().wait()"), ("def", "asyncio.run(asyncio.sleep(3600))"),
        ("async def", "await asyncio.sleep(3600)"),
    ],
)  # fmt: skip
def test_a_judge_that_hangs_does_not_keep_the_process_alive(kind: str, body: str) -> None:
    code = f"""
import asyncio, threading, time
from trajectory_guard import FlagBoard, GuardConfig
entered = threading.Event()
{kind} judge(request, response):
    entered.set()
    {body}
board = FlagBoard(GuardConfig(quality_judge=judge))
for _ in range(3):
    board.judge_answer("t", "request", "response")
assert entered.wait(30)
print("end")
"""
    began = time.monotonic()
    done = run_python(code)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "end", "")
    assert time.monotonic() - began < LONG_S


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_asks_for_itself() -> None:
    code = """
import os
from trajectory_guard import FlagBoard, GuardConfig
board = FlagBoard(GuardConfig(quality_judge=lambda request, response: 0.5))
judge = board.quality.judge
board.judge_answer("t", "request", "response")
assert judge.wait(30)
child = os.fork()
if child == 0:
    board.judge_answer("t", "request", "response")
    os._exit(0 if judge.wait(30) and board.counts["quality.scores"] == 2 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run_python(code)
    assert done.stdout.strip() == "0", done.stderr
