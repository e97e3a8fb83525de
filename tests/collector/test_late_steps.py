"""Late steps are cheap: where spans arrive out of order, steps wait for those that may precede them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.bench.collector import evaluations_per_step
from tests.bench.recorded_load import recorded_load
from tests.collector.kit import all_spans, attributes, comparable, loop, new_scorer, request, score_all, tool, verdicts
from trajectory_guard import telemetry
from trajectory_guard_collector.app.pipeline import Pipeline
from trajectory_guard_collector.errors import OverloadedError
from trajectory_guard_collector.otlp.signals import Batch, Signal
from trajectory_guard_collector.scoring.items import EventKind, Item, Pace, is_due
from trajectory_guard_collector.scoring.parser import attributes_of
from trajectory_guard_collector.scoring.scorer import RequestScorer
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

    async def deliver(self, batch: Batch, *, key: bytes = b"", wal_entry: bytes | None = None) -> None:
        if self.full:
            raise OverloadedError("full")
        self.batches.append(batch)


def out_of_order(clock: Clock, **limits: float) -> RequestScorer:
    scorer = new_scorer(clock=clock, **limits)
    for one in LATE:
        scorer.score(request(one))
    return scorer


def steps(scorer: RequestScorer) -> int:
    trajectory = scorer.registry.find("c")
    assert trajectory is not None
    return trajectory.steps


@pytest.mark.parametrize("batch", [64, pytest.param(16, marks=pytest.mark.slow)])
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
    scorer = new_scorer(reorder_wait_s=wait)
    for one in arrival:
        scorer.score(request(one))
    scorer.finish()
    assert comparable(verdicts(scorer)) == comparable(score_all([request(one) for one in spans]))


def test_in_order_nothing_waits() -> None:
    scorer = new_scorer(clock=Clock())
    reported = [events.kind for one in loop(3) for events in scorer.score(request(one)).events]
    assert reported == [EventKind.START, EventKind.NUDGE]


def test_the_spans_of_one_request_may_be_in_any_order() -> None:
    scorer = new_scorer(clock=Clock())
    scorer.score(request(*reversed(LATE), tool("first", {"q": 1}, "one", at=1.0)))
    scorer.score(request(tool("new", {"q": 20}, "twenty", at=20.0)))
    assert steps(scorer) == 4


def test_a_step_waits_until_the_service_is_as_much_further() -> None:
    scorer = out_of_order(Clock())
    scorer.score(request(tool("new", {"q": 20}, "twenty", at=20.0)))
    assert steps(scorer) == 2
    scorer.score(request(tool("other", {"q": 1}, "one", at=23.0, conversation="d")))
    assert steps(scorer) == 2
    scorer.score(request(tool("another", {"q": 2}, "two", at=25.0, conversation="d")))
    assert steps(scorer) == 3


def test_a_service_in_order_does_not_wait_for_another_one() -> None:
    scorer = out_of_order(Clock())
    scorer.score(request(tool("new", {"q": 20}, "twenty", at=20.0), service="else"))
    assert steps(scorer) == 3


def test_where_nothing_newer_comes_the_clock_ends_the_wait() -> None:
    clock = Clock()
    scorer = out_of_order(clock)
    for one in loop(3, start=20.0):
        assert scorer.score(request(one)).events == []
    clock.now = 3.5
    assert scorer.maintain().events == []
    clock.now = 4.5
    scored = scorer.maintain()
    assert [events.kind for events in scored.events] == [EventKind.START, EventKind.NUDGE]
    levels = [attributes(one)[telemetry.INTERVENTION] for one in all_spans(scored.data)]
    assert (scored.spans, levels) == (2, ["OBSERVE", "NUDGE"])


def test_the_longest_wait_is_bounded() -> None:
    clock = Clock()
    scorer = out_of_order(clock, reorder_wait_s=1.0)
    scorer.score(request(tool("new", {"q": 20}, "twenty", at=20.0)))
    clock.now = 1.0
    scorer.maintain()
    assert steps(scorer) == 3
    never = out_of_order(Clock(), reorder_wait_s=0.0)
    never.score(request(tool("new", {"q": 20}, "twenty", at=20.0)))
    assert steps(never) == 3


def test_a_service_that_is_in_order_again_stops_waiting() -> None:
    scorer = out_of_order(Clock())
    for at in range(2_000):
        scorer.score(request(tool(f"n{at}", {"q": at}, f"answer {at}", at=20.0 + at / 100)))
    assert steps(scorer) == 2_002


def test_a_service_whose_clock_was_wrong_once_harms_no_other_one() -> None:
    scorer = new_scorer(clock=Clock())
    scorer.score(request(tool("future", at=1e8), service="wrong"))
    for one in LATE:
        scorer.score(request(one))
    scorer.score(request(tool("new", {"q": 20}, "twenty", at=20.0)))
    scorer.finish()
    assert steps(scorer) == 4


def test_a_span_that_ends_in_the_future_does_not_end_the_waiting() -> None:
    scorer = out_of_order(Clock())
    scorer.score(request(tool("future", at=3e9, conversation="d")))
    scorer.score(request(tool("new", {"q": 20}, "twenty", at=20.0)))
    assert steps(scorer) == 2
    scorer.score(request(tool("another", {"q": 2}, "two", at=25.0, conversation="e")))
    assert steps(scorer) == 3


def test_a_clock_that_is_ahead_by_minutes_serves_as_a_clock() -> None:
    pace, now = Pace(), 1_000.0
    for end, newest in ((1_300.0, 1_300.0), (1_301.0, 1_300.0)):
        pace.next_wait_s(end, in_order=True, most=5.0, now=now)
        assert pace.newest == newest


def test_reminders_stay_bounded_where_the_newest_span_never_moves_on() -> None:
    pace = Pace()
    for at in range(3_000):
        pace.remind(1.0, at)
    pace.next_wait_s(2.0, in_order=True, most=5.0)
    assert len(pace.reminders()) == 2_000
    assert pace.reminders() == []


def test_what_waits_is_not_in_the_saved_state_and_counts_when_it_comes_again() -> None:
    scorer = out_of_order(Clock())
    waits = [request(one) for one in loop(3, start=20.0)]
    for data in waits:
        scorer.score(data)
    saved = dump(scorer.registry.find("c"), {})  # type: ignore[arg-type]
    assert saved is not None
    restored = new_scorer()
    restored.registry.restore(*load(saved))
    for data in [*(request(one) for one in LATE), *waits]:
        restored.score(data)
    restored.finish()
    assert steps(restored) == 5
    assert restored.metrics.registry.get_sample_value("trajectory_guard_duplicates_total") == 2


async def test_at_the_end_all_that_waits_is_evaluated_and_delivered() -> None:
    scorer, backend = out_of_order(Clock()), Backend()
    pipeline = Pipeline(scorer, backend, scorer.metrics)
    for one in loop(3, start=20.0):
        await pipeline.accept(Batch(Signal.TRACES, request(one), 1))
    assert len(backend.batches) == 3
    await pipeline.finish()
    [guard] = backend.batches[3:]
    assert (guard.items, len(all_spans(guard.data))) == (2, 2)


def test_guard_spans_of_steps_whose_wait_is_over_have_the_resource_of_their_application() -> None:
    clock = Clock()
    scorer, resource = out_of_order(clock), {"service.namespace": "eu", "deployment.environment.name": "prod"}
    for one in loop(3, start=20.0):
        scorer.score(request(one, resource=resource))
    clock.now = 10.0
    message = ExportTraceServiceRequest.FromString(scorer.maintain().data)
    found = [attributes_of(group.resource.attributes) for group in message.resource_spans]
    assert found == [{"service.name": "app", **resource}]


async def test_guard_spans_wait_for_a_backend_that_is_full() -> None:
    clock = Clock()
    scorer, backend = out_of_order(clock), Backend()
    pipeline = Pipeline(scorer, backend, scorer.metrics)
    for one in loop(3, start=20.0):
        await pipeline.accept(Batch(Signal.TRACES, request(one), 1))
    clock.now, backend.full = 10.0, True
    await pipeline.maintain()
    assert len(backend.batches) == 3
    backend.full = False
    await pipeline.maintain()
    assert [one.items for one in backend.batches[3:]] == [2]


async def test_guard_spans_that_find_no_room_to_wait_are_counted_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("trajectory_guard_collector.app.pipeline._MAX_UNSENT", 1)
    clock = Clock()
    scorer, backend = out_of_order(clock), Backend()
    pipeline = Pipeline(scorer, backend, scorer.metrics)
    for at, conversation in enumerate("ab"):
        backend.full = False
        for one in loop(3, prefix=conversation, start=20.0, conversation=conversation, trace=conversation):
            await pipeline.accept(Batch(Signal.TRACES, request(one), 1))
        clock.now, backend.full = 10.0 * (at + 1), True
        await pipeline.maintain()
    assert (
        scorer.metrics.registry.get_sample_value(
            "trajectory_guard_errors_total", {"trajectory_guard_error_where": "guard_spans"}
        )
        == 1
    )
    assert "2 guard spans are dropped: 1 batches wait already" in caplog.text


def test_many_steps_at_once_are_looked_at_a_few_times_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backlog is evaluated in short stretches; each must not look through all of it again."""
    looks = 0

    def counting(item: Item, now: float) -> bool:
        nonlocal looks
        looks += 1
        return is_due(item, now)

    monkeypatch.setattr("trajectory_guard_collector.scoring.trajectory.is_due", counting)
    scorer, spans = new_scorer(), [tool(f"s{at}", {"q": at}, f"answer {at}", at=float(at)) for at in range(200)]
    scorer.score(request(*spans))
    assert steps(scorer) == 200
    assert looks <= 2 * 200
