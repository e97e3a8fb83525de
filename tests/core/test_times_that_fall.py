"""A check that states how long something takes, after each change: faster each time, or only never the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from time import thread_time
from typing import Any

import pytest

from tests.core.test_lists_and_limits import nudged, steps, stopped
from tests.helpers import evaluate
from trajectory_guard.core.content.durations import keep_falling, times_in
from trajectory_guard.core.engine import Verdict

FAILURES: dict[str, Callable[[float], str]] = {
    "against a budget": lambda ms: f"FAIL: p95 {ms:.0f} ms exceeds the budget of 400 ms",
    "microseconds": lambda ms: f"FAIL: median {ms:.0f} microseconds exceeds the budget of 400 microseconds",
    "the Greek letter": lambda ms: f"FAIL: median {ms:.0f}\u03bcs exceeds the budget of 400\u03bcs",
    "alone": lambda ms: f"FAIL, too slow: {ms / 1000:.2f}s",
    "beside the time of the run": lambda ms: (
        f"AssertionError: expected less than 400 ms, got {ms:.0f} ms\n1 failed in {3 + ms % 7 / 10:.2f}s"
    ),
    "a member": lambda ms: json.dumps({"status": "failed", "latency_ms": round(ms), "limit_ms": 400}),
    "minutes": lambda ms: f"Build took {ms:.0f} minutes, the limit of the pipeline is 400 minutes",
    "a rate": lambda ms: f"FAIL: read at {50_000 / ms:.1f} MB/s, required are 120 MB/s",
    "German": lambda ms: f"Fehler: Antwortzeit {ms:.0f} ms über dem Grenzwert von 400 ms",
    "Japanese": lambda ms: f"エラー: 応答時間{ms:.0f}ミリ秒が上限400ミリ秒を超えています",
    "Chinese": lambda ms: f"失败：首屏时间 {ms:.0f} 毫秒，超过 400 毫秒 的上限",
    "several": lambda ms: f"✗ http_req_duration: avg={ms * 0.6:.2f}ms p(90)={ms * 0.9:.2f}ms p(95)={ms:.2f}ms: crossed",
}


def tuned(outcome: str, failure: Callable[[float], str], times: list[float]) -> list[Verdict | None]:
    """An edit and a benchmark for each of ``times``, milliseconds."""
    calls: list[tuple[Any, ...]] = []
    for at, ms in enumerate(times):
        calls.append(("edit_file", {"path": "q.py", "new": f"cache = {at * 7}"}, f"edited q.py, line {at}"))
        calls.append(("bench", {"cmd": "make bench"}, failure(ms), outcome))
    return evaluate(steps(calls, gap=9.0))


@pytest.mark.parametrize("outcome", ["error", "success"])
@pytest.mark.parametrize("form", FAILURES)
def test_a_time_that_falls_from_change_to_change_is_progress(form: str, outcome: str) -> None:
    verdicts = tuned(outcome, FAILURES[form], [1_400.0 * 0.93**at for at in range(14)])
    assert (nudged(verdicts), stopped(verdicts)) == (None, None)


@pytest.mark.parametrize("form", FAILURES)
def test_a_time_that_falls_with_steps_back_ends_no_run(form: str) -> None:
    verdicts = tuned("error", FAILURES[form], [1_400.0 * 0.95**at * (1 + 0.04 * (-1) ** at) for at in range(20)])
    assert stopped(verdicts) is None


@pytest.mark.parametrize("form", FAILURES)
def test_a_time_that_only_varies_is_none(form: str) -> None:
    random = Random(form)
    at = nudged(tuned("error", FAILURES[form], [900.0 + random.uniform(-30, 30) for _ in range(10)]))
    assert at is not None
    assert at <= 15  # the eighth failure


@pytest.mark.parametrize(
    "unit, seconds",
    [("ns", 1e-9), ("nsec", 1e-9), ("nanoseconds", 1e-9), ("us", 1e-6), ("usec", 1e-6), ("\u00b5s", 1e-6),
     ("\u03bcs", 1e-6), ("microseconds", 1e-6), ("ms", 1e-3), ("msecs", 1e-3), ("s", 1.0), ("minutes", 60.0)],
)  # fmt: skip
def test_a_time_has_the_length_of_its_unit(unit: str, seconds: float) -> None:
    assert times_in(f"took 874 {unit} in all") == pytest.approx([874 * seconds])


def test_a_warm_cache_is_no_progress() -> None:
    """The first run takes longest."""
    assert (
        nudged(tuned("error", FAILURES["alone"], [12_000, 3_400, 3_390, 3_300, 3_310, 3_290, 3_300, 3_280])) is not None
    )


def test_random_times_are_hardly_ever_a_trend() -> None:
    random = Random(5)
    found = sum(keep_falling([[random.gauss(3.0, 0.3), random.gauss(9.0, 1.0)] for _ in range(8)]) for _ in range(400))
    assert found <= 0.05 * 400


@pytest.mark.parametrize(
    "text", ["1" * 4_096, '"a' * 2_048, "1m" * 2_048, "秒1" * 2_048, "1h 1m " * 680, '"a":' * 1_024]
)
def test_times_are_read_in_linear_time(text: str) -> None:
    started = thread_time()
    for _ in range(20):
        times_in(text)
    assert thread_time() - started < 1.0
