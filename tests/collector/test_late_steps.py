"""Late steps are cheap: where spans arrive out of order, steps wait for those that may precede them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bench.collector import evaluations_per_step
from tests.bench.recorded_load import recorded_load
from tests.collector.kit import all_spans, attributes, comparable, judge_all, loop, new_judge, request, tool, verdicts
from trajectory_guard import telemetry
from trajectory_guard_collector.app.pipeline import Pipeline
from trajectory_guard_collector.errors import OverloadedError
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.scoring.scorer import Judge
from trajectory_guard_collector.scoring.trajectory import Told
from trajectory_guard_collector.state.codec import dump, load

LATE = [tool("later", {"q": 8}, "eight", at=8.0), tool("earlier", {"q": 4}, "four", at=4.0)]
"""Two steps by which a service shows that its spans come up to four seconds late."""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Backend:
    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.full = False

    async def deliver(self, batch: Batch, *, key: bytes = b"", journal: bytes | None = None) -> None:
        if self.full:
            raise OverloadedError("full")
        self.batches.append(batch)


def out_of_order(clock: Clock, **limits: float) -> Judge:
    judge = new_judge(clock=clock, **limits)
    for one in LATE:
        judge.judge(request(one))
    return judge


def steps(judge: Judge) -> int:
    trajectory = judge.fleet.find("c")
    assert trajectory is not None
    return trajectory.steps


@pytest.mark.parametrize("batch", [16, 64])
def test_a_step_of_recorded_runs_is_evaluated_one_and_a_half_times_at_most(
    monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr("tests.bench.recorded_load.BATCH", batch)
    assert evaluations_per_step(recorded_load(seed=7, copies=1)) <= 1.5


@settings(max_examples=15)
@given(st.integers(0, 10_000), st.floats(0.0, 20.0))
def test_waiting_changes_no_verdict(seed: int, wait: float) -> None:
    chance = random.Random(seed)
    spans = [
        tool(
            f"s{at}",
            {"q": chance.choice("ab")},
            chance.choice(["same", f"answer {at}"]),
            at=float(at),
            trace=f"t{at % 3}",
        )
        for at in range(40)
    ]
    arrival = sorted(spans, key=lambda one: one.end_time_unix_nano / 1e9 + chance.uniform(0.0, 5.0))
    judge = new_judge(max_wait_s=wait)
    for one in arrival:
        judge.judge(request(one))
    judge.finish()
    assert comparable(verdicts(judge)) == comparable(judge_all([request(one) for one in spans]))


def test_in_order_nothing_waits() -> None:
    judge = new_judge(clock=Clock())
    told = [news.told for one in loop(3) for news in judge.judge(request(one)).news]
    assert told == [Told.START, Told.NUDGE]


def test_a_step_waits_until_the_service_is_as_much_further() -> None:
    judge = out_of_order(Clock())
    judge.judge(request(tool("new", {"q": 20}, "twenty", at=20.0)))
    assert steps(judge) == 2
    judge.judge(request(tool("other", {"q": 1}, "one", at=23.0, conversation="d")))
    assert steps(judge) == 2
    judge.judge(request(tool("another", {"q": 2}, "two", at=25.0, conversation="d")))
    assert steps(judge) == 3


def test_a_service_in_order_does_not_wait_for_another_one() -> None:
    judge = out_of_order(Clock())
    judge.judge(request(tool("new", {"q": 20}, "twenty", at=20.0), service="else"))
    assert steps(judge) == 3


def test_where_nothing_newer_comes_the_clock_ends_the_wait() -> None:
    clock = Clock()
    judge = out_of_order(clock)
    for one in loop(3, start=20.0):
        assert judge.judge(request(one)).news == []
    clock.now = 3.5
    assert judge.rest().news == []
    clock.now = 4.5
    judged = judge.rest()
    assert [news.told for news in judged.news] == [Told.START, Told.NUDGE]
    levels = [attributes(one)[telemetry.INTERVENTION] for one in all_spans(judged.data)]
    assert (judged.spans, levels) == (2, ["OBSERVE", "NUDGE"])


def test_the_longest_wait_is_bounded() -> None:
    clock = Clock()
    judge = out_of_order(clock, max_wait_s=1.0)
    judge.judge(request(tool("new", {"q": 20}, "twenty", at=20.0)))
    clock.now = 1.0
    judge.rest()
    assert steps(judge) == 3
    never = out_of_order(Clock(), max_wait_s=0.0)
    never.judge(request(tool("new", {"q": 20}, "twenty", at=20.0)))
    assert steps(never) == 3


def test_a_service_that_is_in_order_again_stops_waiting() -> None:
    judge = out_of_order(Clock())
    for at in range(2_000):
        judge.judge(request(tool(f"n{at}", {"q": at}, f"answer {at}", at=20.0 + at / 100)))
    assert steps(judge) == 2_002


def test_a_service_whose_clock_was_wrong_once_harms_no_other_one() -> None:
    judge = new_judge(clock=Clock())
    judge.judge(request(tool("future", at=1e8), service="wrong"))
    for one in LATE:
        judge.judge(request(one))
    judge.judge(request(tool("new", {"q": 20}, "twenty", at=20.0)))
    judge.finish()
    assert steps(judge) == 4


def test_what_waits_is_not_in_the_saved_state_and_counts_when_it_comes_again() -> None:
    judge = out_of_order(Clock())
    waits = [request(one) for one in loop(3, start=20.0)]
    for data in waits:
        judge.judge(data)
    saved = dump(judge.fleet.find("c"), {})  # type: ignore[arg-type]
    assert saved is not None
    restored = new_judge()
    restored.fleet.restore(*load(saved))
    for data in [*(request(one) for one in LATE), *waits]:
        restored.judge(data)
    restored.finish()
    assert steps(restored) == 5
    assert restored.metrics.registry.get_sample_value("trajectory_guard_duplicates_total") == 2


async def test_at_the_end_all_that_waits_is_evaluated_and_delivered() -> None:
    judge, backend = out_of_order(Clock()), Backend()
    pipeline = Pipeline(judge, backend, judge.metrics)
    for one in loop(3, start=20.0):
        await pipeline.accept(Batch(Signal.TRACES, request(one), 1), "grpc")
    assert len(backend.batches) == 3
    await pipeline.finish()
    [guard] = backend.batches[3:]
    assert (guard.items, len(all_spans(guard.data))) == (2, 2)


async def test_guard_spans_wait_for_a_backend_that_is_full() -> None:
    clock = Clock()
    judge, backend = out_of_order(clock), Backend()
    pipeline = Pipeline(judge, backend, judge.metrics)
    for one in loop(3, start=20.0):
        await pipeline.accept(Batch(Signal.TRACES, request(one), 1), "grpc")
    clock.now, backend.full = 10.0, True
    await pipeline.rest()
    assert len(backend.batches) == 3
    backend.full = False
    await pipeline.rest()
    assert [one.items for one in backend.batches[3:]] == [2]
